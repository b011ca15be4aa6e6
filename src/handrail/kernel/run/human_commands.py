"""Commands of people: answer, move, migrate, close, pause, resume, change the bead.

A table of levels decides who may, never a text. An answer settles an open approval once, and only
the approval that was shown (its digest). Approve and reject do not raise the measure; revise, once
more, move and migrate open a new stretch (K13, K14).
"""

from typing import Literal

from handrail.kernel.decision import Refusal, refuse
from handrail.kernel.definition.context_keys import refuse_reserved
from handrail.kernel.definition.model import OVERRIDE_LEVEL, PERSON_LEVELS, TerminalStatus
from handrail.kernel.input_checks import check_context_size
from handrail.kernel.run import team, workflow
from handrail.kernel.run.answer_text import AnswerIntent as Reading
from handrail.kernel.run.answer_text import classify_answer
from handrail.kernel.run.commands import Answer, Close, Migrate, Move, Patch, Pause, Resume
from handrail.kernel.run.decision_builder import DecisionBuilder, approval_digest
from handrail.kernel.run.events import Answered, Ended, Migrated, Patched, Paused, Reasked, Resumed
from handrail.kernel.run.state import (
    STOP_OPTIONS,
    ApprovalKind,
    PendingApproval,
    Person,
    Stop,
    to_timedelta,
)
from handrail.kernel.stop.rules import StopRule

REQUIRED_LEVELS = {
    ApprovalKind.CLARIFICATION: "operator",
    ApprovalKind.APPROVAL: "ceo",
    ApprovalKind.ESCALATION: "ceo",
}
OVERRIDE_RANK = PERSON_LEVELS[OVERRIDE_LEVEL]
DECISIONS = ("approve", "reject", "revise")
Verdict = Literal["approve", "reject", "revise", "answer"]


def answer(builder: DecisionBuilder, command: Answer) -> Refusal | None:
    approval = builder.run.pending_approvals.get(command.approval_id)
    if approval is None:
        return refuse(
            "not_open",
            f"approval '{command.approval_id}' is not open in run '{builder.run.id}': "
            "it was answered, replaced, or has expired",
            "read the open approvals of the run",
        )
    if (
        refusal := check_may_answer(approval, command.by) or _check_digest(approval, command)
    ) is not None:
        return refusal
    decision = _read_decision(approval, command)
    if isinstance(decision, Refusal):
        return decision
    if decision == "revise" and not _can_revise(builder, approval):
        return refuse(
            "no_way_back",
            f"'{approval.step_id}' cannot be revised: its node has no revise_to",
            "approve or reject instead",
        )
    final = decision != "approve" or len(approval.approved_by) + 1 >= approval.quorum
    builder.emit(
        Answered(
            at=builder.now,
            approval_id=approval.id,
            by=command.by.name,
            role=command.by.role,
            decision=decision,
            text=command.text,
            final=final,
        )
    )
    if final:
        DECISION_HANDLERS[decision](builder, approval, command)
    return None


def check_may_answer(approval: PendingApproval, by: Person) -> Refusal | None:
    """Check name and level; if the approval names no approvers, its kind sets the level."""
    level = PERSON_LEVELS.get(by.role, -1)
    levels = [
        PERSON_LEVELS[approver] for approver in approval.approvers if approver in PERSON_LEVELS
    ]
    if not approval.approvers:
        levels = [PERSON_LEVELS[REQUIRED_LEVELS[approval.kind]]]
    named = by.name in approval.approvers and by.name not in PERSON_LEVELS and level >= 0
    if not named and not any(level >= needed for needed in levels):
        audience = ", ".join(approval.approvers) or f"{REQUIRED_LEVELS[approval.kind]} or above"
        return refuse(
            "not_allowed",
            f"{by.name} ({by.role}) may not answer the {approval.kind} '{approval.id}'",
            f"the people who may answer it: {audience}",
        )
    if by.name in approval.barred:
        return refuse(
            "author",
            f"{by.name} worked on what '{approval.id}' asks about and may not answer it",
            "let another person answer",
        )
    if by.name in approval.approved_by:
        return refuse("answered_before", f"{by.name} has approved '{approval.id}' already")
    return None


def _check_digest(approval: PendingApproval, command: Answer) -> Refusal | None:
    if command.digest and command.digest != approval.digest:
        return refuse(
            "changed",
            f"the content of approval '{approval.id}' has changed since {command.by.name} read it",
            "read it again, then answer",
        )
    return None


def _read_decision(approval: PendingApproval, command: Answer) -> Verdict | Refusal:
    text = command.text.strip()
    if command.decision is not None and command.decision not in DECISIONS:
        return _refuse_ambiguous(approval)
    if command.decision is not None:
        if command.decision == "revise" and not text:
            return refuse(
                "no_text", f"a revision of '{approval.id}' has no text", "say what to change"
            )
        if (
            approval.own
            and command.decision == "reject"
            and PERSON_LEVELS[command.by.role] < OVERRIDE_RANK
        ):
            return refuse(
                "not_allowed",
                f"{command.by.name} ({command.by.role}) may answer '{approval.id}', "
                "but not reject it, which closes the run",
                f"answer it; rejecting takes the role {OVERRIDE_LEVEL} or above",
            )
        return (
            "answer" if approval.own and command.decision != "reject" and text else command.decision
        )
    if approval.own:
        return "answer" if text else _refuse_ambiguous(approval)
    if approval.stop is not None and text.casefold() in STOP_OPTIONS:
        return "reject" if text.casefold() == STOP_OPTIONS[1] else "approve"
    reading = classify_answer(command.text)
    if reading is Reading.AMBIGUOUS:
        return _refuse_ambiguous(approval)
    return "approve" if reading is Reading.APPROVE else "revise"


