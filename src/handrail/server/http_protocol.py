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
PART_NONE, PART_HEAD, PART_BODY = range(3)
TOO_MANY_CONNECTIONS_RESPONSE = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\n"
    b"content-type: application/problem+json\r\ncontent-length: 92\r\n\r\n"
    b'{"type":"about:blank","title":"Too many connections","status":503,"detail":"try again soon"}'
)
PART_SECONDS_MAX = {PART_HEAD: 30.0, PART_BODY: 300.0}
"""How long each part of a request may take. Between requests a connection is idle, which uvicorn
bounds by itself."""
STALL_SECONDS_MAX = 60.0
SENT_BYTES_MIN = 16 * 1024


class TooManyPipelinedError(Exception):
    """So many requests were sent ahead that the connection is closed."""


class BoundedHTTPProtocol(HttpToolsProtocol):
    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as uvicorn's
        super().__init__(*args, **kwargs)
        self._connections_max, self.limit_concurrency = self.limit_concurrency, None
        self._part, self._head_bytes = PART_HEAD, 0
        self._made_progress = False
        """Whether this read of the socket brought the end of a head, or some of a body."""
        self._timed_part = PART_NONE
        self._part_timer: TimerHandle | None = None
        self._stall_timer: TimerHandle | None = None
        self._open_cycles: list[RequestResponseCycle] = []

    def connection_made(self, transport: Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - as uvicorn's
        super().connection_made(transport)
        if self._connections_max is not None and len(self.connections) > self._connections_max:
            transport.write(TOO_MANY_CONNECTIONS_RESPONSE)
            transport.close()
            return
        self._restart_part_timer(PART_HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        self._restart_part_timer(PART_NONE)
        self._cancel_stall_timer()
        for cycle in self._open_cycles:
            cycle.disconnected = cycle.disconnected or not cycle.response_complete
            cycle.message_event.set()
        super().connection_lost(exc)

    # A request on its way in

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._part == PART_NONE and (not self.cycle or self.cycle.response_complete):
            self._part = (
                PART_HEAD  # empty lines before a request, which would keep it open for ever
            )
        if self._part != PART_NONE:
            self._head_bytes = self._head_bytes + len(data) if not self._made_progress else 0
            self._made_progress = False
            if self._head_bytes > HEAD_BYTES_MAX:
                self.send_400_response("The head of the request is too large.")
                return
        if self._part != self._timed_part:
            self._restart_part_timer(self._part)

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= PIPELINED_MAX:
            raise TooManyPipelinedError  # the parser stops, and uvicorn hangs up
        super().on_message_begin()
        self._part, self._head_bytes = PART_HEAD, 0
        self._restart_part_timer(PART_NONE)  # each head has its own time

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._part, self._made_progress = PART_BODY, True
        self._open_cycles = [cycle for cycle in self._open_cycles if not cycle.response_complete]
        self._open_cycles.append(self.cycle)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._part == PART_HEAD:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._made_progress = True

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._part = PART_NONE

    def _restart_part_timer(self, part: int) -> None:
        """What is awaited now has its time; most requests come whole, and need no clock."""
        if self._part_timer is not None:
            self._part_timer.cancel()
            self._part_timer = None
        self._timed_part = part
        if part in PART_SECONDS_MAX:
            self._part_timer = self.loop.call_later(PART_SECONDS_MAX[part], self.transport.abort)

    # An answer on its way out

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.pipeline:  # uvicorn reads on, whatever waits already
            self.flow.pause_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_stall_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_stall_timer()

    def _start_stall_timer(self) -> None:
        buffered = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(STALL_SECONDS_MAX, self._check_stall, buffered)

    def _check_stall(self, buffered_before: int) -> None:
        if buffered_before - self.transport.get_write_buffer_size() < SENT_BYTES_MIN:
            self.transport.abort()
        else:
            self._start_stall_timer()

    def _cancel_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
