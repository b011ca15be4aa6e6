"""Take errors from requests and send them on, from a thread of its own.

Rules
1. A request never waits: it leaves a note, without formatting anything and without I/O. A failure
   in here is only counted; no request ever sees it.
2. Notes are bounded. The same error, by type and location, is one note with a count; beyond
   PENDING_MAX different ones an error is dropped, and counted (`dropped`).
3. What is sent: type, message and traceback of the error, method, the path without its query and
   the framework's template of it, status, service, release, count. Texts go through
   `engine/redaction.py` first. Headers, cookies, query, body and the variables of frames are never
   even read.
4. A signature is sent at once when it is new, then at most every RESEND_SECONDS with what was
   counted meanwhile; all together at most REPORTS_PER_MINUTE_MAX. A failed report is tried
   TRIES_MAX times.
5. A caller's mistake is no bug: exceptions that carry a status below 500, and connections that the
   caller closed.

The thread begins with the first error of a process, so a process that forks has one in each child.
"""

import atexit
import contextlib
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from traceback import StackSummary, TracebackException
from types import TracebackType
from typing import cast

from msgspec.structs import replace

from handrail.engine.redaction import redact
from handrail.engine.services.bug_signature import normalize_route, signature_of
from handrail.views.bugs import COUNT_MAX, NAME_CHARS_MAX, ErrorReport

PENDING_MAX = 200
SIGNATURES_MAX = 1_000
RESEND_SECONDS = 60.0
REPORTS_PER_MINUTE_MAX = 60
TRIES_MAX = 5
POLL_SECONDS = 0.5
FRAMES_MAX = 50
WALK_MAX = 2_000
"""Frames to look at: a recursion is deeper than what is sent of it."""
RELATED_ERRORS_MAX = 50
"""Causes and members of one error; an error with more of them is reported alone."""
CLOSE_SECONDS = 2.0
CLIENT_DISCONNECTS = frozenset({"ClientDisconnect", "ClientDisconnected", "ConnectionResetError"})
SOCKET_DISCONNECTS = frozenset({"BrokenPipeError", "ConnectionAbortedError"})
"""Errors of a connection that the caller has closed."""

# What stands in the scope or environment of a request:
NOTED_ERROR = "handrail.noted"
"""the error that was noted last, or None;"""
ANSWERED_ERROR = "handrail.answered"
"""an error that the framework answered itself, before its response begins;"""
ROUTE = "handrail.route"
"""the framework's template of the path, where only the framework knows it."""

Send = Callable[[ErrorReport], object]
Key = tuple[object, ...]


class PendingError:
    """An error as a request left it. `count` is how often it came since it was last sent."""

    __slots__ = (
        *("count", "error", "method", "path", "report", "route", "signature", "status", "tries"),
    )

    def __init__(
        self, error: TracebackException | None, method: str, path: str, route: str, status: int
    ) -> None:
        self.error, self.method, self.path, self.route = error, method, path, route
        self.status = status
        self.count, self.tries, self.signature = 1, 0, ""
        self.report: ErrorReport | None = None
        """Made on the reporter's thread, once."""