def _refuse_ambiguous(approval: PendingApproval) -> Refusal:
    return refuse(
        "ambiguous_answer",
        f"the answer to '{approval.id}' is neither a clear approval nor a clear rejection",
        f"send a decision: {', '.join(DECISIONS)}",
    )


def _can_revise(builder: DecisionBuilder, approval: PendingApproval) -> bool:
    if approval.own or builder.run.kind == "team" or approval.kind is ApprovalKind.ESCALATION:
        return True
    return builder.plan.node(approval.step_id).config.revise_to is not None


def _approve(builder: DecisionBuilder, approval: PendingApproval, command: Answer) -> None:
    by = command.by.name
    if approval.stop is not None:
        team.reposition(builder, approval.step_id, "once_more", command.text, by)
        return
    if approval.own:
        return  # an unconditional yes to an agent's question: the next dispatch carries it
    if builder.run.kind == "team":
        builder.emit(
            Ended(
                at=builder.now,
                status=approval.status,
                stop=Stop(
                    rule=StopRule.COMPLETED,
                    reason=f"{by} approved the result",
                    agent=builder.run.final_agent,
                    remaining=approval.remaining,
                ),
                by=by,
            )
        )
    else:
        workflow.leave(builder, approval.step_id, "approve", command.text, by)


def _reject(builder: DecisionBuilder, approval: PendingApproval, command: Answer) -> None:
    """Take an approval node's failure edge if it has one; else close run and bead (L6.6). A team
    that was to be stopped ends by its rule."""
    if approval.stop is not None:
        builder.end(approval.stop, command.by.name)
        return
    if builder.run.kind == "workflow" and approval.kind is ApprovalKind.APPROVAL:
        graph = builder.plan.graph
        links = [x for x in graph.succ[graph.index[approval.step_id]] if x.is_failure]
        if links:
            workflow.move_forward(
                builder,
                approval.step_id,
                (graph.nodes[links[0].node].id,),
                "reject",
                command.text,
                command.by.name,
            )
            return
    _close_run(builder, command.by, command.text or f"{command.by.name} rejected '{approval.id}'")


def _revise(builder: DecisionBuilder, approval: PendingApproval, command: Answer) -> None:
    by, text = command.by.name, command.text
    if approval.stop is not None:
        team.reposition(builder, approval.step_id, "once_more", text, by)
        return
    if builder.run.kind == "team":
        review = builder.plan.team.review
        assert review is not None
        team.reposition(builder, review.back_to, "revise", text, by)
        return
    node = builder.plan.node(approval.step_id)
    is_escalation = approval.kind is ApprovalKind.ESCALATION
    target = node.id if is_escalation else node.config.revise_to
    assert target is not None
    outcome = "once_more" if is_escalation else "revise"
    workflow.move_back(builder, node.id, target, outcome, text, by=by, renews=True)


def _answer(builder: DecisionBuilder, approval: PendingApproval, command: Answer) -> None:
    """Do nothing: the agent's next dispatch carries the answer."""


DECISION_HANDLERS = {"approve": _approve, "reject": _reject, "revise": _revise, "answer": _answer}


def _check_may_override(
    builder: DecisionBuilder, by: Person, reason: str, action: str
) -> Refusal | None:
    if PERSON_LEVELS.get(by.role, -1) < PERSON_LEVELS[OVERRIDE_LEVEL]:
        return refuse(
            "not_allowed",
            f"{by.name} ({by.role}) may not {action} run '{builder.run.id}'",
            f"it takes the role {OVERRIDE_LEVEL} or above",
        )
    if not reason.strip():
        return refuse("no_reason", f"no reason to {action} run '{builder.run.id}'", "send a reason")
    return None


def _refuse_if_guarded(builder: DecisionBuilder) -> Refusal | None:
    if not builder.plan.is_guarded:
        return None
    return refuse(
        "guarded",
        f"run '{builder.run.id}' is a guarded run: its own program decides which agent works next",
        "close the run, which stops the program at its next step",
    )


def move(builder: DecisionBuilder, command: Move) -> Refusal | None:
    refusal = _check_may_override(
        builder, command.by, command.reason, "move"
    ) or _refuse_if_guarded(builder)
    return refusal or _reposition(builder, command.step_id, "move", command.reason, command.by.name)


