"""The base class of rows: a row's fields are the columns of its table, in order."""

from typing import Annotated, dataclass_transform

import msgspec

Time = Annotated[str, "timestamptz"]
"""A moment as `iso` formats it."""
Json = Annotated[str, "json"]
"""A document, as text."""


@dataclass_transform(frozen_default=True)
class Row(msgspec.Struct, frozen=True, gc=False):
    """A row of a table; its fields are the columns, in order."""
