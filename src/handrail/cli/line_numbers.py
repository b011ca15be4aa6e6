"""Which line of a file a place such as `$.nodes[2].role` stands on: people edit lines, not paths.

Only asked when there is something to say about a file that could be read. What is missing stands
where it would have to be added: on the line of the part that lacks it.
"""

import re
from typing import Any

import yaml

FILE_BYTES_MAX = 1_000_000
"""In a longer file the place alone is told: looking for its line would take seconds."""
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_YAML: Any = yaml  # its nodes have no usable types
_INDEX_PATTERN = re.compile(r"\[(\d{1,9})\]")


class LineIndex:
    """The lines of one file; JSON is as good as YAML here."""

    def __init__(self, raw: bytes) -> None:
        self._root: Any = None
        if 0 < len(raw) <= FILE_BYTES_MAX:
            try:
                self._root = _YAML.compose(raw.decode("utf-8-sig"), Loader=_LOADER)
            except (yaml.YAMLError, UnicodeDecodeError):
                return  # JSON that YAML has no name for, such as one with tabs

    def line_of(self, path: str) -> int | None:
        """From 1; None if it cannot be told."""
        node, rest, line = self._root, path.removeprefix("$"), None
        while node is not None and rest:
            inner = _descend(node, rest)
            if inner is None:
                break
            line, node, rest = inner
        return line


def _descend(node: Any, rest: str) -> tuple[int, Any, str] | None:  # noqa: ANN401 - as above
    """The part that the path goes on with: its line, itself, and the rest of the path."""
    if isinstance(node, yaml.SequenceNode) and (number := _INDEX_PATTERN.match(rest)):
        index, parts = int(number[1]), node.value
        remainder = rest[number.end() :]
        return (
            (parts[index].start_mark.line + 1, parts[index], remainder)
            if index < len(parts)
            else None
        )
    if isinstance(node, yaml.MappingNode) and rest.startswith("."):
        for key, value in node.value:
            name = f".{key.value[:80]}"
            if rest == name or rest.startswith((f"{name}.", f"{name}[")):
                return key.start_mark.line + 1, value, rest[len(name) :]
    return None