class Reporter:
    """Sends errors on. `send` delivers a report (`senders.py`). `routing` are pairs of a pattern
    for the type of the error and the role of the specialist, checked before the engine's own table.
    """

    def __init__(
        self,
        send: Send,
        *,
        service: str,
        release: str = "",
        routing: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.service, self.release, self.routing = service[:NAME_CHARS_MAX], release, tuple(routing)
        self.sent = self.dropped = self.failed = 0
        self._send = send
        self._lock = threading.Lock()
        self._pending: dict[Key, PendingError] = {}
        self._sent_at: OrderedDict[str, float] = OrderedDict()
        self._send_times: deque[float] = deque(maxlen=REPORTS_PER_MINUTE_MAX)
        self._wakeup = threading.Event()
        self._round_done = threading.Condition(self._lock)
        self._rounds_requested = self._rounds_finished = 0
        """Rounds that callers wait for: the last requested, the last done."""
        self._closed = False
        self._pid = 0

    def note(
        self,
        error: BaseException | None,
        *,
        method: str = "",
        path: str = "",
        route: str = "",
        status: int = 0,
    ) -> None:
        """Note an error of a request. `route` is the framework's own template of the path, if there
        is one. Returns at once, and never raises."""
        try:
            if not self._closed and not _is_client_error(error, status):
                self._enqueue(error, method, path, route or normalize_route(path), status)
        except Exception:
            self.failed += 1

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Send what is left, for so many seconds at most; take nothing any more."""
        self._closed = True
        self.flush(seconds)

    def flush(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Wait until everything that may be sent now was; False if it took too long."""
        if self._pid != os.getpid():
            return True
        with self._round_done:
            self._rounds_requested += 1
            round_number = self._rounds_requested
            self._wakeup.set()
            return self._round_done.wait_for(lambda: self._rounds_finished >= round_number, seconds)

    def _enqueue(
        self, error: BaseException | None, method: str, path: str, route: str, status: int
    ) -> None:
        key = _dedup_key(error, method, route, status)
        with self._lock:
            pending = self._pending.get(key)
            if pending is not None:
                pending.count = min(pending.count + 1, COUNT_MAX)
                return
            if len(self._pending) >= PENDING_MAX:
                self.dropped += 1
                return
            self._pending[key] = PendingError(_snapshot(error), method, path, route, status)
            if self._pid != os.getpid():
                self._start_thread()
        self._wakeup.set()

    def _start_thread(self) -> None:
        self._pid = os.getpid()
        threading.Thread(target=self._run, name="handrail-reporter", daemon=True).start()
        atexit.register(self.close)

    def _run(self) -> None:
        closed = False
        while not closed:  # waits for errors, and between two tries
            self._wakeup.wait(POLL_SECONDS if self._pending else None)
            self._wakeup.clear()
            round_number, closed = self._rounds_requested, self._closed
            for key in list(self._pending):
                try:
                    self._send_if_due(key)
                except Exception:  # any error of the sender: the next report may get through
                    self.failed += 1
            with self._round_done:
                self._rounds_finished = round_number
                self._round_done.notify_all()

    def _send_if_due(self, key: Key) -> None:
        """Send one note, if it may be sent now."""
        pending, now = self._pending[key], time.monotonic()
        if pending.report is None:
            pending.report = self._make_report(pending)
            pending.signature = signature_of(pending.report)
        signature, report = pending.signature, pending.report
        is_recent = signature in self._sent_at and now - self._sent_at[signature] < RESEND_SECONDS
        if is_recent and not self._closed:
            return
        if len(self._send_times) == REPORTS_PER_MINUTE_MAX and now - self._send_times[0] < 60:
            return
        with self._lock:
            taken = self._pending.pop(key)
        self._send_times.append(now)
        try:
            self._send(replace(report, count=taken.count))
        except Exception:
            self._requeue(key, taken)
            raise
        self.sent += 1
        self._sent_at[signature] = now
        self._sent_at.move_to_end(signature)
        while len(self._sent_at) > SIGNATURES_MAX:
            self._sent_at.popitem(last=False)

    def _requeue(self, key: Key, pending: PendingError) -> None:
        pending.tries += 1
        with self._lock:
            newer = self._pending.get(key)
            if newer is not None:
                newer.count = min(newer.count + pending.count, COUNT_MAX)
            elif pending.tries < TRIES_MAX and len(self._pending) < PENDING_MAX:
                self._pending[key] = pending
            else:
                self.dropped += pending.count

    def _make_report(self, pending: PendingError) -> ErrorReport:
        kind = message = trace_text = ""
        if pending.error is not None:
            kind = _type_name(pending.error)
            message = redact(str(pending.error), 2_000)
            _shorten_stacks(pending.error)
            trace_text = redact("".join(pending.error.format()))
        return ErrorReport(
            service=self.service,
            type=kind[:NAME_CHARS_MAX],
            message=message,
            traceback=trace_text,
            method=pending.method[:NAME_CHARS_MAX],
            route=redact(pending.route.partition("?")[0], 1_000),
            path=redact(pending.path.partition("?")[0], 1_000),
            status=pending.status,
            release=self.release[:NAME_CHARS_MAX],
            specialist=self._specialist(kind.rpartition(".")[2]),
        )

    def _specialist(self, kind: str) -> str:
        return next((role for pattern, role in self.routing if fnmatchcase(kind, pattern)), "")


def _is_client_error(error: BaseException | None, status: int) -> bool:
    if error is None:
        return status < 500
    if type(error).__name__ in CLIENT_DISCONNECTS | SOCKET_DISCONNECTS:
        return True
    try:
        status_code = getattr(error, "status_code", None)
    except Exception:  # an unreadable status is no status of the caller's
        return False
    return isinstance(status_code, int) and 0 < status_code < 500


def _dedup_key(error: BaseException | None, method: str, route: str, status: int) -> Key:
    """Return a cheap key, finer than a signature: two keys may still be the same bug."""
    if error is None:
        return method, route, status
    last: TracebackType | None = error.__traceback__
    for _ in range(WALK_MAX):
        if last is None or last.tb_next is None:
            break
        last = last.tb_next
    at = (last.tb_frame.f_code, last.tb_lineno) if last is not None else ()
    return type(error), at


def _snapshot(error: BaseException | None) -> TracebackException | None:
    """Copy the traceback without reading a file, and without holding on to frames and variables."""
    if error is None:
        return None
    with contextlib.suppress(Exception):
        return TracebackException(
            type(error),
            error if _has_few_related(error) else Exception(str(error)),
            error.__traceback__,
            limit=-WALK_MAX,
            lookup_lines=False,
            capture_locals=False,
        )
    return None


def _shorten_stacks(snapshot: TracebackException) -> None:
    """Shorten the stacks of an error and its causes. Of a recursion each location is kept once: its
    depth differs from request to request, and would push out the frames of its callers."""
    unvisited = [snapshot]
    while unvisited:
        current = unvisited.pop()
        frames = list({(f.filename, f.name, f.lineno): f for f in current.stack}.values())
        if len(frames) > FRAMES_MAX:
            frames = frames[: FRAMES_MAX // 2] + frames[-FRAMES_MAX // 2 :]
        current.stack = StackSummary.from_list(frames)
        related = (current.__cause__, current.__context__, *(current.exceptions or ()))
        unvisited += [other for other in related if other is not None]


def _has_few_related(error: BaseException) -> bool:
    """Return whether few other errors hang on it: each is visited while the request waits."""
    unvisited, visited_ids = [error], set[int]()
    while unvisited and len(visited_ids) <= RELATED_ERRORS_MAX:
        current = unvisited.pop()
        if id(current) in visited_ids:
            continue
        visited_ids.add(id(current))
        members = cast("Sequence[BaseException]", getattr(current, "exceptions", ()))
        members = members if isinstance(current, BaseExceptionGroup) else ()
        if len(members) > RELATED_ERRORS_MAX:
            return False
        unvisited += [
            other
            for other in (current.__cause__, current.__context__, *members)
            if other is not None
        ]
    return not unvisited


def _type_name(error: TracebackException) -> str:
    kind = error.exc_type
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"
