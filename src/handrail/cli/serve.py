"""`handrail serve`: the server in this process, until it is told to end."""

import asyncio
import os
from typing import TYPE_CHECKING, NamedTuple

from handrail.agents.model import BadModel
from handrail.cli.database import WRONG_INPUT, InputError, complain, look, settings
from handrail.cli.tables import note
from handrail.engine.engine import Engine
from handrail.server.configuration import Configuration, strangers
from handrail.server.serve import CannotServe, serve
from handrail.store.port import StoreError
from handrail.teams import employ, provide
from handrail.telemetry.wanted import NoTraces, traces

if TYPE_CHECKING:
    from handrail.teams.healing import Service
    from handrail.telemetry.export import Traces


class Wanted(NamedTuple):
    """The command's options; what is None or empty is as the settings say."""

    database: str = ""
    host: str = ""
    port: int | None = None
    builtin_agents: bool = False


def serve_here(wanted: Wanted) -> int:
    """Serves until SIGTERM or SIGINT; the exit code: 1 if the engine failed."""
    try:
        found = settings(database=wanted.database, host=wanted.host, port=wanted.port)
        look(found["database"], make=True)
        code = asyncio.run(_serve(found, builtin_agents=wanted.builtin_agents))
    except (CannotServe, InputError, StoreError, BadModel) as error:
        complain("serve", error)
        return WRONG_INPUT
    if code:
        complain("serve", "the engine failed, and the log says why; start it again")
    return code


def _service(file: str) -> "Service | None":
    """What is healed, if the setting names it. Raises `InputError`."""
    from handrail.teams.healing import read_service

    try:
        return read_service(file) if file else None
    except ValueError as error:
        raise InputError(str(error)) from None


async def _serve(found: Configuration, *, builtin_agents: bool) -> int:
    service = _service(found["service"]) if builtin_agents else None
    sent = _traces()

    async def ready(engine: Engine, url: str) -> bool:
        if sent is not None:
            engine.listeners.add(sent)
        await provide(engine)
        if builtin_agents:
            await employ(
                engine,
                model=found["model"],
                workspaces=found["workspaces"],
                service=service,
            )
        lines = [f"Handrail is at {url}"]
        if not await engine.has_tokens():
            lines.append("Nobody has a token yet: handrail token create --role admin")
            lines.append(f"To open the page: handrail sign-in --url {url}")
        print("\n".join(lines), flush=True)
        return True

    for line in strangers(os.environ):
        note(line)
    try:
        return await serve(
            found["database"],
            host=found["host"],
            port=found["port"],
            engine_settings=found.engine,
            settings=found.server,
            ready=ready,
        )
    finally:
        if sent is not None:
            sent.close()


def _traces() -> "Traces | None":
    """For OpenTelemetry, if they are wanted. A server without them is a server all the same."""
    try:
        return traces(os.environ)
    except NoTraces as error:
        note(str(error))
        return None
