"""A connection, so that none costs the server more than it should: uvicorn's, with bounds.

Rules
1. The head of a request is small, and there soon; so is its body, whoever sends it. Nothing is
   known of a caller before the head is complete. What stands behind the body is counted like a
   head, and dropped: nobody is let in by it.
2. Whoever asked takes the answer. It lies in memory until then, and so much of it has to go out in
   STALL_SECONDS, else the connection is cut.
3. There are so many at once. Whoever comes then is told so, and nobody else: uvicorn would refuse
   those who are there already, too.
4. Few requests wait behind the one that is answered: uvicorn would queue whatever is sent.
5. When it is closed, every request on it hears that, also one that others were sent behind: uvicorn
   would tell the last one alone, and the others would wait for nobody.
"""

from asyncio import TimerHandle, Transport
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

HEAD_BYTES_MAX = 64 * 1024
"""What comes with one read of the socket is taken all the same."""
PIPELINED_MAX = 100
"""Requests that were sent before the one in front of them was answered."""
NOTHING, HEAD, BODY = range(3)
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\n"
    b"content-type: application/problem+json\r\ncontent-length: 92\r\n\r\n"
    b'{"type":"about:blank","title":"Too many connections","status":503,"detail":"try again soon"}'
)
SECONDS = {HEAD: 30.0, BODY: 300.0}
"""How long each part of a request may take. Between requests a connection is idle, which uvicorn
bounds by itself."""
STALL_SECONDS = 60.0
TAKEN_BYTES_MIN = 16 * 1024


class TooManyPipelined(Exception):  # noqa: N818 - an answer, not a mistake of the program
    """So many requests were sent ahead that the connection is closed."""


class Connection(HttpToolsProtocol):
    def __init__(self, *given: Any, **more: Any) -> None:  # noqa: ANN401 - as uvicorn's
        super().__init__(*given, **more)
        self._most, self.limit_concurrency = self.limit_concurrency, None
        self._part, self._size = HEAD, 0
        self._grew = False
        """Whether this read of the socket brought the end of a head, or some of a body."""
        self._awaited = NOTHING
        self._late: TimerHandle | None = None
        self._stalled: TimerHandle | None = None
        self._asked: list[RequestResponseCycle] = []

    def connection_made(self, transport: Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - as uvicorn's
        super().connection_made(transport)
        if self._most is not None and len(self.connections) > self._most:
            transport.write(FULL)
            transport.close()
            return
        self._awaits(HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        self._awaits(NOTHING)
        self._took()
        for cycle in self._asked:
            cycle.disconnected = cycle.disconnected or not cycle.response_complete
            cycle.message_event.set()
        super().connection_lost(exc)

    # A request on its way in

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._part == NOTHING and (not self.cycle or self.cycle.response_complete):
            self._part = HEAD  # empty lines before a request, which would keep it open for ever
        if self._part != NOTHING:
            self._size = self._size + len(data) if not self._grew else 0
            self._grew = False
            if self._size > HEAD_BYTES_MAX:
                self.send_400_response("The head of the request is too large.")
                return
        if self._part != self._awaited:
            self._awaits(self._part)

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= PIPELINED_MAX:
            raise TooManyPipelined  # the parser stops, and uvicorn hangs up
        super().on_message_begin()
        self._part, self._size = HEAD, 0
        self._awaits(NOTHING)  # each head has its own time

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._part, self._grew = BODY, True
        self._asked = [one for one in self._asked if not one.response_complete]
        self._asked.append(self.cycle)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._part == HEAD:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._grew = True

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._part = NOTHING

    def _awaits(self, part: int) -> None:
        """What is awaited now has its time; most requests come whole, and need no clock."""
        if self._late is not None:
            self._late.cancel()
            self._late = None
        self._awaited = part
        if part in SECONDS:
            self._late = self.loop.call_later(SECONDS[part], self.transport.abort)

    # An answer on its way out

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.pipeline:  # uvicorn reads on, whatever waits already
            self.flow.pause_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._took()

    def _watch(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._stalled = self.loop.call_later(STALL_SECONDS, self._has_taken, left)

    def _has_taken(self, before: int) -> None:
        if before - self.transport.get_write_buffer_size() < TAKEN_BYTES_MIN:
            self.transport.abort()
        else:
            self._watch()

    def _took(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
