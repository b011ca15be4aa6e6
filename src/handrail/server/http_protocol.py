"""uvicorn's HTTP protocol, with bounds on what one connection may cost the server.

Rules
1. The head of a request is bounded in size and time, its body in time, for every caller: the caller
   is unknown before the head is complete. Trailers after the body are counted like a head, and
   dropped: they cannot authenticate.
2. A client must read its response, which is in memory until then: SENT_BYTES_MIN must go out in
   STALL_SECONDS_MAX, else the connection is cut.
3. The number of connections is bounded. A connection beyond the bound gets a 503, and no other
   does: uvicorn would also refuse requests on existing connections.
4. Few requests wait behind the current one: uvicorn would queue everything that is sent.
5. When a connection closes, all of its open requests are notified: uvicorn would notify only the
   last, and the others would wait for ever.
"""

from asyncio import TimerHandle, Transport
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

HEAD_BYTES_MAX = 64 * 1024
"""One read of the socket may exceed it."""
PIPELINED_MAX = 100
"""Requests sent before the previous one was answered."""
PART_NONE, PART_HEAD, PART_BODY = range(3)
TOO_MANY_CONNECTIONS_RESPONSE = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\n"
    b"content-type: application/problem+json\r\ncontent-length: 92\r\n\r\n"
    b'{"type":"about:blank","title":"Too many connections","status":503,"detail":"try again soon"}'
)
PART_SECONDS_MAX = {PART_HEAD: 30.0, PART_BODY: 300.0}
"""How long each part of a request may take. uvicorn itself bounds the idle time between
requests."""
STALL_SECONDS_MAX = 60.0
SENT_BYTES_MIN = 16 * 1024


class TooManyPipelinedError(Exception):
    """The client pipelined too many requests; the connection is closed."""


class BoundedHTTPProtocol(HttpToolsProtocol):
    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as uvicorn's
        super().__init__(*args, **kwargs)
        self._connections_max, self.limit_concurrency = self.limit_concurrency, None
        self._part, self._head_bytes = PART_HEAD, 0
        self._made_progress = False
        """Whether this read of the socket contained the end of a head, or a part of a body."""
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

    # Receiving a request

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._part == PART_NONE and (not self.cycle or self.cycle.response_complete):
            self._part = PART_HEAD  # empty lines before a request would keep it open for ever
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
            raise TooManyPipelinedError  # the parser stops, and uvicorn closes the connection
        super().on_message_begin()
        self._part, self._head_bytes = PART_HEAD, 0
        self._restart_part_timer(PART_NONE)  # each head has its own timeout

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
        """Time the part that is awaited now; most requests arrive whole, and need no timer."""
        if self._part_timer is not None:
            self._part_timer.cancel()
            self._part_timer = None
        self._timed_part = part
        if part in PART_SECONDS_MAX:
            self._part_timer = self.loop.call_later(PART_SECONDS_MAX[part], self.transport.abort)

    # Sending a response

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.pipeline:  # uvicorn would read on, however many are queued
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
