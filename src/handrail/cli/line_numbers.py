"""Find the line of a path such as `$.nodes[2].role` in a file: people edit lines, not paths.

Used only for a problem in a file that could be read. A missing part has the line where it would
have to be added: that of the part that lacks it.
"""

import re
from typing import Any

import yaml

FILE_BYTES_MAX = 1_000_000
"""In a longer file only the path is shown: the search for its line would take seconds."""
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
                return  # JSON that YAML cannot read, such as with tabs

    def line_of(self, path: str) -> int | None:
        """Return the line, from 1; None if it is unknown."""
        node, rest, line = self._root, path.removeprefix("$"), None
        while node is not None and rest:
            inner = _descend(node, rest)
            if inner is None:
                break
            line, node, rest = inner
        return line


def _descend(node: Any, rest: str) -> tuple[int, Any, str] | None:  # noqa: ANN401 - as above
    """Return the part that the path goes on with: its line, itself, and the rest of the path."""
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
