"""The log of a server: a line of JSON for everything that happens, in the words of `vocabulary.py`.

Rules
1. Nobody waits for the log. A line goes to a thread by way of a queue of QUEUE_MAX; when that is
   full, lines are dropped and counted, and a line says how many once there is room again.
2. All lines go through one formatter: ours, the engine's and those of libraries, whose own words
   become a `message`.
3. Nothing in a line can look like another line or steer a terminal: texts are cut, and characters
   that do not print are written as escapes.
4. A line holds no secret. Nobody here logs one; what looks like one is blotted out all the same.
"""

import logging
import re
import sys
import traceback
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import Enum
from threading import Event, Thread
from typing import Any, TextIO, cast

import msgspec
import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, WrappedLogger

from handrail.engine.vocabulary import AGENTS, Said, escaped, fit
from handrail.server.settings import LogFormat, LogLevel
from handrail.store.port import iso

Render = Callable[[dict[str, Any]], str]

TRACE_MAX = 10_000
"""Characters of where something was raised: the last ones."""
ITEMS_MAX = 50
QUEUE_MAX = 10_000
GATHER_SECONDS = 0.02
"""How long a line may wait for others to be written with, unless it is an error."""
WRITE_MAX = 50
"""Lines that are written at once: while they are made, the engine cannot go on."""
CLOSE_SECONDS = 2.0
"""How long the end of the process waits for lines that are not written yet."""
QUIET = ("httpcore", "httpx")
"""They log addresses, and that of a sign-in holds its code: only their warnings are of interest."""
BARE = frozenset(AGENTS)
"""Lines that have their own fields and no others."""

_SECRETS = tuple(
    (sign, re.compile(pattern, re.IGNORECASE), instead)
    for sign, pattern, instead in (
        ("hr_", r"\bhr_[\w-]{16,}", "hr_…"),
        ("bearer", r"\b(bearer)\s+[\w.~+/=-]+", r"\1 …"),
        ("basic", r"\b(basic)\s+[\w.~+/=-]+", r"\1 …"),
        ("://", r"(://[^\s:/@]*):\S+@", r"\1:…@"),
        ("password", r"\b(password)=[^\s&;,]+", r"\1=…"),
        ("session", r"\b(handrail_session)=[^\s&;,]+", r"\1=…"),
    )
)
"""What a secret begins with, in lower case, and how it goes on."""


@contextmanager
def written(
    level: LogLevel = "info", style: LogFormat = "auto", stream: TextIO | None = None
) -> Generator[None]:
    """While it lasts, everything that this process logs is written there, and nowhere else."""
    out, root = stream or sys.stderr, logging.getLogger()
    levels = {root: level.upper(), **dict.fromkeys(map(logging.getLogger, QUIET), "WARNING")}
    handlers, known = root.handlers[:], structlog.get_config()
    before = {logger: logger.level for logger in levels}
    root.handlers[:] = [writer := Writer(out, Lines(_render(style, out)))]
    for logger, wanted in levels.items():
        logger.setLevel(wanted)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    try:
        yield
    finally:
        structlog.configure(**known)
        root.handlers[:] = handlers
        for logger, wanted in before.items():
            logger.setLevel(wanted)
        writer.close()


