"""Questions to people: the inbox, and one question with all that belongs to it.

In lists a question is made from its row; what an open one shows stands in its run, and is looked
up, with the attempts that led to it. Of one that is settled all that is made from the run's events,
for one question at a time.
"""

from typing import Any, NoReturn

from handrail.engine.journal import read_events
from handrail.engine.pages import LIMIT, Page, bad_cursor, checked_cursor, checked_limit, refuse
from handrail.engine.project import decode_events, loaded
from handrail.engine.runs import WithRuns
from handrail.kernel.approval import (
    Approval,
    Attempt,
    Status,
    approvals,
    asked_of,
    next_steps,
    waits_for,
)
from handrail.kernel.run.events import Reported
from handrail.kernel.run.state import Question, QuestionKind, Run
from handrail.store.office import Office
from handrail.store.port import ApprovalRow, iso, moment

STATUSES: tuple[Status, ...] = ("open", "answered", "void", "expired")
BETWEEN = "~"
"""Stands in a cursor between the time and the id."""


class WithApprovals(WithRuns):
    """An engine whose questions can be listed."""

    async def approvals(
        self,
        *,
        status: str | None = None,
        execution_id: str | None = None,
        cursor: str = "",
        limit: int = LIMIT,
    ) -> Page[Approval]:
        """Those asked last come first. Open ones have the result that they show and the attempts;
        of those that are settled these stand in `approval` alone. Refused: bad_status."""
        before, limit = _before(checked_cursor(cursor)), checked_limit(limit)
        if status is not None and status not in STATUSES:
            told = f"'{status[:40]}' is no status of an approval"
            refuse("bad_status", told, f"it is one of {', '.join(STATUSES)}")

        def page(store: Office) -> tuple[list[ApprovalRow], list[Approval]]:
            rows = store.approvals_page(
                execution_id=execution_id, status=status, before=before, limit=limit + 1
            )
            return rows, _items(store, rows[:limit])

        rows, items = await self._slowly(page)
        last = rows[limit - 1] if len(rows) > limit else None
        after = f"{last.created_at}{BETWEEN}{last.id}" if last is not None else None
        return Page(items=tuple(items), next_cursor=after)

    async def approval(self, approval_id: str) -> Approval:
        """One, with its dossier. Refused: unknown_approval."""
        row: ApprovalRow | None = await self._io(self.store.approval, approval_id)
        if row is None:
            _unknown(approval_id)
        events = await self.history(row.execution_id)
        found = next((one for one in approvals(events) if one.id == approval_id), None)
        assert found is not None, "what has a row was asked"
        return found


def _before(cursor: str) -> tuple[str, str] | None:
    if not cursor:
        return None
    at, between, last = cursor.partition(BETWEEN)
    try:
        known = bool(between) and iso(moment(at)) == at
    except ValueError:
        known = False
    if not known:
        bad_cursor(cursor)
    return at, last


def _items(store: Office, rows: list[ApprovalRow]) -> list[Approval]:
    """With what the open ones show."""
    runs = list({row.execution_id for row in rows if row.status == "open"})
    found = store.load(runs) if runs else {}
    standing = {run_id: loaded(one.subject, one.tail) for run_id, one in found.items()}
    return [_item(store, row, standing.get(row.execution_id)) for row in rows]


def _item(store: Office, row: ApprovalRow, run: Run | None) -> Approval:
    question = run.questions.get(row.id) if run is not None else None
    escalated = row.type == QuestionKind.ESCALATION
    status: Status = STATUSES[STATUSES.index(row.status)]  # pyright: ignore[reportArgumentType] - it is one
    return Approval(
        id=row.id,
        type=QuestionKind(row.type),
        status=status,
        bead_id=row.id,
        original_bead_id=row.bead_id,
        execution_id=row.execution_id,
        node_id=row.node_id,
        question=row.question,
        result=_shown(store, row.execution_id, question) if question is not None else "",
        digest=row.digest,
        failure_reason=row.question if escalated else "",
        attempt_history=_attempts(store, run, question) if run and question else (),
        proposed_next_steps=next_steps(question) if question is not None else (),
        created_at=moment(row.created_at),
        deadline=question.deadline if question is not None else moment(row.deadline),
        answer=row.answer or "",
        decision=row.decision or "",
        by=row.answered_by or "",
        options=question.options if question is not None else (),
        proposal=run.context.get("proposal") if run is not None and question is not None else None,
        **(_asked(question) if question is not None else {}),
    )


def _asked(question: Question) -> dict[str, Any]:
    """Who is asked, and who has answered already."""
    return {
        "own": question.own,
        "approvers": asked_of(question),
        "quorum": question.quorum,
        "approved_by": question.approved_by,
        "waits_for": waits_for(question),
    }


def _shown(store: Office, run_id: str, question: Question) -> str:
    """The whole text that the question is about."""
    if not question.result:
        return ""
    (entry,) = store.journal(run_id, question.result - 1, 1)
    event = decode_events(entry.body)[question.result - (entry.seq - entry.count) - 1]
    return event.result.text if isinstance(event, Reported) else ""


def _attempts(store: Office, run: Run, question: Question) -> tuple[Attempt, ...]:
    """How it came to the question: nobody has tried anything at an approval node."""
    if not question.own and question.kind is not QuestionKind.ESCALATION:
        return ()
    found = approvals(read_events(store, run.id, run.seq))
    return next(one.attempt_history for one in found if one.id == question.id)


def _unknown(approval_id: str) -> NoReturn:
    told = f"there is no approval '{approval_id[:200]}'"
    refuse("unknown_approval", told, "look at the list of approvals")
