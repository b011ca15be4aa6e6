"""Queries from SQL files, compiled for a database.

`sql/*.sql` holds what both databases share; `dialect.sql` of a database holds what only that one
has, or has in its own form. A query stands under a line `-- name: what it does`.

- `:name` is a parameter. `fetch_filtered` drops the lines of filters that are None, so that every
  combination of filters can use its index.
- `{BeadRow}` is the list of a row's columns, `{BeadRow b}` with an alias; `{RunRow -state}` reads
  NULL instead of a column. `{values BeadRow}` are the rows of a batch to insert, `{rows BeadRow}`
  the same as a table `i` (PostgreSQL), `{set LockRow -repository}` assigns all other columns, and
  `{params FileRow}` are the values of a single row.
- `IN list(:ids)` and `FROM list(:ids) AS i` take a list of texts; `items(column) AS i` are the
  items of a JSON array. Both have one column, `value`.
- A cast is written for PostgreSQL, as `::type`, and left out for SQLite. Never write
  `CAST(x AS timestamptz)`: SQLite would turn a time into the number of its year.
"""

import re
from collections.abc import Mapping
from importlib import resources
from typing import Literal, NamedTuple

from handrail.store.columns import Column, Row, columns_of

Dialect = Literal["sqlite", "postgres"]
_HEADER = re.compile(r"^-- ([a-z_]+): .+$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")
_ARRAY_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)::([a-z ]+)\[\]")
_CAST = re.compile(r"::(double precision|[a-z]+)(\[\])?")
_MACRO = re.compile(r"\{(?:([a-z]+) )?([A-Z]\w+)((?: -\w+)*)(?: ([a-z]\w*))?\}")
_REPLACEMENTS: dict[Dialect, tuple[tuple[re.Pattern[str], str], ...]] = {
    "sqlite": (
        (re.compile(r"\bIN list\((:\w+)\)"), r"IN (SELECT value FROM json_each(\1))"),
        (re.compile(r"\blist\((:\w+)\)"), r"json_each(\1)"),
        (re.compile(r"\bitems\("), "json_each("),
        (_CAST, ""),
    ),
    "postgres": (
        (re.compile(r"\bIN list\((:\w+)\)"), r"= ANY(\1::text[])"),
        (re.compile(r"\blist\((:\w+)\) AS (\w+)"), r"unnest(\1::text[]) AS \2(value)"),
        (re.compile(r"\bitems\(([\w.]+)\) AS (\w+)"), r"json_array_elements_text(\1) AS \2(value)"),
    ),
}


class Query(NamedTuple):
    text: str
    encoded: bytes
    parameters: tuple[str, ...]
    """Names in the order of their numbers."""
    array_types: tuple[str, ...]
    """Types of the parameters that are arrays, which come first."""


class Queries(dict[str, Query]):
    """The queries of one database by name, each compiled when it is first used."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__()
        self._dialect: Dialect = dialect
        package = resources.files("handrail.store")
        shared = sorted(package.joinpath("sql").iterdir(), key=lambda file: file.name)
        self.sources: dict[str, str] = {}
        for file in (*shared, package.joinpath(dialect, "dialect.sql")):
            self.sources |= _split_file(file.read_text("utf-8"))
        self._filtered: dict[tuple[str, ...], Query] = {}

    def __missing__(self, name: str) -> Query:
        query = self[name] = compile_query(self.sources[name], self._dialect)
        return query

    def select_filters(self, name: str, filters: Mapping[str, object]) -> Query:
        """Return the query without the lines of filters that are None, or not given."""
        key = (name, *(name for name, value in filters.items() if value is not None))
        query = self._filtered.get(key)
        if query is None:
            assert filters.keys() <= set(self[name].parameters), f"{name} has no such filter"
            lines = [
                line
                for line in self.sources[name].splitlines()
                if all(filters.get(used) is not None for used in _PARAMETER.findall(line))
            ]
            query = self._filtered[key] = compile_query("\n".join(lines), self._dialect)
        return query


def text_filters(text: str | None) -> dict[str, str | None]:
    """Return patterns for a text in a title or at the start of an id, wildcards escaped."""
    if text is None:
        return {}
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return {"within": f"%{escaped}%", "prefix": f"{escaped}%"}


def _split_file(text: str) -> dict[str, str]:
    headers = list(_HEADER.finditer(text))
    ends = [match.start() for match in headers[1:]] + [len(text)]
    sources = {
        match[1]: _without_comments(text[match.end() : end]).rstrip(";")
        for match, end in zip(headers, ends, strict=True)
    }
    assert len(sources) == len(headers), "a name stands twice in a file"
    return sources


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()


def compile_query(source: str, dialect: Dialect) -> Query:
    """Compile a query: expand what is written once for both databases, number the parameters."""
    text = _MACRO.sub(lambda match: _expand(match, dialect), source)
    array_types = dict(_ARRAY_PARAMETER.findall(text))
    for pattern, replacement in _REPLACEMENTS[dialect]:
        text = pattern.sub(replacement, text)
    sign = "?" if dialect == "sqlite" else "$"
    numbers: dict[str, str] = {}
    text = _PARAMETER.sub(
        lambda match: numbers.setdefault(match[1], f"{sign}{len(numbers) + 1}"), text
    )
    parameters = tuple(numbers)
    assert parameters[: len(array_types)] == tuple(array_types), "arrays come first"
    return Query(text, text.encode(), parameters, tuple(array_types.values()))


def _expand(match: re.Match[str], dialect: Dialect) -> str:
    kind, name, left_out, alias = match.groups()
    omitted = {word.removeprefix("-") for word in left_out.split()}
    columns = columns_of(_find_row_type(name))
    assert omitted <= {column.name for column in columns}, f"{match[0]} names no column"
    if kind is None:
        return _select_list(columns, omitted, f"{alias}." if alias else "")
    if kind == "params":
        return ", ".join(f":{column.name}{column.cast or f'::{column.type}'}" for column in columns)
    if kind == "set":
        source, casts = (":", False) if dialect == "sqlite" else ("i.", True)
        return ", ".join(
            f"{column.name} = {source}{column.name}{column.cast if casts else ''}"
            for column in columns
            if column.name not in omitted
        )
    if kind == "values" and dialect == "sqlite":
        return f"VALUES ({', '.join(f':{column.name}' for column in columns)})"
    names = ", ".join(column.name for column in columns)
    arrays = ", ".join(f":{column.name}::{column.type}[]" for column in columns)
    rows = f"unnest({arrays}) WITH ORDINALITY AS i({names}, ordinal)"
    if kind == "rows":
        return rows
    assert kind == "values", match[0]
    values = ", ".join(f"i.{column.name}{column.cast}" for column in columns)
    return f"SELECT {values} FROM {rows} ORDER BY i.ordinal"  # noqa: S608 - from our own structs


def _select_list(columns: tuple[Column, ...], omitted: set[str], prefix: str) -> str:
    return ", ".join(
        f"NULL::{column.type}" if column.name in omitted else f"{prefix}{column.name}"
        for column in columns
    )


def _find_row_type(name: str) -> type[Row]:
    waiting = [Row]
    while waiting:
        row_type = waiting.pop()
        if row_type.__name__ == name:
            return row_type
        waiting += row_type.__subclasses__()
    raise KeyError(name)
