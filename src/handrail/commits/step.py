"""The agent of a commit node: applies what a person approved, as the run's own record says it.

Nothing is taken from the bead's context: that is what agents write. The proposal is the one that
stood there when the question was asked which a person answered with yes, and whose digest that
answer is bound to. Without such an answer nothing is committed, nor without one of a ceo or above:
a definition may name any approvers, but not decide who may change the repository.
"""

import contextlib
from collections.abc import Awaitable, Callable

import msgspec

from handrail.commits.lane import Applied, Change, Lane
from handrail.commits.patches import Proposal
from handrail.commits.trouble import NotApplied
from handrail.engine.dispatch import Dispatch
from handrail.kernel.approval import Approval, approvals
from handrail.kernel.decision import learn
from handrail.kernel.definition import LEVELS
from handrail.kernel.result import Evidence, Outcome, Result
from handrail.kernel.run.events import Answered, Asked, Reasked, Reported
from handrail.kernel.run.people import OVERRIDE
from handrail.kernel.run.state import Run
from handrail.kernel.steps import Events

learn(Proposal)


def commit_agent(lane: Lane, name: str) -> Callable[[Dispatch], Awaitable[Result]]:
    """An agent for commit nodes of that repository; `name` stands as committer."""

    async def commit(dispatch: Dispatch) -> Result:
        try:
            change = approved_change(dispatch, name)
            if dispatch.lock is None:
                told = f"'{dispatch.node}' holds no commit lock"
                raise NotApplied("no_lock", told, "make it a commit node: `kind: commit`")
            return _done(await lane.apply(change, dispatch.lock))
        except NotApplied as trouble:
            told = {"code": trouble.code, "told": str(trouble), **trouble.details}
            return Result(
                outcome=Outcome.FAILURE,
                text=str(trouble),
                reason=str(trouble),
                data={"not_applied": told},
            )

    return commit


def approved_change(dispatch: Dispatch, committer: str) -> Change:
    """What the last answer of a person lets be committed. Raises `NotApplied` if nothing."""
    run, events = dispatch.run, dispatch.past
    asked = [one for one in approvals(events) if one.type == "approval" and one.decision]
    if not asked or asked[-1].decision != "approve":
        told = f"nobody approved a patch in run '{run.id}'"
        raise NotApplied("not_approved", told, "ask a person before the commit node")
    if not _ceo_approved(events, asked[-1].id):
        names = ", ".join(asked[-1].approved_by)
        message = f"no ceo approved the patch of run '{run.id}', only {names}"
        raise NotApplied("not_approved", message, "let a ceo approve it before the commit node")
    return _change(run, events, asked[-1], committer)


def _ceo_approved(events: Events, approval_id: str) -> bool:
    return any(
        event.decision == "approve" and LEVELS.get(event.role, -1) >= LEVELS[OVERRIDE]
        for event in events
        if isinstance(event, Answered) and event.question_id == approval_id
    )


def changes_of(run: Run, events: Events) -> tuple[Change, ...]:
    """All that people have let this run commit, the newest first, whatever they said later."""
    found: list[Change] = []
    for one in reversed(approvals(events)):
        if one.type == "approval" and one.decision == "approve":
            with contextlib.suppress(NotApplied):
                found.append(_change(run, events, one, ""))
    return tuple(found)


def _change(run: Run, events: Events, approval: Approval, committer: str) -> Change:
    try:
        proposal = msgspec.convert(approval.proposal, Proposal)
    except msgspec.ValidationError as error:
        told = f"what {approval.by} approved is no patch: {error}"
        hint = "put the lane's proposal into the context as `proposal`"
        raise NotApplied("not_approved", told, hint) from None
    return Change(
        bead=run.bead_id,
        run=run.id,
        title=run.title,
        author=_author(events, approval, committer),
        committer=committer,
        approved_by=approval.approved_by,
        proposal=proposal,
    )


def _author(events: Events, approval: Approval, otherwise: str) -> str:
    """Who brought the proposal that was approved."""
    author = otherwise
    for event in events:
        if isinstance(event, Asked | Reasked) and event.question.id == approval.id:
            break
        if isinstance(event, Reported) and "proposal" in event.result.data:
            author = event.agent
    return author


def _done(applied: Applied) -> Result:
    again = " (an earlier attempt had pushed it)" if applied.found else ""
    return Result(
        outcome=Outcome.SUCCESS,
        text=f"Committed as {applied.commit}{again}.",
        data={"commit": applied.commit, "not_applied": None},
        evidence=Evidence(files=dict.fromkeys(applied.files, applied.commit)),
    )
