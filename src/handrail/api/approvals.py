"""Approvals: the inbox, the answers of people, and one-time links to answer with."""

# pyright: reportReturnType=false
# A declaration has no body.

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from handrail.api.operation import (
    OPEN,
    VIEWER,
    Access,
    C_co,
    CallGroup,
    PersonRole,
    Repeat,
    operation,
)
from handrail.api.shared import ApprovalDecision, AuthoredBody, NulFreeText, PageQuery, PlainName
from handrail.kernel.decision import Value
from handrail.views.approvals import Approval, ApprovalStatus
from handrail.views.run_view import RunView
from handrail.views.view_types import Page, View

LINK_BODY_BYTES_MAX = 1_000_000


class ApprovalQuery(PageQuery):
    status: Annotated[
        ApprovalStatus | None, Meta(description="Approvals with this status; left out, all.")
    ] = None


class ApprovalAnswer(AuthoredBody, kw_only=True):
    """A text, a decision, or both. `digest` is the digest of what the person saw."""

    text: NulFreeText = ""
    decision: ApprovalDecision | None = None
    digest: NulFreeText = ""


class AnsweredApproval(View):
    """The approval and the run after the answer."""

    approval: Approval
    execution: RunView


class NewLink(Value):
    """`name`: the link's person; default: the caller. An admin may name others, with a role."""

    name: PlainName = ""
    role: PersonRole = "operator"
    expires: Annotated[str, Meta(max_length=40)] = ""
    """Such as "2d"; the link ends with its approval in any case."""


class MadeLink(View):
    """A new answer link, shown only once; the server stores only a digest of the secret."""

    id: str
    approval_id: str
    name: str
    path: str
    url: str
    """Empty without the setting public_url."""
    expires_at: datetime


class LinkView(View):
    """What the link will do: `does` has the effect of each decision."""

    approval: Approval
    name: str
    expires_at: datetime
    does: dict[str, str]


class LinkAnswer(Value):
    text: NulFreeText = ""
    decision: ApprovalDecision | None = None


class LinkAnswered(View):
    """The approval after the answer, and the status of its run."""

    approval: Approval
    run_status: str
    terminal_status: str | None


class ApprovalCalls(CallGroup[C_co], subject="approvals"):
    """Questions to people, and their answers."""

    @operation("GET", "/approvals", query=ApprovalQuery, access=VIEWER)
    def list(
        self,
        *,
        status: ApprovalStatus | None = None,
        limit: int | None = None,
        cursor: str = "",
    ) -> Page[Approval]:
        """List approvals, the newest first."""

    @operation("GET", "/approvals/{approval_id}", access=VIEWER, problems=(404,))
    def get(self, approval_id: str) -> Approval:
        """Return one approval in full."""

    @operation(
        "POST",
        "/approvals/{approval_id}/answer",
        body=ApprovalAnswer,
        access=Access(
            people="operator",
            restriction="an operator answers clarification requests; a ceo answers any",
        ),
        problems=(404, 409),
    )
    def answer(
        self,
        approval_id: str,
        text: str = "",
        *,
        decision: ApprovalDecision | None = None,
        digest: str = "",
        key: str = "",
    ) -> AnsweredApproval:
        """Answer with a text or a decision; `digest` is the digest of what the person saw. A text
        that could mean either is 422 `ambiguous_answer`, and the approval stays open; one that was
        answered before, is void or has expired is 409."""


class AnswerLinkCalls(CallGroup[C_co], subject="answer_links"):
    """Links with which one person answers one question."""

    @operation(
        "POST",
        "/approvals/{approval_id}/links",
        body=NewLink,
        access=Access(
            people="viewer",
            restriction="for oneself, by who may answer it; an admin for anybody who may",
        ),
        status=201,
        problems=(404, 409),
        repeat=Repeat.ONCE,
    )
    def create(
        self,
        approval_id: str,
        *,
        name: str | None = None,
        role: PersonRole | None = None,
        expires: str | None = None,
    ) -> MadeLink:
        """Create a one-time link with which one person answers an approval, without a token."""

    @operation("GET", "/answer-links/{token}", access=OPEN, problems=(404, 409, 410))
    def get(self, token: str) -> LinkView:
        """Show what a link will do, without using it. `token` is the last part of its path. A
        browser gets a page."""

    @operation(
        "POST",
        "/answer-links/{token}",
        body=LinkAnswer,
        access=OPEN,
        problems=(404, 409, 410),
        body_bytes_max=LINK_BODY_BYTES_MAX,
    )
    def use(
        self, token: str, text: str = "", *, decision: ApprovalDecision | None = None
    ) -> LinkAnswered:
        """Answer an approval by its link, once, as JSON or with a form."""
