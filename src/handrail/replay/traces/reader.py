"""Reads a file of recorded runs: finds its documents and its format, and calls the reader of it.

Lines come in, values come out; who opens, unpacks and names files is outside. A file whose first
line is a whole JSON value has one document a line, and is read line by line, whatever its size. Any
other file is one document.

The format is named or recognised by the first document:

    neutral   an object with `events`
    openai    messages with a `role`, in a list or in an object's `messages`
    autogen   messages with a `type` and a `source`, likewise
    otlp      an object with `resourceSpans`

Everything is bounded: the bytes of a document, its depth, the steps and calls of a trace.
Whatever is wrong is a `TraceFormatError` that names file, line and problem.
"""

import io
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, Literal, get_args

import msgspec

from handrail.kernel.input_checks import DEPTH_MAX
from handrail.replay.traces.autogen_messages import read_autogen
from handrail.replay.traces.model import Trace, TraceFormatError, TraceLimitError, TraceView
from handrail.replay.traces.neutral import read_neutral
from handrail.replay.traces.openai_messages import read_openai
from handrail.replay.traces.otlp_spans import GenAISpan, read_otlp, spans_of

TraceFormat = Literal["neutral", "openai", "autogen", "otlp"]
TRACE_FORMATS: tuple[TraceFormat, ...] = get_args(TraceFormat)
DOCUMENT_BYTES_MAX = 512_000_000
"""Of one document, unpacked."""
ERROR_POSITION = re.compile(r"\(byte (\d+)\)$")
"""Where msgspec says the place of a syntax error; without it the text ends too early."""

ReadDocument = Callable[[object, str, str, TraceView], Trace]
READERS: dict[str, ReadDocument] = {
    "neutral": read_neutral,
    "openai": read_openai,
    "autogen": read_autogen,
}
"""The formats of which each document is a trace; OTLP scatters a trace over documents."""


def read_traces(
    content: bytes | Iterable[bytes],
    file: str,
    *,
    format_: TraceFormat | None = None,
    view: TraceView = "B",
) -> Iterator[Trace]:
    """The traces of a file, one after the other; `content` is all of it, or its lines. `file` is
    for messages and names the dataset of traces that name none. Raises `TraceFormatError`."""
    lines = io.BytesIO(content) if isinstance(content, bytes) else content
    documents = _documents(iter(lines), file)
    first = next(documents, None)
    if first is None:
        return
    if format_ is None:
        with _place(file, first[0]):
            format_ = recognise_format(first[1])
    every = chain([first], documents)
    if format_ == "otlp":
        yield from _read_otlp(every, file, view)
        return
    for line, document in every:
        with _place(file, line):
            trace = READERS[format_](document, file, str(line), view)
        yield trace


def recognise_format(document: object) -> TraceFormat:
    """The format of a document; raises `msgspec.ValidationError` where it has none of them."""
    fields: dict[str, Any] = document if isinstance(document, dict) else {}  # pyright: ignore[reportUnknownVariableType, reportAssignmentType] - any JSON
    if "events" in fields:
        return "neutral"
    messages: object = fields.get("messages", document)
    first: object = messages[0] if isinstance(messages, list) and messages else fields  # pyright: ignore[reportUnknownVariableType] - any JSON
    if isinstance(first, dict):
        if "resourceSpans" in first or "scopeSpans" in first:
            return "otlp"
        if "role" in first:
            return "openai"
        if "type" in first and "source" in first:
            return "autogen"
    formats = ", ".join(TRACE_FORMATS)
    raise msgspec.ValidationError(f"the format is none of {formats}; name it if it is one of them")


def _read_otlp(
    documents: Iterable[tuple[int, object]], file: str, view: TraceView
) -> Iterator[Trace]:
    spans: list[GenAISpan] = []
    for line, document in documents:
        with _place(file, line):
            spans += spans_of(document)
    with _place(file, 1):
        traces = list(read_otlp(spans, file, view))
    yield from traces


def _documents(lines: Iterator[bytes], file: str) -> Iterator[tuple[int, object]]:
    """Each document with the number of its first line."""
    numbered, start = enumerate(lines, 1), b""
    for number, line in numbered:
        start += line
        if line.strip():
            if not _is_json(line):
                yield 1, _decode(_join(start, lines), file, 1)
                return
            yield number, _decode(line.rstrip(), file, number)
            break
    for number, line in numbered:
        if line.strip():
            yield number, _decode(line.rstrip(), file, number)


def _join(start: bytes, lines: Iterator[bytes]) -> bytes:
    """The whole file as one document."""
    parts, size = [start], len(start)
    for line in lines:
        size += len(line)
        parts.append(line)
        if size > DOCUMENT_BYTES_MAX:
            break
    return b"".join(parts)


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    except RecursionError:
        return True
    return True


def _decode(text: bytes, file: str, line: int) -> object:
    if len(text) > DOCUMENT_BYTES_MAX:
        problem = f"the document has more than {DOCUMENT_BYTES_MAX:,} bytes; split it"
        raise TraceFormatError(file, line, problem)
    with _place(file, line, text):
        document: object = msgspec.json.decode(text)
        _check_depth(document)
        return document


def _check_depth(document: object) -> None:
    """Not recursive: what is too deep would end a recursion badly."""
    stack: list[tuple[Any, int]] = [(document, 0)]
    while stack:
        value, depth = stack.pop()
        if isinstance(value, dict | list):
            if depth >= DEPTH_MAX:
                raise TraceLimitError(f"the document is nested more than {DEPTH_MAX} deep")
            items: Any = value.values() if isinstance(value, dict) else value  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - any JSON
            stack.extend((item, depth + 1) for item in items)


@contextmanager
def _place(file: str, line: int, text: bytes = b"") -> Generator[None]:
    """Adds file and line to what is wrong inside. `text` is what is decoded there: the message of
    a syntax error has the place as a number of bytes."""
    try:
        yield
    except (msgspec.ValidationError, TraceLimitError) as error:
        raise TraceFormatError(file, line, str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        line += _lines_before_error(str(error), text)
        raise TraceFormatError(file, line, f"not valid JSON: {error}") from None
    except RecursionError:
        problem = f"the document is nested more than {DEPTH_MAX} deep"
        raise TraceFormatError(file, line, problem) from None


def _lines_before_error(message: str, text: bytes) -> int:
    position = ERROR_POSITION.search(message)
    return text.count(b"\n", 0, int(position[1]) if position else len(text))
