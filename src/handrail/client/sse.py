"""Server-sent events, followed across broken connections. No I/O here.

Like a call (`retry.py`), following a stream is a generator that yields the next step: `OpenStream`,
`ReadChunk`, `Backoff`; `EventReceived` carries an event to the caller.

Rules
1. Every reopening sends the last position (`Last-Event-ID`), to whichever server it goes; the
   caller sees no event twice.
2. An event counts as seen when it is complete, with the empty line that ends it.
3. A stream that is silent for too long counts as broken: the server always sends something.
4. The stream is reopened while a server answers within `patience` seconds; after that it fails.
"""

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from handrail.api.operation import Call, EventStream
from handrail.api.runs import LAST_EVENT_ID_HEADER, StreamEvent
from handrail.client.errors import error_from_response, unreachable_error, unreadable_response
from handrail.client.retry import (
    RETRY_STATUSES,
    AttemptOutcome,
    Backoff,
    RawResponse,
    RetryPolicy,
    SendRequest,
    ServerAddresses,
    TransportFailure,
    backoff_seconds,
    build_headers,
    build_request,
)
from handrail.kernel.decision import prepare_types

SILENCE_SECONDS_MAX = 60.0
FRAME_BYTES_MAX = 64_000_000
STATUS_OK, STATUS_NO_MORE_EVENTS = 200, 204
"""204: the client has seen the last event of the stream."""


prepare_types(StreamEvent)


class OpenStream(NamedTuple):
    request: SendRequest


class ReadChunk(NamedTuple):
    """Read the next bytes; no bytes mean the end of the stream."""


class EventReceived(NamedTuple):
    event: StreamEvent


StreamStep = OpenStream | ReadChunk | Backoff | EventReceived
StreamSteps = Generator[StreamStep, AttemptOutcome | bytes, None]


class SSEFrame(NamedTuple):
    """One event as encoded in the stream."""

    id: str
    event: str
    data: str


class SSEParser:
    """Parses bytes into complete frames; a comment alone is a frame without data."""

    def __init__(self) -> None:
        self._partial_line = b""
        self._lines: list[str] = []
        self._id = ""
        self.pending_bytes = 0
        """Bytes of the incomplete frame."""

    def feed(self, chunk: bytes) -> Iterator[SSEFrame]:
        self.pending_bytes += len(chunk)
        *lines, self._partial_line = (self._partial_line + chunk).split(b"\n")
        for line in lines:
            text = line.removesuffix(b"\r").decode(errors="replace")
            if text:
                self._lines.append(text)
            elif self._lines:
                yield self._frame()
                self._lines, self.pending_bytes = [], len(self._partial_line)

    def _frame(self) -> SSEFrame:
        fields: dict[str, list[str]] = {}
        for line in self._lines:
            name, _, value = line.partition(":")
            fields.setdefault(name, []).append(value.removeprefix(" "))
        self._id = fields.get("id", [self._id])[-1]
        return SSEFrame(self._id, fields.get("event", [""])[-1], "\n".join(fields.get("data", [])))


def follow_stream(
    call: Call[StreamEvent], servers: ServerAddresses, retry_policy: RetryPolicy
) -> StreamSteps:
    """Yield the steps to every event, until the last one, or until the server says 204."""
    position = StreamPosition(call)
    call = position.call
    tries, deadline = 0, retry_policy.clock() + retry_policy.patience_seconds
    while True:
        address = servers.current
        outcome = yield OpenStream(
            build_request(call, address, position.headers(retry_policy.token))
        )
        if isinstance(outcome, RawResponse) and outcome.status == STATUS_OK:
            position_before = position.after
            outcome = yield from _read_stream(position)
            if position.is_over:
                return
            deadline = retry_policy.clock() + retry_policy.patience_seconds
            tries = 0 if position.after != position_before else tries
        elif isinstance(outcome, RawResponse) and outcome.status not in RETRY_STATUSES:
            if outcome.status == STATUS_NO_MORE_EVENTS:
                return
            raise error_from_response(str(call), outcome.status, outcome.body)
        assert not isinstance(outcome, bytes), "nothing is read of a stream that is not open"
        servers.mark_failed(address)
        tries += 1
        seconds = backoff_seconds(tries, servers, outcome, retry_policy.jitter)
        if retry_policy.clock() + seconds > deadline:
            reason = (
                outcome.reason
                if isinstance(outcome, TransportFailure)
                else "it answers that it cannot now"
            )
            raise unreachable_error(str(call), servers.addresses, reason, tries)
        yield Backoff(seconds)


class StreamPosition:
    """How far a stream has been followed."""

    def __init__(self, call: Call[StreamEvent]) -> None:
        assert isinstance(call.operation, EventStream), "an operation with events"
        self.call, self.last_type = replace(call, query={}), call.operation.last_type
        self.after = call.query.get("after", "")
        self.is_over = False

    def headers(self, token: str) -> dict[str, str]:
        return build_headers(self.call, token) | (
            {LAST_EVENT_ID_HEADER: self.after} if self.after else {}
        )

    def accept(self, frame: SSEFrame) -> StreamEvent | None:
        """Return the event, unless it was seen before or the frame only holds a position."""
        if frame.id == self.after or not frame.data:
            self.after = frame.id or self.after
            return None
        try:
            event = _decode_event(frame)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise unreadable_response(str(self.call), STATUS_OK, error) from error
        self.after, self.is_over = event.id, event.type == self.last_type
        return event


def _read_stream(
    position: StreamPosition,
) -> Generator[StreamStep, AttemptOutcome | bytes, TransportFailure | None]:
    """Read one open stream; return the failure that ended it, if any."""
    parser = SSEParser()
    while True:
        chunk = yield ReadChunk()
        if not isinstance(chunk, bytes):
            assert not isinstance(chunk, RawResponse), "it was opened"
            return chunk
        for frame in parser.feed(chunk):
            event = position.accept(frame)
            if event is not None:
                yield EventReceived(event)
            if position.is_over:
                return None
        if parser.pending_bytes > FRAME_BYTES_MAX:
            raise unreadable_response(
                str(position.call),
                STATUS_OK,
                f"an event has more than {parser.pending_bytes} bytes",
            )
        if not chunk:
            return None


def _decode_event(frame: SSEFrame) -> StreamEvent:
    data = msgspec.json.decode(frame.data, type=dict[str, Any])
    known_fields = {
        name: data[name] for name in ("execution_id", "seq", "at", "actor") if name in data
    }
    kind = frame.event or data.get("type", "")
    return msgspec.convert(
        {"id": frame.id, "type": kind, **known_fields, "data": data}, StreamEvent
    )
