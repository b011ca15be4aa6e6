"""The log of a server: one line of JSON per event of `log_events.py`.

Rules
1. Logging never blocks. A queue of QUEUED_RECORDS_MAX leads to a writer thread; when it is full,
   lines are dropped and counted, and a later line says how many.
2. All lines go through one formatter: the server's, the engine's and those of libraries, whose
   text becomes a `message`.
3. Nothing in a line can look like another line or control a terminal: texts are cut, and
   unprintable characters are escaped.
4. A line holds no secret. No code here logs one; texts that look like secrets are redacted anyway.
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

from handrail.engine.log_events import AGENT_EVENTS, LogMessage, escape, fit_text
from handrail.server.settings import LogFormat, LogLevel
from handrail.store.rows import iso

Render = Callable[[dict[str, Any]], str]

TRACEBACK_CHARS_MAX = 10_000
"""The last characters of a traceback are logged."""
LIST_ITEMS_MAX = 50
QUEUED_RECORDS_MAX = 10_000
GATHER_SECONDS = 0.02
"""How long a line may wait for others, to be written together, unless it is an error."""
WRITE_LINES_MAX = 50
"""Lines formatted together: formatting them blocks the engine."""
CLOSE_SECONDS_MAX = 2.0
"""How long the end of the process waits for unwritten lines."""
QUIET_LOGGERS = ("httpcore", "httpx")
"""They log URLs, and a sign-in URL holds its code: only their warnings are logged."""
BARE_EVENTS = frozenset(AGENT_EVENTS)
"""Events whose lines have no `level` and no `logger`."""

_SECRET_PATTERNS = tuple(
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
"""Lower-case marker of a secret, its pattern, and the replacement."""


@contextmanager
def capture_logs(
    level: LogLevel = "info", style: LogFormat = "auto", stream: TextIO | None = None
) -> Generator[None]:
    """Write everything that this process logs to `stream`, and nowhere else, until exit."""
    output, root = stream or sys.stderr, logging.getLogger()
    level_by_logger = {
        root: level.upper(),
        **dict.fromkeys(map(logging.getLogger, QUIET_LOGGERS), "WARNING"),
    }
    handlers, structlog_config = root.handlers[:], structlog.get_config()
    level_before = {logger: logger.level for logger in level_by_logger}
    root.handlers[:] = [writer := LogWriter(output, LogFormatter(_make_renderer(style, output)))]
    for logger, wanted_level in level_by_logger.items():
        logger.setLevel(wanted_level)
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
        structlog.configure(**structlog_config)
        root.handlers[:] = handlers
        for logger, wanted_level in level_before.items():
            logger.setLevel(wanted_level)
        writer.close()


class LogWriter(logging.Handler):
    """Queues records, and writes them on a thread of its own: several at a time, so that the two
    threads do not wake each other for every line."""

    def __init__(self, stream: TextIO, formatter: logging.Formatter) -> None:
        super().__init__()
        self.stream = stream
        self.setFormatter(formatter)
        self.dropped = 0
        self._records: deque[logging.LogRecord] = deque()
        self._has_records, self._flush_now, self._closing = Event(), Event(), Event()
        self._thread = Thread(target=self._run, name="handrail-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._records) >= QUEUED_RECORDS_MAX:
            self.dropped += 1
            return
        self._records.append(record)
        if not self._has_records.is_set():
            self._has_records.set()
        if record.levelno >= logging.ERROR:
            self._flush_now.set()

    def close(self) -> None:
        """Write the queued lines, within CLOSE_SECONDS_MAX."""
        super().close()
        for event in (self._closing, self._flush_now, self._has_records):
            event.set()
        self._thread.join(CLOSE_SECONDS_MAX)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._has_records.wait()
            self._flush_now.wait(GATHER_SECONDS)
            is_last = self._closing.is_set()
            self._flush_now.clear()
            self._has_records.clear()
            while waiting := len(self._records):
                self._write([self._records.popleft() for _ in range(min(waiting, WRITE_LINES_MAX))])

    def _write(self, records: Sequence[logging.LogRecord]) -> None:
        lines = [self._format_line(record) for record in records]
        dropped = self._update_dropped(0)
        if dropped:
            lines.append(self._format_line(_dropped_record(dropped)))
        try:
            self.stream.write("".join(lines))
            self.stream.flush()
        except (OSError, ValueError):  # the reader is gone, or the stream is closed
            self._update_dropped(dropped + len(records))

    def _format_line(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record) + "\n"
        except Exception:  # a record that fails to format must not end the log
            self._update_dropped(1)
            return ""

    def _update_dropped(self, lines: int) -> int:
        """Count dropped lines; with 0, return the count so far and reset it."""
        self.acquire()
        try:
            dropped, self.dropped = (0, self.dropped + lines) if lines else (self.dropped, 0)
        finally:
            self.release()
        return dropped


def _dropped_record(count: int) -> logging.LogRecord:
    log_message = LogMessage("lines_dropped", {"count": count})
    return logging.LogRecord("handrail.server", logging.WARNING, "", 0, log_message, None, None)


class LogFormatter(ProcessorFormatter):
    """Formats a record. Lines of Handrail itself bypass structlog."""

    def __init__(self, render: Render) -> None:
        def finish(_: WrappedLogger, __: str, event: EventDict) -> str:
            record = cast("logging.LogRecord", event.pop("_record"))
            del event["_from_structlog"]
            return render(build_line(record, str(event.pop("event")), event))

        super().__init__(processors=[finish], foreign_pre_chain=[_from_library])
        self.render = render

    def format(self, record: logging.LogRecord) -> str:
        message = record.msg
        if type(message) is not LogMessage:
            return super().format(record)
        fields = message.fields
        if record.exc_info:
            fields = {**fields, "exception": _format_traceback(record.exc_info)}
        return self.render(build_line(record, message.name, fields, message.at))


def _format_traceback(exc_info: Any) -> str:  # noqa: ANN401 - as Python's logging has it
    return "".join(traceback.format_exception(exc_info[1]))


def _from_library(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Convert a library's record to a `message` event."""
    fields = {**event, "event": "message", "message": event["event"]}
    exc_info = fields.pop("exc_info", None)
    return fields if exc_info is None else {**fields, "exception": _format_traceback(exc_info)}


