"""Rows, and the columns that their fields are: names, types and casts.

A row of a batch crosses to PostgreSQL as one array per column; a column of times or documents
crosses as text and is cast by the statement.
"""

from functools import cache
from types import NoneType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

Time = Annotated[str, "timestamptz"]
"""A moment as `iso` formats it."""
Json = Annotated[str, "json"]
"""A document, as text."""


@dataclass_transform(frozen_default=True)
class Row(msgspec.Struct, frozen=True, gc=False):
    """A row of a table; its fields are the columns, in order."""


TYPES: dict[type, str] = {
    str: "text",
    int: "bigint",
    bytes: "bytea",
    bool: "boolean",
    float: "double precision",
}
"""The type in which a value crosses to PostgreSQL."""


class Column(NamedTuple):
    name: str
    type: str
    """Of the value that crosses to PostgreSQL."""
    cast: str
    """The column's own type, with `::`, if it differs; else empty."""
    nullable: bool


@cache
def columns_of(row_type: type[Row]) -> tuple[Column, ...]:
    """Return the columns of a row, in order."""
    hints = get_type_hints(row_type, include_extras=True)
    return tuple(_column(name, hints[name]) for name in row_type.__struct_fields__)


def _column(name: str, hint: Any) -> Column:  # noqa: ANN401 - a type, or a special form
    options = [option for option in get_args(hint) if option is not NoneType]
    nullable = NoneType in get_args(hint)
    if nullable:
        (hint,) = options
    cast = ""
    if get_origin(hint) is Annotated:
        hint, sql_type = get_args(hint)
        cast = f"::{sql_type}"
    return Column(name, TYPES[hint], cast, nullable)
