"""Print tables, texts and JSON. On a terminal within its width, else in full."""

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec

from handrail.cli.formatting import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

UNLIMITED_COLUMNS = 100_000
"""Columns of a file or a pipe: nothing is folded or cut there."""
SHORT_ID_CHARS = 8
Cell = str | tuple[str, str]
"""A text, or a text and its style."""


class TextTable(NamedTuple):
    """A table to print.

    On a terminal long cells go on below, except for the first `no_wrap_columns` (an id in two
    pieces cannot be copied), and without rows `empty` is printed. A file has the heads and one line
    for each row.
    """

    heads: Sequence[str]
    rows: Iterable[Sequence[Cell]]
    empty: str = ""
    no_wrap_columns: int = 1


def show(
    document: object, text: Iterable[str] | TextTable, *, as_json: bool, note: str = ""
) -> None:
    """Print the document for programs; for people the lines or the table, and then the note on
    standard error.
    """
    if as_json:
        print_json(document)
        return
    if isinstance(text, TextTable):
        print_table(text)
    else:
        for line in text:
            print_line(line)
    if note:
        print_note(note)


def is_terminal() -> bool:
    return sys.stdout.isatty()


def console() -> "Console":
    from rich.console import Console

    width = None if is_terminal() else UNLIMITED_COLUMNS
    return Console(width=width, highlight=False, markup=False, emoji=False)


def print_json(document: object) -> None:
    """Print every field, set or not."""
    print(msgspec.json.format(msgspec.json.encode(_with_all_fields(document)), indent=2).decode())


def _with_all_fields(value: object) -> object:
    match value:
        case msgspec.Struct():
            names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
            return {
                encoded_name: _with_all_fields(getattr(value, name)) for name, encoded_name in names
            }
        case dict():
            return {
                key: _with_all_fields(item)
                for key, item in cast("dict[object, object]", value).items()
            }
        case list() | tuple():
            return [_with_all_fields(item) for item in cast("list[object]", value)]
        case _:
            return value


def print_table(table: TextTable) -> None:
    from rich.table import Table

    rows = list(table.rows)
    if not rows and table.empty and is_terminal():
        print_line(table.empty)
        return
    grid = Table(*table.heads, box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for number, column in enumerate(grid.columns):
        column.overflow, column.no_wrap = "fold", number < table.no_wrap_columns
    for row in rows:
        grid.add_row(*(_cell_text(cell) for cell in row))
    out = console()
    if is_terminal():
        out.print(grid)
        return
    with out.capture() as captured:
        out.print(grid)
    for line in captured.get().splitlines():
        print(line.rstrip())


def print_line(text: str, style: str = "") -> None:
    """Print a line, however long: the terminal wraps it."""
    console().print(_styled(printable(text), style), soft_wrap=True)


def _styled(text: str, style: str) -> "Text":
    from rich.text import Text

    return Text(text, style=style)


def _cell_text(cell: Cell) -> "Text":
    text, style = (cell, "") if isinstance(cell, str) else cell
    return _styled(one_line(text), style)


def one_line(text: str) -> str:
    """Return all of the text, on one line."""
    return " ".join(printable(text).split())


def format_time(moment: datetime | None) -> str:
    """Format in UTC, as `--since` takes it; to the minute where space is scarce."""
    pattern = "%Y-%m-%d %H:%M" if is_terminal() else "%Y-%m-%dT%H:%M:%SZ"
    return "" if moment is None else moment.astimezone(UTC).strftime(pattern)


def short_id(full_id: str) -> str:
    """Return the end of an id, where it differs most, for people to read; in full for programs.

    Every command takes either.
    """
    if not is_terminal():
        return full_id
    run, dot, rest = full_id.partition(".")
    return f"{run[-SHORT_ID_CHARS:]}{dot}{rest}"


def print_note(text: str) -> None:
    """Print what is not part of the answer, on standard error."""
    print(one_line(text), file=sys.stderr)
