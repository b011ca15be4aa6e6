"""`handrail serve`: the server in this process, until a signal."""

import asyncio
import os
from typing import TYPE_CHECKING, NamedTuple

from handrail.agents.model import BadModelError
from handrail.cli.database import (
    EXIT_WRONG_INPUT,
    InputError,
    ensure_database,
    load_settings,
    print_error,
)
from handrail.cli.output import print_note
from handrail.engine.engine import Engine
from handrail.server.configuration import Configuration, find_misspelled_variables
from handrail.server.process import CannotServeError, serve
from handrail.store.engine_store import StoreError
from handrail.teams import define_builtins, install_teams
from handrail.telemetry.setup import TracingUnavailableError, open_traces

if TYPE_CHECKING:
    from handrail.teams.healing import Service
    from handrail.telemetry.export import TraceExporter


class ServeOptions(NamedTuple):
    """The command's options; the settings replace those that are None or empty."""

    database: str = ""
    host: str = ""
    port: int | None = None
    builtin_agents: bool = False


def run_server(options: ServeOptions) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code: 1 if the engine failed."""
    try:
        configuration = load_settings(
            database=options.database, host=options.host, port=options.port
        )
        ensure_database(configuration["database"], create=True)
        code = asyncio.run(_serve(configuration, builtin_agents=options.builtin_agents))
    except (CannotServeError, InputError, StoreError, BadModelError) as error:
        print_error("serve", error)
        return EXIT_WRONG_INPUT
    if code:
        print_error("serve", "the engine failed, and the log says why; start it again")
    return code


def _read_service(file: str) -> "Service | None":
    """Read the service to be healed, if the setting names it. Raises `InputError`."""
    from handrail.teams.healing import read_service

    try:
        return read_service(file) if file else None
    except ValueError as error:
        raise InputError(str(error)) from None


async def _serve(configuration: Configuration, *, builtin_agents: bool) -> int:
    service = _read_service(configuration["service"]) if builtin_agents else None
    trace_exporter = _open_traces()

    async def ready(engine: Engine, url: str) -> bool:
        if trace_exporter is not None:
            engine.listeners.add(trace_exporter)
        await define_builtins(engine)
        if builtin_agents:
            await install_teams(
                engine,
                model=configuration["model"],
                workspaces=configuration["workspaces"],
                service=service,
            )
        lines = [f"Handrail is at {url}"]
        if not await engine.has_tokens():
            lines.append("Nobody has a token yet: handrail token create --role admin")
            lines.append(f"To open the page: handrail sign-in --url {url}")
        print("\n".join(lines), flush=True)
        return True

    for line in find_misspelled_variables(os.environ):
        print_note(line)
    try:
        return await serve(
            configuration["database"],
            host=configuration["host"],
            port=configuration["port"],
            engine_settings=configuration.engine,
            settings=configuration.server,
            ready=ready,
        )
    finally:
        if trace_exporter is not None:
            trace_exporter.close()


def _open_traces() -> "TraceExporter | None":
    """Open traces for OpenTelemetry, if they are wanted. A server runs without them all the
    same.
    """
    try:
        return open_traces(os.environ)
    except TracingUnavailableError as error:
        print_note(str(error))
        return None
