"""A connection that speaks just enough HTTP/1.1 to ask and to hear the answer.

The load shares two cores with the server, and a real HTTP client would take most of them; this one
costs every server the same and little.
"""

import asyncio
import json
from typing import Any

CLOSED = b""


class Wire:
    """One kept-alive connection; one request at a time."""

    def __init__(self, host: str, port: int, token: str = "") -> None:
        self.host, self.port = host, port
        self._head = f"Host: {host}\r\nContent-Type: application/json\r\n"
        self._head += f"Authorization: Bearer {token}\r\n" if token else ""
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        if self._writer is None or self._reader is None:
            self._reader, self._writer = await asyncio.open_connection(self.host, self.port)
        sent = json.dumps(body).encode() if body is not None else b""
        head = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: {len(sent)}\r\n\r\n"
        self._writer.write(head.encode() + sent)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        status = int(answer[9:12])
        length = next(
            (
                int(line[15:])
                for line in answer.split(b"\r\n")
                if line[:15].lower() == b"content-length:"
            ),
            0,
        )
        held = await self._reader.readexactly(length) if length else CLOSED
        return status, json.loads(held) if held else None

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
