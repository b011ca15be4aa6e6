"""Writes files of recorded runs for the tests of their readers, and reads them."""

import json
from typing import Any

from handrail.replay.traces.model import Trace, TraceView
from handrail.replay.traces.reader import TraceFormat, read_traces

FILE = "runs.jsonl"


def lines(*documents: Any) -> bytes:
    """A file with one document a line."""
    return "".join(f"{json.dumps(document)}\n" for document in documents).encode()


def read(
    content: bytes, *, format_: TraceFormat | None = None, view: TraceView = "B"
) -> list[Trace]:
    return list(read_traces(content, FILE, format_=format_, view=view))


def read_one(document: Any, *, view: TraceView = "B") -> Trace:
    (trace,) = read(json.dumps(document, indent=2).encode(), view=view)
    return trace
