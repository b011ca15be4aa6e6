"""Somebody outside who is told things: a small HTTP server on loopback that answers as a test says.

It is a server of its own, on a real socket, so that what arrives is what was sent.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec


class ReceivedRequest(msgspec.Struct):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def told(self) -> dict[str, Any]:
        return msgspec.json.decode(self.body)


class Receiver:
    """`status` is what it answers next; `raw` a whole answer instead; `hangs` none at all. One that
    `stays` leaves the connection open for more, until the other side closes it."""

    def __init__(self) -> None:
        self.received: list[ReceivedRequest] = []
        self.status = 204
        self.raw = b""
        self.hangs = self.stays = False
        self.url = ""
        self._answering: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Receiver"]:
        server = await asyncio.start_server(self._met, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}/hook"
        try:
            yield self
        finally:
            server.close()
            for task in self._answering:
                task.cancel()
            await asyncio.gather(*self._answering, return_exceptions=True)

    def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._answer(reader, writer))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        # Whether or not the rest was taken, and also if it was cancelled before it began.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            fields = (line.partition(": ") for line in head[1:] if line)
            headers = {name.lower(): value for name, _, value in fields}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.received.append(ReceivedRequest(head[0].split(" ")[1], headers, body))
            if self.hangs:
                await reader.read()  # until the other side gives up
            plain = f"HTTP/1.1 {self.status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            writer.write(self.raw or plain.encode())
            if self.stays:
                await reader.read()
            writer.close()
            await writer.wait_closed()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass

    @property
    def kinds(self) -> list[str]:
        return [one.told["type"] for one in self.received]
