"""`handrail mcp`: a coding agent that speaks MCP joins as a worker, over stdio or over HTTP."""

import asyncio
import os
from importlib.util import find_spec
from typing import NamedTuple

from handrail.cli.asgi import AsgiServer
from handrail.cli.database import EXIT_WRONG_INPUT, InputError, load_settings, print_error
from handrail.client.clients import TOKEN_VARIABLE
from handrail.client.retry import parse_addresses
from handrail.engine.install_hints import install_hint
from handrail.server.logs import capture_logs

PORT_DEFAULT = 8090


class McpOptions(NamedTuple):
    """The command's options."""

    server: str = ""
    http: bool = False
    host: str = "127.0.0.1"
    port: int = PORT_DEFAULT
    silence_seconds: float = 900.0


def serve_mcp(options: McpOptions) -> int:
    """Serve until the input ends, or, over HTTP, until a signal; return the exit code."""
    try:
        _require_sdk()
        configuration = load_settings()
        url = ",".join(parse_addresses(options.server or configuration["server"]))
        token = os.environ.get(TOKEN_VARIABLE, "")
        if not options.http and not token:
            message = f"{TOKEN_VARIABLE} is not set, and says which agent this is"
            raise InputError(f"{message}; make one: handrail token create --role agent --agent ID")
        with capture_logs(configuration.server.log_level, configuration.server.log_format):
            asyncio.run(_serve(options, url, token))
        return 0
    except (InputError, ValueError) as error:
        print_error("mcp", error)
        return EXIT_WRONG_INPUT


def _require_sdk() -> None:
    if find_spec("mcp") is None:
        raise InputError(f"the MCP SDK is not installed; {install_hint('mcp')}")


async def _serve(options: McpOptions, url: str, token: str) -> None:
    from handrail.mcp.agent_sessions import AgentSessions
    from handrail.mcp.server import PATH, make_http_app, serve_stdio

    def ready(address: str) -> None:
        print(f"Handrail speaks MCP at {address}{PATH}", flush=True)

    async with AgentSessions(url, silence_seconds=options.silence_seconds) as sessions:
        if not options.http:
            await serve_stdio(sessions, token)
            return
        app = make_http_app(sessions, options.host)
        await AsgiServer(app, options.host, options.port, ready, lifespan="on").listen()
