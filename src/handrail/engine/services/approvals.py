"""Approvals: the inbox, and one approval with all that belongs to it.

In lists an approval is made from its row; the content of an open one is looked up in its run, with
the attempts that led to it. For a settled one all that is made from the run's events, for one
approval at a time.

A one-time link is one person's answer to one approval. Secrets stay outside: this module gets
digests only. The answer's own transaction makes sure that a link is used once (its key is the
link's id); links are stored so that they can be shown.
"""

import logging
from typing import Any, Literal

from msgspec.structs import replace

from handrail.engine.commit.gateway import CommandGateway
from handrail.engine.commit.run_change import decode_events, rebuild_run
from handrail.engine.environment import Clock, StoreAccess
from handrail.engine.errors import RefusedError, refuse, require_known
from handrail.engine.log_events import log_event
from handrail.engine.pagination import check_cursor, check_limit, refuse_cursor
from handrail.engine.queries.runs import RunReader, read_events
from handrail.kernel.decision import Refusal
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import Asked, Reasked, Reported
from handrail.kernel.run.human_commands import check_may_answer
from handrail.kernel.run.state import ApprovalKind, PendingApproval, Person, Run
from handrail.store.notifications import APPROVAL_LINKS_MAX, AnswerLinkRow
from handrail.store.record import AlteredRowError
from handrail.store.rows import ApprovalRow, iso, parse_iso
from handrail.store.store import Store
from handrail.views.approvals import (
    Approval,
    ApprovalStatus,
    Dossier,
    allowed_approvers,
    approvals,
    dossier,
    missing_approvers,
    next_steps,
)
from handrail.views.view_types import PAGE_ITEMS_DEFAULT, Page

log = logging.getLogger("handrail.engine")

APPROVAL_STATUSES: tuple[ApprovalStatus, ...] = ("open", "answered", "void", "expired")
CURSOR_SEPARATOR = "~"
"""Separates the time and the id in a cursor."""
SETTLED_CODES = ("ended", "not_open")
"""Refusals of an answer that the approval itself may explain better."""


class ApprovalService:
    """Lists approvals, and takes people's answers to them."""

    def __init__(
        self, access: StoreAccess, gateway: CommandGateway, reader: RunReader, clock: Clock
    ) -> None:
        self._access, self._store, self._gateway = access, access.store, gateway
        self._reader, self._clock = reader, clock

    async def list(
        self,
        *,
        status: str | None = None,
        execution_id: str | None = None,
        cursor: str = "",
        limit: int = PAGE_ITEMS_DEFAULT,
    ) -> Page[Approval]:
        """List approvals, the newest first. Open ones have the result that they show and the
        attempts; for settled ones only `get` returns these. Refused: bad_status."""
        before, limit = _parse_cursor(check_cursor(cursor)), check_limit(limit)
        if status is not None and status not in APPROVAL_STATUSES:
            refuse(
                "bad_status",
                f"'{status[:40]}' is not a status of an approval",
                f"it is one of {', '.join(APPROVAL_STATUSES)}",
            )

        def page(store: Store) -> tuple[list[ApprovalRow], list[Approval]]:
            rows = store.approvals.list_newest(
                execution_id=execution_id, status=status, before=before, limit=limit + 1
            )
            return rows, _to_approvals(store, rows[:limit])

        rows, items = await self._access.query(page)
        last_row = rows[limit - 1] if len(rows) > limit else None
        next_cursor = (
            f"{last_row.created_at}{CURSOR_SEPARATOR}{last_row.id}"
            if last_row is not None
            else None
        )
        return Page(items=tuple(items), next_cursor=next_cursor)

    async def get(self, approval_id: str) -> Approval:
        """Return one approval, with its dossier. Refused: unknown_approval."""
        row = require_known(
            await self._access.call(self._store.approvals.get, approval_id),
            "unknown_approval",
            approval_id,
        )
        events = await self._reader.history(await self._reader.state(row.execution_id))
        match = next(
            (approval for approval in approvals(events) if approval.id == approval_id), None
        )
        assert match is not None, "what has a row was asked"
        return match

    async def answer(
        self,
        approval_id: str,
        text: str = "",
        *,
        by: Person | str,
        decision: Literal["approve", "reject", "revise"] | None = None,
        digest: str = "",
        key: str = "",
    ) -> Run:
        """Answer an approval as a person; `digest` is that of what the person saw."""
        person = Person(name=by) if isinstance(by, str) else by
        run_id = approval_id.rpartition(".q")[0]
        command = c.Answer(
            approval_id=approval_id, by=person, text=text, decision=decision, digest=digest
        )
        key_row = self._gateway.key_row(key, person.name, [approval_id, text, decision, digest], {})
        try:
            result = await self._gateway.execute(run_id, command, key=key_row)
        except RefusedError as refused:
            row = await self._access.call(self._store.approvals.get, approval_id)
            raise RefusedError(_explain_settled(refused.refusal, row)) from None
        return result.run if result.run is not None else await self._reader.state(run_id)

    async def add_link(self, row: AnswerLinkRow) -> None:
        """Store a link. Refused: too_many_links."""
        self._access.check_open()
        if (
            not await self._access.call(self._store.notifications.add_answer_link, row)
            and await self.link(row.digest) is None
        ):
            refuse(
                "too_many_links",
                f"'{row.approval_id}' has {APPROVAL_LINKS_MAX} links already",
                "use one of them",
            )

    async def link(self, digest: str) -> AnswerLinkRow | None:
        """Return a link, even if it was used or has expired. None also for one that was written to
        the database behind Handrail's back."""
        try:
            return await self._access.call(self._store.notifications.get_answer_link, digest)
        except AlteredRowError as error:
            log_event(log, "row_altered", reason=str(error))
            return None

    async def use_link(self, link_id: str) -> None:
        self._access.check_open()
        await self._access.call(
            self._store.notifications.use_answer_link, link_id, iso(self._clock())
        )

    async def check_may_answer(self, approval_id: str, person: Person) -> None:
        """Refuse what an answer of that person would be refused for now, whatever its text."""
        run = await self._reader.state(approval_id.rpartition(".q")[0])
        pending = run.pending_approvals.get(approval_id)
        if pending is None:
            refuse("not_open", f"'{approval_id}' is not open", "look at the list of approvals")
        refusal = check_may_answer(pending, person)
        if refusal is not None:
            raise RefusedError(refusal)


