"""The log under test: everything that is written while it is open, line by line."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from handrail.server.logs import capture_logs


class CapturedLog:
    """What was logged; complete once the `with` is over."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]

    def of(self, *events: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] in events]

    def told(self, event: str, *fields: str) -> list[tuple[Any, ...]]:
        """Of each such line these fields."""
        return [tuple(line[field] for field in fields) for line in self.of(event)]


@contextmanager
def capture_log(level: Any = "debug", style: Any = "json") -> Iterator[CapturedLog]:
    log = CapturedLog()
    with capture_logs(level, style, log.stream):
        yield log