class Writer(logging.Handler):
    """Takes records at once, and writes them on a thread of its own: some at a time, so that the
    two do not wake each other for every line."""

    def __init__(self, stream: TextIO, formatter: logging.Formatter) -> None:
        super().__init__()
        self.stream = stream
        self.setFormatter(formatter)
        self.dropped = 0
        self._records: deque[logging.LogRecord] = deque()
        self._some, self._now, self._over = Event(), Event(), Event()
        self._thread = Thread(target=self._go_on, name="handrail-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._records) >= QUEUE_MAX:
            self.dropped += 1
            return
        self._records.append(record)
        if not self._some.is_set():
            self._some.set()
        if record.levelno >= logging.ERROR:
            self._now.set()

    def close(self) -> None:
        """What is in the queue is written, if that does not take too long."""
        super().close()
        for event in (self._over, self._now, self._some):
            event.set()
        self._thread.join(CLOSE_SECONDS)

    def _go_on(self) -> None:
        last = False
        while not last:
            self._some.wait()
            self._now.wait(GATHER_SECONDS)
            last = self._over.is_set()
            self._now.clear()
            self._some.clear()
            while left := len(self._records):
                self._write([self._records.popleft() for _ in range(min(left, WRITE_MAX))])

    def _write(self, records: Sequence[logging.LogRecord]) -> None:
        told = [self._line(record) for record in records]
        dropped = self._count(0)
        if dropped:
            told.append(self._line(_dropped(dropped)))
        try:
            self.stream.write("".join(told))
            self.stream.flush()
        except (OSError, ValueError):  # nobody reads it any more, or it is closed
            self._count(dropped + len(records))

    def _line(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record) + "\n"
        except Exception:  # what cannot be written down must not end the log
            self._count(1)
            return ""

    def _count(self, lines: int) -> int:
        """So many more were not written; or, for none, all that were not, which are told now."""
        self.acquire()
        try:
            told, self.dropped = (0, self.dropped + lines) if lines else (self.dropped, 0)
        finally:
            self.release()
        return told


def _dropped(count: int) -> logging.LogRecord:
    said = Said("lines_dropped", {"count": count})
    return logging.LogRecord("handrail.server", logging.WARNING, "", 0, said, None, None)


class Lines(ProcessorFormatter):
    """Makes the text of a record. Our own lines take the short way."""

    def __init__(self, render: Render) -> None:
        def finish(_: WrappedLogger, __: str, event: EventDict) -> str:
            record = cast("logging.LogRecord", event.pop("_record"))
            del event["_from_structlog"]
            return render(line(record, str(event.pop("event")), event))

        super().__init__(processors=[finish], foreign_pre_chain=[_message])
        self.render = render

    def format(self, record: logging.LogRecord) -> str:
        said = record.msg
        if type(said) is not Said:
            return super().format(record)
        fields = said.fields
        if record.exc_info:
            fields = {**fields, "exception": _raised(record.exc_info)}
        return self.render(line(record, said.name, fields, said.at))


def _raised(exc_info: Any) -> str:  # noqa: ANN401 - as Python's logging has it
    return "".join(traceback.format_exception(exc_info[1]))


def _message(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """What a library said."""
    told = {**event, "event": "message", "message": event["event"]}
    wrong = told.pop("exc_info", None)
    return told if wrong is None else {**told, "exception": _raised(wrong)}


def line(
    record: logging.LogRecord, name: str, fields: Mapping[str, Any], at: datetime | None = None
) -> dict[str, Any]:
    """Everything that is written, in its order, fit to be seen."""
    when = iso(at if at is not None else datetime.fromtimestamp(record.created, UTC))
    head = {"timestamp": when, "level": record.levelname.lower(), "event": name}
    if name in BARE:
        del head["level"]
    else:
        head["logger"] = record.name
    for field, value in fields.items():
        head[field] = trace(str(value)) if field == "exception" else clean(value)
    return head


def clean(value: object) -> Any:  # noqa: ANN401 - something for JSON
    """A value as it may be shown."""
    match value:
        case str():
            return blotted(fit(value))
        case None | bool() | int():
            return value
        case float():
            return value if value - value == 0 else str(value)
        case datetime():
            return iso(value)
        case Enum():
            return clean(value.value)
        case list() | tuple() | set() | frozenset():
            items = list(cast("list[object]", value))
            left = [f"… {len(items) - ITEMS_MAX} more"] if len(items) > ITEMS_MAX else []
            return [*map(clean, items[:ITEMS_MAX]), *left]
        case _:
            return blotted(fit(str(value)))


def trace(text: str) -> str:
    """Where something was raised: its lines stay lines."""
    kept = text.rstrip("\n")[-TRACE_MAX:]
    return blotted("\n".join(map(escaped, kept.split("\n"))))


def blotted(text: str) -> str:
    """Without anything that looks like a secret."""
    lower = text.lower()
    for sign, pattern, instead in _SECRETS:
        if sign in lower:
            text = pattern.sub(instead, text)
    return text


def _render(style: LogFormat, stream: TextIO) -> Render:
    terminal = stream.isatty()
    if style == "json" or (style == "auto" and not terminal):
        return lambda told: msgspec.json.encode(told).decode()
    shown = structlog.dev.ConsoleRenderer(
        colors=terminal, exception_formatter=structlog.dev.plain_traceback
    )

    def console(told: dict[str, Any]) -> str:
        if "exception" in told:  # so that none of its lines can pass for one of the log's
            told["exception"] = "    " + told["exception"].replace("\n", "\n    ")
        return shown(None, "", told)

    return console
