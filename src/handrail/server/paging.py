"""Lists: `{items, next_cursor}`, a page at a time, by `limit` and `cursor`; and since when."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from litestar.params import Parameter

from handrail.engine.pages import CURSOR_MAX, LIMIT_MAX
from handrail.server.problems import Place, Wrong

Limit = Annotated[int, Parameter(ge=1, le=LIMIT_MAX, description="Items on a page.")]
Cursor = Annotated[
    str, Parameter(max_length=CURSOR_MAX, description="`next_cursor` of the page before.")
]


MOMENT = {"format": "date-time"}
"""For the OpenAPI document: a moment of the query, which is read here. Litestar would also take a
number for one, and fails on some."""


def in_utc(name: str, given: str | None) -> datetime | None:
    """A moment of the query; one without a zone is in UTC."""
    if given is None:
        return None
    try:
        found = msgspec.convert(given, datetime)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (msgspec.ValidationError, OverflowError) as error:
        told, hint = f"'{given[:40]}' is no moment of our time", "say 2026-01-31T12:00:00Z"
        place = Place("bad_parameter", name, told, hint)
        raise Wrong(422, "bad_parameter", f"{name}: {told}; {hint}", errors=(place,)) from error
