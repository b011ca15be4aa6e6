"""A connection to a server under test that can be read piece by piece, and cut at any moment."""

import asyncio
from typing import Any

from tests.engine.engines import PATIENCE

from handrail.api.operation import API_PREFIX
from handrail.server.app import ServerApp

CHUNKS_MAX = 2
"""What lies between the two sides unread: then the server has to wait."""


class RawConnection:
    """One request. It is under way from the start; `cut` closes the connection."""

    def __init__(
        self,
        served: ServerApp,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes = b"",
    ) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.sent = 0
        """Pieces that the server could send."""
        self._body: bytes | None = body
        self._gone, self._started = asyncio.Event(), asyncio.Event()
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(CHUNKS_MAX)
        where, _, query = path.partition("?")
        scope: Any = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": API_PREFIX + where,
            "raw_path": (API_PREFIX + where).encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), one.encode()) for name, one in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        self.task = asyncio.ensure_future(served.asgi(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): one.decode() for name, one in message["headers"]}
            self._started.set()
            return
        if message["body"]:
            await self._put(message["body"])
            self.sent += 1
        if not message.get("more_body"):
            await self._put(b"")

    async def _put(self, chunk: bytes) -> None:
        """What is sent to nobody is sent."""
        gone = asyncio.ensure_future(self._gone.wait())
        put = asyncio.ensure_future(self._chunks.put(chunk))
        try:
            await asyncio.wait((gone, put), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            put.cancel()

    async def answered(self) -> int:
        """The status, once it is known."""
        await asyncio.wait_for(self._started.wait(), PATIENCE)
        return self.status

    async def read(self) -> bytes:
        """The next piece; empty at the end."""
        return await asyncio.wait_for(self._chunks.get(), PATIENCE)

    async def rest(self) -> bytes:
        """All that is left, once the server ends it."""
        found = b""
        while chunk := await self.read():
            found += chunk
        await self.task
        return found

    async def cut(self) -> None:
        """The reader is gone; returns when the server has noticed."""
        self._gone.set()
        await asyncio.wait_for(self.task, PATIENCE)
