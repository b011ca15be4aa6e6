"""The base class of rows: a row's fields are the columns of its table, in order."""

from collections.abc import Sequence
from typing import Any, TypeVar, dataclass_transform

import msgspec


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A row of a table; its fields are the columns, in order."""


R = TypeVar("R", bound=Row)


def row_of(kind: type[R], values: Sequence[Any]) -> R:
    """Build a row from the values read."""
    return kind(**dict(zip(kind.__struct_fields__, values, strict=True)))