def build_line(
    record: logging.LogRecord, name: str, fields: Mapping[str, Any], at: datetime | None = None
) -> dict[str, Any]:
    """Return all fields of a line, in order, cleaned."""
    timestamp = iso(at if at is not None else datetime.fromtimestamp(record.created, UTC))
    output = {"timestamp": timestamp, "level": record.levelname.lower(), "event": name}
    if name in BARE_EVENTS:
        del output["level"]
    else:
        output["logger"] = record.name
    for field, value in fields.items():
        output[field] = clean_traceback(str(value)) if field == "exception" else clean_value(value)
    return output


def clean_value(value: object) -> Any:  # noqa: ANN401 - a JSON value
    """Return a value that is safe to log."""
    match value:
        case str():
            return redact(fit_text(value))
        case None | bool() | int():
            return value
        case float():
            return value if value - value == 0 else str(value)
        case datetime():
            return iso(value)
        case Enum():
            return clean_value(value.value)
        case list() | tuple() | set() | frozenset():
            items = list(cast("list[object]", value))
            rest = [f"… {len(items) - LIST_ITEMS_MAX} more"] if len(items) > LIST_ITEMS_MAX else []
            return [*map(clean_value, items[:LIST_ITEMS_MAX]), *rest]
        case _:
            return redact(fit_text(str(value)))


def clean_traceback(text: str) -> str:
    """Return the end of a traceback, cleaned; its lines stay lines."""
    return redact("\n".join(map(escape, text.rstrip("\n")[-TRACEBACK_CHARS_MAX:].split("\n"))))


def redact(text: str) -> str:
    """Return the text without anything that looks like a secret."""
    lower = text.lower()
    for marker, pattern, replacement in _SECRET_PATTERNS:
        if marker in lower:
            text = pattern.sub(replacement, text)
    return text


def _make_renderer(style: LogFormat, stream: TextIO) -> Render:
    is_terminal = stream.isatty()
    if style == "json" or (style == "auto" and not is_terminal):
        return lambda fields: msgspec.json.encode(fields).decode()
    renderer = structlog.dev.ConsoleRenderer(
        colors=is_terminal, exception_formatter=structlog.dev.plain_traceback
    )

    def console(fields: dict[str, Any]) -> str:
        if "exception" in fields:  # no traceback line can look like a log line
            fields["exception"] = "    " + fields["exception"].replace("\n", "\n    ")
        return renderer(None, "", fields)

    return console