def _parse_cursor(cursor: str) -> tuple[str, str] | None:
    if not cursor:
        return None
    at, separator, approval_id = cursor.partition(CURSOR_SEPARATOR)
    try:
        is_valid = bool(separator) and iso(parse_iso(at)) == at
    except ValueError:
        is_valid = False
    if not is_valid:
        refuse_cursor(cursor)
    return at, approval_id


def _to_approvals(store: Store, rows: list[ApprovalRow]) -> list[Approval]:
    """Build approvals from rows, with the content of the open ones."""
    runs = list({row.execution_id for row in rows if row.status == "open"})
    loaded_runs = store.runs.load(runs) if runs else {}
    open_runs = {
        run_id: rebuild_run(stored.row, stored.tail) for run_id, stored in loaded_runs.items()
    }
    return [_to_approval(store, row, open_runs.get(row.execution_id)) for row in rows]


def _to_approval(store: Store, row: ApprovalRow, run: Run | None) -> Approval:
    pending = run.pending_approvals.get(row.id) if run is not None else None
    is_escalation = row.type == ApprovalKind.ESCALATION
    led_to = _dossier(store, run, pending) if run and pending else Dossier()
    status: ApprovalStatus = APPROVAL_STATUSES[APPROVAL_STATUSES.index(row.status)]  # pyright: ignore[reportArgumentType] - it is one
    return Approval(
        id=row.id,
        type=ApprovalKind(row.type),
        status=status,
        bead_id=row.id,
        original_bead_id=row.bead_id,
        execution_id=row.execution_id,
        node_id=row.node_id,
        question=row.question,
        result=_subject_text(store, row.execution_id, pending) if pending is not None else "",
        digest=row.digest,
        failure_reason=row.question if is_escalation else "",
        attempt_history=led_to.attempts,
        failed_check=led_to.failed_check,
        proposed_next_steps=next_steps(pending) if pending is not None else (),
        created_at=parse_iso(row.created_at),
        deadline=pending.deadline if pending is not None else parse_iso(row.deadline),
        answer=row.answer or "",
        decision=row.decision or "",
        by=row.answered_by or "",
        options=pending.options if pending is not None else (),
        proposal=run.context.get("proposal") if run is not None and pending is not None else None,
        **(_approver_fields(pending) if pending is not None else {}),
    )


def _approver_fields(pending: PendingApproval) -> dict[str, Any]:
    """Who may answer, and who has answered already."""
    return {
        "own": pending.own,
        "approvers": allowed_approvers(pending),
        "quorum": pending.quorum,
        "approved_by": pending.approved_by,
        "waits_for": missing_approvers(pending),
    }


def _subject_text(store: Store, run_id: str, pending: PendingApproval) -> str:
    """The whole text that the approval is about."""
    if not pending.result:
        return ""
    (entry,) = store.journal.read(run_id, pending.result - 1, 1)
    event = decode_events(entry.body)[pending.result - (entry.seq - entry.count) - 1]
    return event.result.text if isinstance(event, Reported) else ""


def _dossier(store: Store, run: Run, pending: PendingApproval) -> Dossier:
    """What led to the approval; an approval node has no attempts of its own."""
    if not pending.own and pending.kind is not ApprovalKind.ESCALATION:
        return Dossier()
    events = read_events(store, run.id, run.seq)
    asked_index = next(
        index
        for index, event in enumerate(events)
        if isinstance(event, Asked | Reasked) and event.approval.id == pending.id
    )
    return dossier(events[:asked_index], pending)


def _explain_settled(refusal: Refusal, row: ApprovalRow | None) -> Refusal:
    """Name the answer that stands, if there is one; else keep the refusal."""
    if refusal.code not in SETTLED_CODES or row is None or row.status != "answered":
        return refusal
    assert row.settled_at is not None, "an answer settles it"
    message = (
        f"approval '{row.id}' was answered already: {row.decision or 'answer'} "
        f"by {row.answered_by} at {parse_iso(row.settled_at):%Y-%m-%d %H:%M:%S} UTC"
    )
    return replace(
        refusal, message=message, hint=f"`handrail why {row.execution_id}` says what came of it"
    )
