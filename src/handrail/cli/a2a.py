"""`handrail a2a`: definitions as agents that others reach by A2A, until it is told to end."""

import asyncio
import ipaddress
import signal
import socket
from typing import NamedTuple

import uvicorn

from handrail.a2a.door import Door
from handrail.cli.database import WRONG_INPUT, InputError, complain, settings
from handrail.client.talk import addresses
from handrail.server.connection import Connection
from handrail.server.logs import written
from handrail.server.serve import Listener

CONNECTIONS_MAX = 1_000
CLOSE_SECONDS = 3
SIGNALS = (signal.SIGTERM, signal.SIGINT)


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
    config = uvicorn.Config(
        door,
        host=wanted.host,
        port=wanted.port,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=CLOSE_SECONDS,
    )
    await _Listening(config, door).listen()


class _Listening(Listener):
    def __init__(self, config: uvicorn.Config, door: Door) -> None:
        super().__init__(config)
        self.door = door

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._end)
        try:
            await self._serve()
        except SystemExit as error:  # uvicorn's way to say that it cannot listen
            told = f"port {self.config.port} on {self.config.host} cannot be listened on"
            raise InputError(f"{told}; take another --port") from error
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    def _end(self) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Nobody is answered before the cards know where they are."""
        await super().startup(sockets)
        if self.started:
            name, number = self.servers[0].sockets[0].getsockname()[:2]
            here = f"http://{f'[{name}]' if ':' in name else name}:{number}"
            self.door.url = self.door.url or here
            print(f"Handrail speaks A2A at {self.door.url}/DEFINITION", flush=True)
