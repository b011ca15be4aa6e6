"""Print tables, texts and JSON. On a terminal within its width, else in full."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from handrail.cli.formatting import printable

UNLIMITED_COLUMNS = 100_000
"""Columns of a file or a pipe: nothing is folded or cut there."""
SHORT_ID_CHARS = 8
Cell = str | tuple[str, str]
"""A text, or a text and its style."""


def is_terminal() -> bool:
    return sys.stdout.isatty()


def console() -> Console:
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


def print_table(
    heads: Sequence[str], rows: Sequence[Sequence[Cell]], empty: str = "", no_wrap_columns: int = 1
) -> None:
    """Print a table.

    On a terminal long cells go on below, except for the first `no_wrap_columns` (an id in two
    pieces cannot be copied), and without rows `empty` is printed. A file has the heads and one line
    for each row.
    """
    if not rows and empty and is_terminal():
        print_line(empty)
        return
    table = Table(*heads, box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for number, column in enumerate(table.columns):
        column.overflow, column.no_wrap = "fold", number < no_wrap_columns
    for row in rows:
        table.add_row(*(_cell_text(cell) for cell in row))
    out = console()
    if is_terminal():
        out.print(table)
        return
    with out.capture() as captured:
        out.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def print_line(text: str, style: str = "") -> None:
    """Print a line, however long: the terminal wraps it."""
    console().print(Text(printable(text), style=style), soft_wrap=True)


def _cell_text(cell: Cell) -> Text:
    text, style = (cell, "") if isinstance(cell, str) else cell
    return Text(one_line(text), style=style)


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
