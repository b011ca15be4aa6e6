"""The agent of a commit node: applies what a person approved, according to the run's own record.

Nothing comes from the bead's context, which agents write. The proposal is the one that stood there
when the approval was opened that a person answered with yes, and whose digest that answer is bound
to. Without such an answer nothing is committed, nor without one of a ceo or above: a definition may
name any approvers, but not decide who may change the repository.
"""

import contextlib
from collections.abc import Awaitable, Callable

import msgspec

from handrail.commits.errors import CommitRejectedError
from handrail.commits.lane import AppliedCommit, ApprovedChange, CommitLane
from handrail.commits.patches import PatchProposal
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.kernel.decision import prepare_types
from handrail.kernel.definition.model import OVERRIDE_LEVEL, PERSON_LEVELS
from handrail.kernel.result import Evidence, Outcome, Result
from handrail.kernel.run.events import Answered, Asked, Reasked, Reported
from handrail.kernel.run.state import Run
from handrail.views.approvals import Approval, approvals
from handrail.views.steps import Events

prepare_types(PatchProposal)


def commit_agent(lane: CommitLane, name: str) -> Callable[[Dispatch], Awaitable[Result]]:
    """Make an agent for commit nodes of that repository; `name` is the committer."""

    async def commit(dispatch: Dispatch) -> Result:
        try:
            change = latest_approved_change(dispatch, name)
            if dispatch.lock is None:
                message = f"'{dispatch.node}' holds no commit lock"
                raise CommitRejectedError(
                    "no_lock", message, "make it a commit node: `kind: commit`"
                )
            return _success_result(await lane.apply(change, dispatch.lock))
        except CommitRejectedError as error:
            details = {"code": error.code, "told": str(error), **error.details}
            return Result(
                outcome=Outcome.FAILURE,
                text=str(error),
                reason=str(error),
                data={"not_applied": details},
            )

    return commit


def latest_approved_change(dispatch: Dispatch, committer: str) -> ApprovedChange:
    """Return the change that the last answer of a person approves.

    Raises `CommitRejectedError` if there is none.
    """
    run, events = dispatch.run, dispatch.events
    decided_approvals = [
        approval
        for approval in approvals(events)
        if approval.type == "approval" and approval.decision
    ]
    if not decided_approvals or decided_approvals[-1].decision != "approve":
        problem = f"nobody approved a patch in run '{run.id}'"
        raise CommitRejectedError("not_approved", problem, "ask a person before the commit node")
    if not _ceo_approved(events, decided_approvals[-1].id):
        names = ", ".join(decided_approvals[-1].approved_by)
        message = f"no ceo approved the patch of run '{run.id}', only {names}"
        raise CommitRejectedError(
            "not_approved", message, "let a ceo approve it before the commit node"
        )
    return _build_change(run, events, decided_approvals[-1], committer)


def _ceo_approved(events: Events, approval_id: str) -> bool:
    return any(
        event.decision == "approve"
        and PERSON_LEVELS.get(event.role, -1) >= PERSON_LEVELS[OVERRIDE_LEVEL]
        for event in events
        if isinstance(event, Answered) and event.approval_id == approval_id
    )


def approved_changes(run: Run, events: Events) -> tuple[ApprovedChange, ...]:
    """Return all changes that people have approved in this run, the newest first, whatever they
    said later.
    """
    changes: list[ApprovedChange] = []
    for approval in reversed(approvals(events)):
        if approval.type == "approval" and approval.decision == "approve":
            with contextlib.suppress(CommitRejectedError):
                changes.append(_build_change(run, events, approval, ""))
    return tuple(changes)


def _build_change(run: Run, events: Events, approval: Approval, committer: str) -> ApprovedChange:
    try:
        proposal = msgspec.convert(approval.proposal, PatchProposal)
    except msgspec.ValidationError as error:
        message = f"what {approval.by} approved is no patch: {error}"
        hint = "put the lane's proposal into the context as `proposal`"
        raise CommitRejectedError("not_approved", message, hint) from None
    return ApprovedChange(
        bead_id=run.bead_id,
        run_id=run.id,
        title=run.title,
        author=_proposal_author(events, approval, committer),
        committer=committer,
        approved_by=approval.approved_by,
        proposal=proposal,
    )


def _proposal_author(events: Events, approval: Approval, default: str) -> str:
    """Return the agent that made the approved proposal."""
    author = default
    for event in events:
        if isinstance(event, Asked | Reasked) and event.approval.id == approval.id:
            break
        if isinstance(event, Reported) and "proposal" in event.result.data:
            author = event.agent
    return author


def _success_result(applied: AppliedCommit) -> Result:
    note = " (an earlier attempt had pushed it)" if applied.already_pushed else ""
    return Result(
        outcome=Outcome.SUCCESS,
        text=f"Committed as {applied.commit}{note}.",
        data={"commit": applied.commit, "not_applied": None},
        evidence=Evidence(files=dict.fromkeys(applied.files, applied.commit)),
    )
