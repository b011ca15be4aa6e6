"""Takes errors from requests and sends them on, from a thread of its own.

Rules
1. A request never waits: it leaves a note, without formatting anything and without I/O. A failure
   in here is counted and nothing else; no request ever sees it.
2. Notes are bounded. The same error, by type and place, is one note with a count; beyond
   PENDING_MAX different ones an error is dropped, and counted (`dropped`).
3. What is sent: type, message and traceback of the error, method, the path without its query,
   status, service, release, count. Texts go through `engine/scrub.py` first. Headers, cookies,
   query, body and the variables of frames are never even read.
4. A signature is sent at once when it is new, then at most every AGAIN_SECONDS with what was
   counted meanwhile; all together at most SENT_A_MINUTE. What cannot be sent is tried TRIES_MAX
   times.
5. What the caller did wrong is no bug: exceptions that carry a status below 500, and connections
   that the caller closed.

The thread begins with the first error of a process, so one that forks has one in each child.
"""

import atexit
import contextlib
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from traceback import TracebackException
from types import TracebackType
from typing import cast

from msgspec.structs import replace

from handrail.engine.bugs import COUNT_MAX, NAME_CHARS, ErrorReport, signature_of
from handrail.engine.scrub import scrubbed

PENDING_MAX = 200
SIGNATURES_MAX = 1_000
AGAIN_SECONDS = 60.0
SENT_A_MINUTE = 60
TRIES_MAX = 5
LOOK_SECONDS = 0.5
FRAMES_MAX = 50
RELATED_MAX = 50
"""Errors that one came from, or holds; with more of them it is told alone."""
CLOSE_SECONDS = 2.0
CALLERS = frozenset({"ClientDisconnect", "ClientDisconnected", "ConnectionResetError"})
CALLERS_TOO = frozenset({"BrokenPipeError", "ConnectionAbortedError"})
"""Errors that say that the caller has gone."""

Send = Callable[[ErrorReport], object]
Key = tuple[object, ...]


class Note:
    """An error as a request left it. `count` is how often it came since it was last sent."""

    __slots__ = ("count", "error", "method", "path", "report", "signature", "status", "tries")

    def __init__(
        self, error: TracebackException | None, method: str, path: str, status: int
    ) -> None:
        self.error, self.method, self.path, self.status = error, method, path, status
        self.count, self.tries, self.signature = 1, 0, ""
        self.report: ErrorReport | None = None
        """Made on the reporter's thread, once."""


