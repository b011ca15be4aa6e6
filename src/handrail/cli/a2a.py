"""`handrail a2a`: definitions as agents that others reach by A2A, until it is told to end."""

import asyncio
import ipaddress
from typing import NamedTuple

from handrail.a2a.door import Door
from handrail.cli.database import WRONG_INPUT, InputError, complain, settings
from handrail.cli.listening import Listening
from handrail.client.talk import addresses
from handrail.server.logs import written


class Wanted(NamedTuple):
    """The command's options."""

    server: str = ""
    url: str = ""
    host: str = "127.0.0.1"
    port: int = 8091


def serve_a2a(wanted: Wanted) -> int:
    """Serves until SIGTERM or SIGINT; the exit code."""
    try:
        found = settings()
        server = ",".join(addresses(wanted.server or found["server"]))
        door = Door(server, _public(wanted))
        with written(found.server.log_level, found.server.log_format):
            asyncio.run(_listen(door, wanted))
        return 0
    except (InputError, ValueError) as error:
        complain("a2a", error)
        return WRONG_INPUT


def _public(wanted: Wanted) -> str:
    """Where others reach it; "" if that is where it listens."""
    given = addresses(wanted.url)
    if len(given) > 1:
        raise InputError("--url names more than one address; cards have one, so give one")
    if not given and _is_everywhere(wanted.host):
        told = f"{wanted.host} is no address that others could be told"
        raise InputError(f"{told}; say with --url where they reach it")
    return given[0] if given else ""


def _is_everywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


async def _listen(door: Door, wanted: Wanted) -> None:
    def ready(address: str) -> None:
        door.url = door.url or address
        print(f"Handrail speaks A2A at {door.url}/DEFINITION", flush=True)

    await Listening(door, wanted.host, wanted.port, ready).listen()
