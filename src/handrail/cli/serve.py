"""`handrail serve`: the server in this process, until a signal."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from handrail.cli.command import as_input_error, print_error
from handrail.cli.database import ensure_database, load_settings
from handrail.cli.options import Database
from handrail.cli.output import print_note
from handrail.store.rows import StoreError

if TYPE_CHECKING:
    from handrail.engine.engine import Engine
    from handrail.server.configuration import Configuration
    from handrail.telemetry.export import TraceExporter


def serve(
    database: Database = "",
    host: Annotated[str, typer.Option(help="The address to listen on; default: 127.0.0.1.")] = "",
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65_535, help="The port to listen on; default: 8080; 0 takes a free one."
        ),
    ] = None,
    builtin_agents: Annotated[
        bool,
        typer.Option("--builtin-agents", help="Also run the built-in teams' offline agents here."),
    ] = False,
) -> int:
    """Serve the API, the page and the engine.

    Prints its address when it listens. Stops on SIGTERM or Ctrl-C, after requests in progress; exit
    code 1 if the engine failed, 2 if it cannot listen or the database cannot be used.
    """
    import asyncio

    from handrail.agents.model import BadModelError
    from handrail.server.process import CannotServeError

    with as_input_error(CannotServeError, StoreError, BadModelError):
        configuration = load_settings(database=database, host=host, port=port)
        ensure_database(configuration["database"], create=True)
        code = asyncio.run(_serve(configuration, builtin_agents=builtin_agents))
    if code:
        print_error("serve", "the engine failed; see the log, then start it again")
    return code


async def _serve(configuration: "Configuration", *, builtin_agents: bool) -> int:
    from handrail.server import process
    from handrail.server.configuration import find_misspelled_variables
    from handrail.teams import define_builtins, install_teams
    from handrail.teams.healing import read_service

    with as_input_error(ValueError):
        service_file = configuration["service"] if builtin_agents else ""
        service = read_service(service_file) if service_file else None
    trace_exporter = _open_traces()

    async def ready(engine: "Engine", url: str) -> bool:
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
        if not await engine.credentials.has_tokens():
            lines.append("Nobody has a token yet: handrail token create --role admin")
            lines.append(f"To open the page: handrail sign-in --url {url}")
        print("\n".join(lines), flush=True)
        return True

    for line in find_misspelled_variables(os.environ):
        print_note(line)
    try:
        return await process.serve(
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
    from handrail.telemetry.setup import TracingUnavailableError, open_traces

    try:
        return open_traces(os.environ)
    except TracingUnavailableError as error:
        print_note(str(error))
        return None
