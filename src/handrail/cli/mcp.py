"""`handrail mcp`: a coding agent that speaks MCP joins as a worker, over stdio or over HTTP."""

import asyncio
import os
from importlib.util import find_spec
from typing import NamedTuple

from handrail.cli.database import WRONG_INPUT, InputError, complain, settings
from handrail.client.clients import TOKEN_VARIABLE
from handrail.client.talk import addresses
from handrail.server.logs import written

PORT = 8090


class Wanted(NamedTuple):
    """The command's options."""

    server: str = ""
    http: bool = False
    host: str = "127.0.0.1"
    port: int = PORT
    silence: float = 900.0


def serve_mcp(wanted: Wanted) -> int:
    """Serves until its input ends, or, over HTTP, until it is told to; the exit code."""
    try:
        _look_for_sdk()
        found = settings()
        url = ",".join(addresses(wanted.server or found["server"]))
        token = os.environ.get(TOKEN_VARIABLE, "")
        if not wanted.http and not token:
            told = f"{TOKEN_VARIABLE} is not set, and says which agent this is"
            raise InputError(f"{told}; make one: handrail token create --role agent --agent ID")
        with written(found.server.log_level, found.server.log_format):
            return _serve(wanted, url, token)
    except (InputError, ValueError) as error:
        complain("mcp", error)
        return WRONG_INPUT


def _look_for_sdk() -> None:
    if find_spec("mcp") is None:
        raise InputError("the MCP SDK is not installed; install it: pip install 'handrail[mcp]'")


def _serve(wanted: Wanted, url: str, token: str) -> int:
    from handrail.mcp.serving import CannotListen, over_http, over_stdio

    if not wanted.http:
        asyncio.run(over_stdio(url, token, silence=wanted.silence))
        return 0

    def ready(address: str) -> None:
        print(f"Handrail speaks MCP at {address}", flush=True)

    try:
        asyncio.run(
            over_http(url, host=wanted.host, port=wanted.port, silence=wanted.silence, ready=ready)
        )
    except CannotListen as error:
        raise InputError(str(error)) from error
    return 0
