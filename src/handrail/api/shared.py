"""Types that several subjects of the API share: paging, bounded texts, errors, authors."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from handrail.kernel.decision import Value
from handrail.views.view_types import CURSOR_CHARS_MAX, PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX

JSON = "application/json"
MARKDOWN = "text/markdown"
EVENT_STREAM = "text/event-stream"
PROBLEM = "application/problem+json"

NAME_CHARS_MAX = 200
INTEGER_MAX = 2**53 - 1
"""The largest whole number that every JSON parser reads exactly."""

Document = dict[str, Any]
JsonValue = dict[str, Any] | list[Any] | str | int | float | bool | None
NulFreeText = Annotated[str, Meta(pattern=r"^[^\x00]*$")]
"""A text that is stored as text: PostgreSQL cannot store a NUL."""
PlainName = Annotated[str, Meta(max_length=NAME_CHARS_MAX, pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)")]
Seconds = Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)]
DateTime = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""A time in a query: the server parses it, because msgspec would also accept numbers."""
DefinitionId = Annotated[str, Meta(max_length=1_000, description="Of this definition, by its id.")]
ApprovalDecision = Literal["approve", "reject", "revise"]
Review = Literal["required", "skip"]


class PageQuery(Value):
    cursor: Annotated[
        str, Meta(max_length=CURSOR_CHARS_MAX, description="`next_cursor` of the page before.")
    ] = ""
    limit: Annotated[int, Meta(ge=1, le=PAGE_ITEMS_MAX, description="Items on a page.")] = (
        PAGE_ITEMS_DEFAULT
    )


class AuthoredBody(Value):
    """Base of bodies: author fields are optional, and must name the token's owner."""

    by: NulFreeText = ""
    actor: NulFreeText = ""
    filed_by: NulFreeText = ""


class FieldError(msgspec.Struct, frozen=True):
    """One wrong field of the input."""

    code: str
    path: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" + (f" ({self.hint})" if self.hint else "")


class ProblemDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an error response (RFC 9457). A proxy's body may lack any of the fields."""

    type: str = ""
    title: str = ""
    status: int = 0
    code: str = ""
    detail: str = ""
    errors: tuple[FieldError, ...] = ()