class Reporter:
    """`send` hands a report on (`senders.py`). `routing` are pairs of a pattern for the type of the
    error and the role of the specialist, looked at before the engine's own table."""

    def __init__(
        self,
        send: Send,
        *,
        service: str,
        release: str = "",
        routing: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.service, self.release, self.routing = service[:NAME_CHARS], release, tuple(routing)
        self.sent = self.dropped = self.failed = 0
        self._send = send
        self._lock = threading.Lock()
        self._notes: dict[Key, Note] = {}
        self._known: OrderedDict[str, float] = OrderedDict()
        self._times: deque[float] = deque(maxlen=SENT_A_MINUTE)
        self._bell = threading.Event()
        self._rounds = threading.Condition(self._lock)
        self._asked = self._done = 0
        """Rounds that somebody waits for: the last asked for, the last done."""
        self._closed = False
        self._pid = 0

    def note(
        self, error: BaseException | None, *, method: str = "", path: str = "", status: int = 0
    ) -> None:
        """An error of a request. Returns at once, and never raises."""
        try:
            if not self._closed and not _is_callers(error, status):
                self._keep(error, method, path, status)
        except Exception:
            self.failed += 1

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """What is left is sent, for so long at most; nothing is taken any more."""
        self._closed = True
        self.flush(seconds)

    def flush(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Waits until everything that may be sent now was; False if it took too long."""
        if self._pid != os.getpid():
            return True
        with self._rounds:
            self._asked += 1
            wanted = self._asked
            self._bell.set()
            return self._rounds.wait_for(lambda: self._done >= wanted, seconds)

    def _keep(self, error: BaseException | None, method: str, path: str, status: int) -> None:
        key = _key(error, method, path, status)
        with self._lock:
            note = self._notes.get(key)
            if note is not None:
                note.count = min(note.count + 1, COUNT_MAX)
                return
            if len(self._notes) >= PENDING_MAX:
                self.dropped += 1
                return
            self._notes[key] = Note(_kept(error), method, path, status)
            if self._pid != os.getpid():
                self._begin()
        self._bell.set()

    def _begin(self) -> None:
        self._pid = os.getpid()
        threading.Thread(target=self._work, name="handrail-reporter", daemon=True).start()
        atexit.register(self.close)

    def _work(self) -> None:
        closed = False
        while not closed:  # it waits for errors, and between two tries
            self._bell.wait(LOOK_SECONDS if self._notes else None)
            self._bell.clear()
            asked, closed = self._asked, self._closed
            for key in list(self._notes):
                try:
                    self._one(key)
                except Exception:  # whatever the sender raises: the next one may get through
                    self.failed += 1
            with self._rounds:
                self._done = asked
                self._rounds.notify_all()

    def _one(self, key: Key) -> None:
        """One note, if it may be sent now."""
        waiting, now = self._notes[key], time.monotonic()
        if waiting.report is None:
            waiting.report = self._report(waiting)
            waiting.signature = signature_of(waiting.report)
        name, report = waiting.signature, waiting.report
        lately = name in self._known and now - self._known[name] < AGAIN_SECONDS
        if lately and not self._closed:
            return
        if len(self._times) == SENT_A_MINUTE and now - self._times[0] < 60:
            return
        with self._lock:
            note = self._notes.pop(key)
        self._times.append(now)
        try:
            self._send(replace(report, count=note.count))
        except Exception:
            self._again(key, note)
            raise
        self.sent += 1
        self._known[name] = now
        self._known.move_to_end(name)
        while len(self._known) > SIGNATURES_MAX:
            self._known.popitem(last=False)

    def _again(self, key: Key, note: Note) -> None:
        note.tries += 1
        with self._lock:
            newer = self._notes.get(key)
            if newer is not None:
                newer.count = min(newer.count + note.count, COUNT_MAX)
            elif note.tries < TRIES_MAX and len(self._notes) < PENDING_MAX:
                self._notes[key] = note
            else:
                self.dropped += note.count

    def _report(self, note: Note) -> ErrorReport:
        kind = message = told = ""
        if note.error is not None:
            kind = _name(note.error)
            message = scrubbed(str(note.error), 2_000)
            told = scrubbed("".join(note.error.format()))
        return ErrorReport(
            service=self.service,
            type=kind[:NAME_CHARS],
            message=message,
            traceback=told,
            method=note.method[:NAME_CHARS],
            route=scrubbed(note.path.partition("?")[0], 1_000),
            status=note.status,
            release=self.release[:NAME_CHARS],
            specialist=self._specialist(kind.rpartition(".")[2]),
        )

    def _specialist(self, kind: str) -> str:
        return next((role for what, role in self.routing if fnmatchcase(kind, what)), "")


def _is_callers(error: BaseException | None, status: int) -> bool:
    if error is None:
        return status < 500
    if type(error).__name__ in CALLERS | CALLERS_TOO:
        return True
    try:
        carried = getattr(error, "status_code", None)
    except Exception:  # whoever asks is not told: so it is no status of the caller's
        return False
    return isinstance(carried, int) and 0 < carried < 500


def _key(error: BaseException | None, method: str, path: str, status: int) -> Key:
    """Cheap, and finer than a signature: what differs here may still be the same bug."""
    if error is None:
        return method, path, status
    last: TracebackType | None = error.__traceback__
    for _ in range(FRAMES_MAX * 10):
        if last is None or last.tb_next is None:
            break
        last = last.tb_next
    at = (last.tb_frame.f_code, last.tb_lineno) if last is not None else ()
    return type(error), at


def _kept(error: BaseException | None) -> TracebackException | None:
    """Without reading a file, and without holding on to frames and their variables."""
    if error is None:
        return None
    with contextlib.suppress(Exception):
        return TracebackException(
            type(error),
            error if _has_few(error) else Exception(str(error)),
            error.__traceback__,
            limit=-FRAMES_MAX,
            lookup_lines=False,
            capture_locals=False,
        )
    return None


def _has_few(error: BaseException) -> bool:
    """Whether few others hang on it: each is gone through while the request waits."""
    left, seen = [error], set[int]()
    while left and len(seen) <= RELATED_MAX:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        held = cast("Sequence[BaseException]", getattr(one, "exceptions", ()))
        held = held if isinstance(one, BaseExceptionGroup) else ()
        if len(held) > RELATED_MAX:
            return False
        left += [other for other in (one.__cause__, one.__context__, *held) if other is not None]
    return not left


def _name(error: TracebackException) -> str:
    kind = error.exc_type
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"
