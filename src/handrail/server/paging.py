"""Query parameters of lists (`{items, next_cursor}`): `limit`, `cursor`, and times."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from litestar.params import Parameter

from handrail.server.problems import FieldError, HTTPProblemError
from handrail.views.pages import CURSOR_CHARS_MAX, PAGE_ITEMS_MAX

Limit = Annotated[int, Parameter(ge=1, le=PAGE_ITEMS_MAX, description="Items on a page.")]
Cursor = Annotated[
    str, Parameter(max_length=CURSOR_CHARS_MAX, description="`next_cursor` of the page before.")
]


DATE_TIME_SCHEMA = {"format": "date-time"}
"""The OpenAPI schema of a time in the query; `parse_time` parses it. Litestar would also accept
numbers, and fails on some."""


def parse_time(name: str, text: str | None) -> datetime | None:
    """Parse a time of the query; without a zone it is in UTC."""
    if text is None:
        return None
    try:
        time = msgspec.convert(text, datetime)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (msgspec.ValidationError, OverflowError) as error:
        message, hint = f"'{text[:40]}' is no moment of our time", "say 2026-01-31T12:00:00Z"
        field_error = FieldError("bad_parameter", name, message, hint)
        raise HTTPProblemError(
            422, "bad_parameter", f"{name}: {message}; {hint}", errors=(field_error,)
        ) from error
