"""Commands that run until a signal: `handrail demo`, `serve`, `worker`, `mcp` and `a2a`."""

import ipaddress
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from handrail.cli.arguments import Database, Server, import_object
from handrail.cli.command import (
    EXIT_FAILED,
    TOKEN_VARIABLE,
    InputError,
    as_input_error,
    print_error,
)
from handrail.cli.connection import ensure_database, load_settings
from handrail.cli.output import print_note
from handrail.client.errors import ClientError
from handrail.engine.errors import install_hint
from handrail.store.rows import StoreError

if TYPE_CHECKING:
    from handrail.client.worker import Worker
    from handrail.engine.engine import Engine
    from handrail.server.settings import Configuration
    from handrail.telemetry.export import TraceExporter


def demo(
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="The port; default: 8080 if it is free."),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Answer every question, print a table and exit.")
    ] = False,
) -> int:
    """Start a server with built-in teams at work on sample beads.

    Prints the page's address with a one-time sign-in. Has a database of its own in this folder.
    """
    import asyncio

    from handrail.cli.demo_server import Demo
    from handrail.server.process import CannotServeError

    server = Demo(once=once)
    with as_input_error(CannotServeError, StoreError, OSError):
        code = asyncio.run(server.serve(port))
    return code or (EXIT_FAILED if server.has_failed else 0)


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
        code = asyncio.run(_serve_api(configuration, builtin_agents=builtin_agents))
    if code:
        print_error("serve", "the engine failed; see the log, then start it again")
    return code


async def _serve_api(configuration: "Configuration", *, builtin_agents: bool) -> int:
    from handrail.server import process
    from handrail.server.settings import find_misspelled_variables
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


def worker(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME", help="A Worker, or a function decorated with @agent."
        ),
    ],
    server: Server = "",
    agent: Annotated[str, typer.Option(metavar="ID", help="The agent's id.")] = "",
    concurrency: Annotated[
        int, typer.Option(min=0, max=10_000, help="Concurrent dispatches; 0: as the module says.")
    ] = 0,
) -> int:
    """Run agents from a Python module against a server.

    Takes a token of the role agent from HANDRAIL_TOKEN. Stops on SIGTERM or Ctrl-C, after the
    dispatches in progress.
    """
    from handrail.server.logs import capture_logs

    with as_input_error(ValueError):
        configuration = load_settings()
        loaded = _load_worker(target)
        loaded.url = server or loaded.url or configuration["server"]
        loaded.agent_id = agent or loaded.agent_id
        loaded.concurrency = concurrency or loaded.concurrency
        try:
            with capture_logs(configuration.server.log_level, configuration.server.log_format):
                loaded.serve()
        except ClientError as error:
            print_error("worker", str(error))
            return EXIT_FAILED
    return 0


def _load_worker(target: str) -> "Worker":
    """Return the worker: an object of that name, or a marked function to be one."""
    from handrail.client.executor import roles_of
    from handrail.client.worker import Worker

    loaded: Any = import_object(target, "agents:worker", "a Worker")
    if isinstance(loaded, Worker):
        return loaded
    if not roles_of(loaded):
        raise InputError(
            f"'{target}' is a {type(loaded).__name__}, not a Worker; name a handrail.Worker, or a "
            "function decorated with @handrail.agent"
        )
    worker = Worker()
    worker.add(loaded)
    return worker


def mcp(
    server: Server = "",
    http: Annotated[
        bool,
        typer.Option("--http", help="Serve many agents over HTTP; else one over stdio."),
    ] = False,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port to listen on; 0 takes a free one.")
    ] = 8090,
    silence: Annotated[
        float,
        typer.Option(
            min=1, max=86_400, help="Seconds without a call after which an agent counts as gone."
        ),
    ] = 900,
) -> None:
    """Let a coding agent join as a worker over MCP.

    MCP is the Model Context Protocol. Over stdio the agent's token is taken from HANDRAIL_TOKEN;
    over HTTP every request carries its own. Stops when its input ends, or on SIGTERM or Ctrl-C.
    """
    if find_spec("mcp") is None:
        raise InputError(f"the MCP SDK is not installed; {install_hint('mcp')}")
    import asyncio

    from handrail.client.retry import parse_addresses
    from handrail.server.logs import capture_logs

    with as_input_error(ValueError):
        configuration = load_settings()
        url = ",".join(parse_addresses(server or configuration["server"]))
        token = os.environ.get(TOKEN_VARIABLE, "")
        if not http and not token:
            raise InputError(
                f"{TOKEN_VARIABLE} is not set, but identifies the agent; create one: "
                "handrail token create --role agent --agent ID"
            )
        with capture_logs(configuration.server.log_level, configuration.server.log_format):
            asyncio.run(_serve_mcp(url, token, (host, port) if http else None, silence))


async def _serve_mcp(
    url: str, token: str, http_address: tuple[str, int] | None, silence: float
) -> None:
    from handrail.cli.asgi import AsgiServer
    from handrail.mcp.agent_sessions import AgentSessions
    from handrail.mcp.server import PATH, make_http_app, serve_stdio

    def ready(address: str) -> None:
        print(f"Handrail speaks MCP at {address}{PATH}", flush=True)

    async with AgentSessions(url, silence_seconds=silence) as sessions:
        if http_address is None:
            await serve_stdio(sessions, token)
            return
        await AsgiServer(
            make_http_app(sessions, http_address[0]), *http_address, ready, lifespan="on"
        ).listen()


def a2a(
    server: Server = "",
    url: Annotated[
        str,
        typer.Option(
            metavar="URL", help="The public address in its agent cards; default: where it listens."
        ),
    ] = "",
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port to listen on; 0 takes a free one.")
    ] = 8091,
) -> None:
    """Serve definitions as agents over A2A.

    A2A is the Agent2Agent protocol. Every definition is an agent, at its id below this address; a
    message to it files a bead. Every request carries its own token. Stops on SIGTERM or Ctrl-C.
    """
    import asyncio

    from handrail.a2a.app import A2aApp
    from handrail.cli.asgi import AsgiServer
    from handrail.client.retry import parse_addresses
    from handrail.server.logs import capture_logs

    def ready(address: str) -> None:
        app.url = app.url or address
        print(f"Handrail speaks A2A at {app.url}/DEFINITION", flush=True)

    with as_input_error(ValueError):
        configuration = load_settings()
        app = A2aApp(
            ",".join(parse_addresses(server or configuration["server"])),
            _public_url(parse_addresses(url), host),
        )
        with capture_logs(configuration.server.log_level, configuration.server.log_format):
            asyncio.run(AsgiServer(app, host, port, ready).listen())


def _public_url(urls: list[str], host: str) -> str:
    """Return the public address; "" if that is where it listens."""
    if len(urls) > 1:
        raise InputError("--url names more than one address; agent cards have one, so name one")
    if not urls and _is_unspecified(host):
        raise InputError(
            f"clients cannot connect to {host}, the address in the agent cards; name the public "
            "one with --url"
        )
    return urls[0] if urls else ""


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
