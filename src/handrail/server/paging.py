"""Lists: `{items, next_cursor}`, a page at a time, by `limit` and `cursor`; and since when."""

from datetime import UTC, datetime
from typing import Annotated

from litestar.params import Parameter

from handrail.engine.pages import CURSOR_MAX, LIMIT_MAX
from handrail.server.problems import Place, Wrong

Limit = Annotated[int, Parameter(ge=1, le=LIMIT_MAX, description="Items on a page.")]
Cursor = Annotated[
    str, Parameter(max_length=CURSOR_MAX, description="`next_cursor` of the page before.")
]


def in_utc(name: str, given: datetime | None) -> datetime | None:
    """A moment of the query; one without a zone is in UTC."""
    if given is None:
        return None
    try:
        return (given if given.tzinfo else given.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError as error:
        place = Place("bad_parameter", name, f"{given} is out of range", "say a year of our time")
        raise Wrong(422, "bad_parameter", place.message, errors=(place,)) from error
