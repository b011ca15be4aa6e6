"""`handrail mcp`: a coding agent that speaks MCP joins as a worker, over stdio or over HTTP."""

import os
from importlib.util import find_spec
from typing import Annotated

import typer

from handrail.cli.command import TOKEN_VARIABLE, InputError, as_input_error
from handrail.cli.database import load_settings
from handrail.cli.options import Server
from handrail.engine.install_hints import install_hint


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
            message = f"{TOKEN_VARIABLE} is not set, but identifies the agent"
            raise InputError(
                f"{message}; create one: handrail token create --role agent --agent ID"
            )
        with capture_logs(configuration.server.log_level, configuration.server.log_format):
            asyncio.run(_serve(url, token, (host, port) if http else None, silence))


async def _serve(
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
        app = make_http_app(sessions, http_address[0])
        await AsgiServer(app, *http_address, ready, lifespan="on").listen()
