"""The audit record: its events, and its verification."""

# pyright: reportReturnType=false
# A declaration has no body.

from typing import Annotated

from msgspec import Meta

from handrail.api.operation import VIEWER, C_co, CallGroup, operation
from handrail.api.shared import NAME_CHARS_MAX, PageQuery
from handrail.kernel.decision import Value
from handrail.views.audit import Verification
from handrail.views.event_view import EventView
from handrail.views.view_types import Page

VERIFY_SECONDS_MAX = 3600.0
"""The longest that verifying the whole audit record may take."""


class AuditQuery(PageQuery):
    execution_id: (
        Annotated[str, Meta(max_length=NAME_CHARS_MAX, description="Of this run.")] | None
    ) = None
    actor: (
        Annotated[
            str,
            Meta(max_length=NAME_CHARS_MAX, description="By this person or agent, or `engine`."),
        ]
        | None
    ) = None
    people: Annotated[bool, Meta(description="Only what people did, and how runs ended.")] = False


class HeadQuery(Value):
    head: (
        Annotated[
            str,
            Meta(
                pattern=r"^[0-9a-f]{64}$",
                description="A head that was saved elsewhere: it must be among the record's heads.",
            ),
        ]
        | None
    ) = None


class AuditVerification(Verification, frozen=True, kw_only=True, omit_defaults=False):
    """What was verified, and what is wrong with it. Save the `head` elsewhere."""

    ok: bool


class AuditCalls(CallGroup[C_co], subject="audit"):
    """The record of everything, and whether it is unaltered."""

    @operation("GET", "/audit", query=AuditQuery, access=VIEWER, problems=(404,))
    def list(
        self,
        *,
        execution_id: str | None = None,
        actor: str | None = None,
        people: bool = False,
        limit: int | None = None,
        cursor: str = "",
    ) -> Page[EventView]:
        """List audit events, the newest first: of one run, by one actor, or by people only; each
        with its `commit`. A page may be short, or empty, without being the last."""

    @operation(
        "GET",
        "/audit/verify",
        query=HeadQuery,
        access=VIEWER,
        problems=(409,),
        seconds_max=VERIFY_SECONDS_MAX,
    )
    def verify(self, *, head: str | None = None) -> AuditVerification:
        """Verify that the record is unaltered: every hash again, and every row against the events.
        The server reads the whole record, which takes time; who asks while a check is under way
        gets its result. `head` was saved elsewhere, and must be one of the record's heads."""
