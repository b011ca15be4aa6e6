"""Format figures and texts for people; print them, tables and JSON.

On a terminal within its width, else in full.
"""

import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from handrail.kernel.definition.certificate import Bound
    from handrail.kernel.definition.model import DocumentProblem

HAS_RICH = importlib.util.find_spec("rich") is not None
"""Rich colours terminals and folds tables there; the small install goes without."""
_UNITS = (("d", 86400), ("h", 3600), ("min", 60))
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def program_name() -> str:
    """Return how the command line was called, so that what is shown can be typed."""
    return "uv run handrail" if "UV" in os.environ else "handrail"


def printable(text: str) -> str:
    """Return the text without characters that control the terminal: agents and files may have
    any.
    """
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def first_line(text: str, chars_max: int = 100) -> str:
    line = next(
        (candidate.strip() for candidate in printable(text).splitlines() if candidate.strip()), ""
    )
    return line if len(line) <= chars_max else f"{line[: chars_max - 1]}…"


def format_duration(seconds: float) -> str:
    """Format as 16 h, 1 h 30 min, 90 d, 0.2 s: the two largest units that count."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    remaining, parts = round(seconds), list[str]()
    for unit, size in _UNITS:
        if remaining >= size:
            parts.append(f"{remaining // size} {unit}")
            remaining %= size
    if remaining:
        parts.append(f"{remaining} s")
    return " ".join(parts[:2])


def format_count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def format_certificate(bound: "Bound", kind: str) -> str:
    """Format the most that a run can cost, in one line."""
    moves = format_count(bound.handoffs, "handoff")
    if kind == "workflow":
        moves = format_count(bound.transitions, "transition")
    figures = [format_count(bound.dispatches, "dispatch").replace("dispatchs", "dispatches"), moves]
    if bound.questions:
        figures.append(format_count(bound.questions, "question"))
    return f"at most {', '.join(figures)}; {format_time_bound(bound, kind)}"


def format_time_bound(bound: "Bound", kind: str) -> str:
    time = bound.time
    if kind == "team":
        parts = [f"{format_duration(max(time.work, time.queue))} of running time"]
    else:
        parts = [
            f"{format_duration(time.work)} of work",
            f"{format_duration(time.queue)} in queues",
        ]
    if time.people:
        parts.append(f"{format_duration(time.people)} of waiting for people")
    return ", ".join(parts)


def format_asks_bound(bound: "Bound") -> str:
    """Format the bound of the agents' own questions: rare, and counted apart."""
    return (
        f"{format_count(bound.asks, 'question')} of the agents' own, "
        f"{format_duration(bound.time.asks)} long"
    )


def format_exactness(bound: "Bound") -> str:
    loose = [name for name, tight in bound.tight.items() if not tight]
    return f"safe, not always reached: {', '.join(loose)}" if loose else "every figure is reachable"


def format_problem(
    problem: "DocumentProblem", label: str, severity: str, line: int | None = None
) -> str:
    """Format as `file:line: error at place: message [code]`, and the hint on a line of its own."""
    hint = f"\n    {printable(problem.hint)}" if problem.hint else ""
    location = label if line is None else f"{label}:{line}"
    message = f"{location}: {severity} at {problem.path}: {problem.message} [{problem.code}]"
    return f"{printable(message)}{hint}"


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

    return Console(
        width=None if is_terminal() else UNLIMITED_COLUMNS,
        highlight=False,
        markup=False,
        emoji=False,
    )


def print_json(document: object) -> None:
    """Print every field, set or not."""
    print(msgspec.json.format(msgspec.json.encode(_with_all_fields(document)), indent=2).decode())


def _with_all_fields(value: object) -> object:
    match value:
        case msgspec.Struct():
            return {
                encoded_name: _with_all_fields(field)
                for name, encoded_name in zip(
                    value.__struct_fields__, value.__struct_encode_fields__, strict=True
                )
                if (field := getattr(value, name)) is not msgspec.UNSET
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
    rows = list(table.rows)
    if not rows and table.empty and is_terminal():
        print_line(table.empty)
        return
    if not HAS_RICH:
        _print_plain_table(table.heads, rows)
        return
    from rich.table import Table

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


def _print_plain_table(heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    lines = [heads, *([cell if isinstance(cell, str) else cell[0] for cell in row] for row in rows)]
    texts = [[one_line(cell) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for line in texts:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())


def print_line(text: str, style: str = "") -> None:
    """Print a line, however long: the terminal wraps it."""
    if not HAS_RICH:
        print(printable(text))
        return
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
