"""Events as they happen: server-sent events, read on across breaks. No I/O here.

Like a conversation (`talk.py`), following a stream is a generator that says what to do next: `Open`
the stream, `Read` from it, `Pause`; `Found` is an event for whoever follows.

Rules
1. Every opening after the first says where it was (`Last-Event-ID`), to whichever server it goes;
   what was seen is not shown again.
2. An event is seen when all of it has come, with the empty line that ends it.
3. A stream that is silent for too long is taken for broken: the server says something all the time.
4. It is opened again while somebody answers within `patience` seconds; after that it is given up.
"""

from collections.abc import Generator, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from handrail.client.call import Call
from handrail.client.errors import error_of, unreachable, unreadable
from handrail.client.talk import (
    AGAIN,
    Broken,
    Came,
    Manners,
    Pause,
    Reply,
    Send,
    Servers,
    headers_of,
    pause,
    request,
)
from handrail.kernel.decision import Value, learn

SILENCE_SECONDS = 60.0
FRAME_BYTES_MAX = 64_000_000
OPENED, NO_MORE = 200, 204
"""The second is the answer to somebody who has seen everything that there will ever be."""
LAST = "ended"
"""The type of a run's last event."""


class Event(Value):
    """Something that happened. `data` is all of it, as the history has it."""

    id: str
    """Where it stands in the stream: go on after it with `after`."""
    type: str
    at: datetime
    execution_id: str = ""
    """Empty for what happens to no run: see `stream` in the data."""
    seq: int = 0
    actor: str = ""
    data: dict[str, Any] = {}


learn(Event)


class Open(NamedTuple):
    send: Send


class Read(NamedTuple):
    """The next bytes; none at the end of the stream."""


class Found(NamedTuple):
    event: Event


Step = Open | Read | Pause | Found
Following = Generator[Step, Came | bytes, None]


class Frame(NamedTuple):
    """One event as it stands in the stream."""

    id: str
    event: str
    data: str


class Frames:
    """Bytes in, whole frames out; a comment alone is one without data."""

    def __init__(self) -> None:
        self._rest = b""
        self._lines: list[str] = []
        self._id = ""
        self.size = 0
        """Bytes of the frame that is not whole yet."""

    def take(self, chunk: bytes) -> Iterator[Frame]:
        self.size += len(chunk)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            text = line.removesuffix(b"\r").decode(errors="replace")
            if text:
                self._lines.append(text)
            elif self._lines:
                yield self._frame()
                self._lines, self.size = [], len(self._rest)

    def _frame(self) -> Frame:
        fields: dict[str, list[str]] = {}
        for line in self._lines:
            name, _, value = line.partition(":")
            fields.setdefault(name, []).append(value.removeprefix(" "))
        self._id = fields.get("id", [self._id])[-1]
        return Frame(self._id, fields.get("event", [""])[-1], "\n".join(fields.get("data", [])))


class Stream(NamedTuple):
    """Which events are followed: those after that one; the last one is known by its type."""

    call: Call[None]
    after: str
    last: str = ""


def following(wanted: Stream, servers: Servers, manners: Manners) -> Following:
    """Every event, until there will be no more: the server says so, or it was the last one."""
    call, seen = wanted.call, Seen(wanted)
    tries, until = 0, manners.clock() + manners.patience
    while True:
        address = servers.current
        came = yield Open(request(call, address, seen.headers(manners.token)))
        if isinstance(came, Reply) and came.status == OPENED:
            at = seen.after
            came = yield from _reading(seen)
            if seen.over:
                return
            until = manners.clock() + manners.patience
            tries = 0 if seen.after != at else tries
        elif isinstance(came, Reply) and came.status not in AGAIN:
            if came.status == NO_MORE:
                return
            raise error_of(str(call), came.status, came.body)
        assert not isinstance(came, bytes), "nothing is read of a stream that is not open"
        servers.failed(address)
        tries += 1
        seconds = pause(tries, servers, came, manners.chance)
        if manners.clock() + seconds > until:
            reason = came.reason if isinstance(came, Broken) else "it answers that it cannot now"
            raise unreachable(str(call), servers.addresses, reason, tries)
        yield Pause(seconds)


class Seen:
    """How far a stream was followed."""

    def __init__(self, wanted: Stream) -> None:
        self.call, self.after, self.last = wanted.call, wanted.after, wanted.last
        self.over = False

    def headers(self, token: str) -> dict[str, str]:
        return headers_of(self.call, token) | ({"Last-Event-ID": self.after} if self.after else {})

    def take(self, frame: Frame) -> Event | None:
        """The event, unless it was seen before, or only says where the stream is."""
        if frame.id == self.after or not frame.data:
            self.after = frame.id or self.after
            return None
        try:
            event = _event(frame)
        except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
            raise unreadable(str(self.call), OPENED, wrong) from wrong
        self.after, self.over = event.id, event.type == self.last
        return event


def _reading(seen: Seen) -> Generator[Step, Came | bytes, Broken | None]:
    """What one opening of the stream gives."""
    frames = Frames()
    while True:
        chunk = yield Read()
        if not isinstance(chunk, bytes):
            assert not isinstance(chunk, Reply), "it was opened"
            return chunk
        for frame in frames.take(chunk):
            event = seen.take(frame)
            if event is not None:
                yield Found(event)
            if seen.over:
                return None
        if frames.size > FRAME_BYTES_MAX:
            raise unreadable(str(seen.call), OPENED, f"an event has more than {frames.size} bytes")
        if not chunk:
            return None


def _event(frame: Frame) -> Event:
    data = msgspec.json.decode(frame.data, type=dict[str, Any])
    named = {name: data[name] for name in ("execution_id", "seq", "at", "actor") if name in data}
    kind = frame.event or data.get("type", "")
    return msgspec.convert({"id": frame.id, "type": kind, **named, "data": data}, Event)
