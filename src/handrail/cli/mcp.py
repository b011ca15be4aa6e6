"""`handrail mcp`: a coding agent that speaks MCP joins as a worker, over stdio or over HTTP."""

import asyncio
import os
from importlib.util import find_spec
from typing import NamedTuple

from handrail.cli.database import WRONG_INPUT, InputError, complain, settings
from handrail.cli.listening import Listening
from handrail.client.clients import TOKEN_VARIABLE
from handrail.client.talk import addresses
from handrail.engine.extras import install
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
            asyncio.run(_serve(wanted, url, token))
        return 0
    except (InputError, ValueError) as error:
        complain("mcp", error)
        return WRONG_INPUT


def _look_for_sdk() -> None:
    if find_spec("mcp") is None:
        raise InputError(f"the MCP SDK is not installed; {install('mcp')}")


async def _serve(wanted: Wanted, url: str, token: str) -> None:
    from handrail.mcp.seats import Seats
    from handrail.mcp.serving import PATH, http_app, over_stdio

    def ready(address: str) -> None:
        print(f"Handrail speaks MCP at {address}{PATH}", flush=True)

    async with Seats(url, silence=wanted.silence) as seats:
        if not wanted.http:
            await over_stdio(seats, token)
            return
        app = http_app(seats, wanted.host)
        await Listening(app, wanted.host, wanted.port, ready, lifespan="on").listen()