def _reposition(
    builder: DecisionBuilder, step_id: str, outcome: str, reason: str, by: str
) -> Refusal | None:
    if not builder.plan.has_step(step_id):
        step_kind = "agent" if builder.run.kind == "team" else "node"
        name = builder.plan.definition.name
        return refuse("unknown_place", f"'{name}' has no {step_kind} '{step_id}'")
    reposition = team.reposition if builder.run.kind == "team" else workflow.reposition
    reposition(builder, step_id, outcome, reason, by)
    return None


def migrate(builder: DecisionBuilder, command: Migrate) -> Refusal | None:
    """Migrate the run. `builder.plan` is the new version's plan."""
    if (
        refusal := _check_may_override(builder, command.by, command.reason, "migrate")
        or _refuse_if_guarded(builder)
    ) is not None:
        return refusal
    if builder.plan.kind != builder.run.kind or not builder.plan.has_step(command.step_id):
        return refuse(
            "unknown_place",
            f"version {command.version} of '{builder.plan.definition.name}' is a "
            f"{builder.plan.kind} "
            f"and {'has' if builder.plan.has_step(command.step_id) else 'lacks'} "
            f"'{command.step_id}'",
            f"name a step of that version, which must be a {builder.run.kind}, too",
        )
    builder.emit(
        Migrated(
            at=builder.now,
            by=command.by.name,
            reason=command.reason,
            definition_id=command.definition_id,
            version=command.version,
            limits=builder.plan.limits_for(builder.run.context.get("task_scope")),
            definition_digest=builder.plan.digest,
        )
    )
    return _reposition(builder, command.step_id, "migrate", command.reason, command.by.name)


def close(builder: DecisionBuilder, command: Close) -> Refusal | None:
    """Close the run. A ceo closes any run; an operator only runs of beads it filed."""
    is_own_bead = command.by.role == "operator" and command.by.name == builder.run.filed_by != ""
    if not is_own_bead or not command.reason.strip():
        refusal = _check_may_override(builder, command.by, command.reason, "close")
        if refusal is not None:
            return refusal
    _close_run(builder, command.by, command.reason)
    return None


def _close_run(builder: DecisionBuilder, by: Person, reason: str) -> None:
    builder.emit(
        Ended(
            at=builder.now,
            status=TerminalStatus.CLOSED_BY_HUMAN,
            stop=Stop(rule=StopRule.CLOSED, reason=reason, agent=builder.run.final_agent),
            by=by.name,
        )
    )


def pause(builder: DecisionBuilder, command: Pause) -> Refusal | None:
    if (refusal := _check_may_override(builder, command.by, command.reason, "pause")) is not None:
        return refusal
    if builder.run.paused_at is not None:
        return refuse("paused", f"run '{builder.run.id}' is paused already")
    builder.emit(
        Paused(
            at=builder.now,
            by=command.by.name,
            reason=command.reason,
            deadline=builder.now + to_timedelta(builder.plan.settings.pause_deadline),
        )
    )
    return None


def resume(builder: DecisionBuilder, command: Resume) -> Refusal | None:
    if (refusal := _check_may_override(builder, command.by, command.reason, "resume")) is not None:
        return refusal
    if builder.run.paused_at is None:
        return refuse("not_paused", f"run '{builder.run.id}' is not paused")
    builder.emit(Resumed(at=builder.now, by=command.by.name, reason=command.reason))
    return None


def patch(builder: DecisionBuilder, command: Patch) -> Refusal | None:
    if PERSON_LEVELS.get(command.by.role, -1) < PERSON_LEVELS["operator"]:
        return refuse(
            "not_allowed", f"{command.by.name} ({command.by.role}) may not change the bead"
        )
    refusal = refuse_reserved(
        builder.plan.reserved_keys, command.patch, command.by.name, command.by.role
    ) or check_context_size(builder.run.context, command.patch)
    if refusal is not None:
        return refusal
    by, patch, files = command.by.name, command.patch, command.files
    builder.emit(Patched(at=builder.now, by=by, patch=patch, files=files))
    return None


def _barred_people(builder: DecisionBuilder, approval: PendingApproval) -> tuple[str, ...]:
    """With four eyes, people who changed the shown content may not approve it either."""
    run = builder.run
    if run.kind == "workflow" and builder.plan.node(approval.step_id).config.four_eyes:
        return run.hands
    return approval.barred


def reopen_approvals(builder: DecisionBuilder) -> None:
    """Void approvals whose shown content has changed, and open them again (K15, K16)."""
    run = builder.run
    for approval in run.pending_approvals.values():
        new_digest = approval_digest(run, approval.text, approval.result)
        if approval.own or new_digest == approval.digest:
            continue
        reopened = PendingApproval(
            id=f"{run.id}.q{builder.run.approvals_opened + 1}",
            kind=approval.kind,
            step_id=approval.step_id,
            text=approval.text,
            digest=new_digest,
            asked_at=builder.now,
            deadline=approval.deadline,
            approvers=approval.approvers,
            quorum=approval.quorum,
            barred=_barred_people(builder, approval),
            result=approval.result,
            options=approval.options,
            status=approval.status,
            remaining=approval.remaining,
            stop=approval.stop,
        )
        builder.emit(
            Reasked(
                at=builder.now,
                approval_id=approval.id,
                approval=reopened,
                reason="what was shown has changed",
            )
        )
