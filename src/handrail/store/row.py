"""A row of any table: its fields are the columns, in order."""

from collections.abc import Sequence
from typing import Any, TypeVar, dataclass_transform

import msgspec


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A row as it is written; its fields are the columns, in order."""


R = TypeVar("R", bound=Row)


def row_of(kind: type[R], values: Sequence[Any]) -> R:
    """A row as it was read."""
    return kind(**dict(zip(kind.__struct_fields__, values, strict=True)))
