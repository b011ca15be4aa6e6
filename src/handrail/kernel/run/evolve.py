"""evolve: apply one event to a run. No policy: live runs and replays take this same path.

First the events from outside (approvals and answers, pauses, changes of the bead, of the definition
and of the clock), then those of the run's own steps.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from msgspec import to_builtins
from msgspec.structs import replace

from handrail.kernel.result import Outcome, merge_patch
from handrail.kernel.run.events import (
    Answered,
    Asked,
    Claimed,
    ClocksPushed,
    Ended,
    Faulted,
    HandedOff,
    HeardOf,
    Lost,
    Migrated,
    Moved,
    Offered,
    Patched,
    Paused,
    Reasked,
    Reported,
    Resumed,
    RunEvent,
    Started,
    TimedOut,
    Warned,
    warning_key,
)
from handrail.kernel.run.state import (
    AGENT_READONLY_KEYS,
    CLAIMED,
    ENGINE_KEYS,
    OFFERED,
    WAITING,
    Block,
    Position,
    PositionPhase,
    Run,
    RunStatus,
    Wait,
    goal_command,
    to_timedelta,
)
from handrail.kernel.stop import ledger as ledgers
from handrail.kernel.stop.rules import counts_handoffs


def append_once(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return names if name in names else (*names, name)


def _apply_asked(run: Run, event: Asked) -> Run:
    approval, previous = event.approval, run.positions[event.approval.step_id]
    is_unprompted = (
        approval.own and previous.phase is not PositionPhase.ASKING
    )  # from a guarded program
    return replace(
        run,
        seq=run.seq + 1,
        asks=run.asks + is_unprompted,
        pending_approvals={**run.pending_approvals, approval.id: approval},
        approvals_opened=run.approvals_opened + 1,
        positions={
            **run.positions,
            approval.step_id: replace(previous, phase=PositionPhase.ASKED, approval_id=approval.id),
        },
    )


def _apply_answered(run: Run, event: Answered) -> Run:
    approval = run.pending_approvals[event.approval_id]
    if not event.final:
        return replace(
            run,
            seq=run.seq + 1,
            pending_approvals={
                **run.pending_approvals,
                approval.id: replace(approval, approved_by=(*approval.approved_by, event.by)),
            },
        )
    return replace(
        run,
        seq=run.seq + 1,
        pending_approvals={q.id: q for q in run.pending_approvals.values() if q.id != approval.id},
        positions={
            **run.positions,
            approval.step_id: replace(
                run.positions[approval.step_id],
                phase=PositionPhase.READY if approval.own else PositionPhase.LEAVING,
                approval_id="",
                since=event.at,
            ),
        },
    )


def _apply_reasked(run: Run, event: Reasked) -> Run:
    approvals = {q.id: q for q in run.pending_approvals.values() if q.id != event.approval_id}
    approvals[event.approval.id] = event.approval
    return replace(
        run,
        seq=run.seq + 1,
        pending_approvals=approvals,
        approvals_opened=run.approvals_opened + 1,
        positions={
            **run.positions,
            event.approval.step_id: replace(
                run.positions[event.approval.step_id], approval_id=event.approval.id
            ),
        },
    )


def _apply_paused(run: Run, event: Paused) -> Run:
    return replace(run, seq=run.seq + 1, paused_at=event.at, pause_deadline=event.deadline)


def _apply_resumed(run: Run, event: Resumed) -> Run:
    assert run.paused_at is not None
    positions = {
        p: replace(
            t,
            since=t.since + (event.at - max(run.paused_at, t.since)),
            wait=_resume_wait(t, run.paused_at, event.at),
        )
        for p, t in run.positions.items()
    }
    approvals = {
        i: replace(q, deadline=q.deadline + (event.at - max(run.paused_at, q.asked_at)))
        for i, q in run.pending_approvals.items()
    }
    return replace(
        run,
        seq=run.seq + 1,
        positions=positions,
        pending_approvals=approvals,
        paused_at=None,
        pause_deadline=None,
    )


def _resume_wait(position: Position, paused_at: datetime, at: datetime) -> Wait | None:
    """Return the wait with its clocks moved past a pause, in which it may have begun."""
    wait = position.wait
    if wait is None:
        return None
    by = at - max(paused_at, wait.since)
    return replace(
        wait,
        since=wait.since + by,
        deadline=wait.deadline + by,
        not_before=wait.not_before + (at - max(paused_at, position.since)),
    )


def _apply_patched(run: Run, event: Patched) -> Run:
    patch = {key: value for key, value in event.patch.items() if key not in ENGINE_KEYS}
    context, hands = merge_patch(run.context, patch), append_once(run.hands, event.by)
    return replace(run, seq=run.seq + 1, context=context, hands=hands)


def _apply_migrated(run: Run, event: Migrated) -> Run:
    return replace(
        run,
        seq=run.seq + 1,
        definition_id=event.definition_id,
        version=event.version,
        limits=event.limits,
        definition_digest=event.definition_digest,
    )


def _apply_clocks_pushed(run: Run, event: ClocksPushed) -> Run:
    """Move every clock of the run later by `event.seconds`."""
    by = to_timedelta(event.seconds)
    run = replace(
        run,
        seq=run.seq + 1,
        positions={
            p: replace(t, since=t.since + by, wait=_push_wait(t.wait, by))
            for p, t in run.positions.items()
        },
        pending_approvals={
            i: replace(q, deadline=q.deadline + by) for i, q in run.pending_approvals.items()
        },
    )
    if run.ran_since is not None:
        run = replace(run, ran_since=min(run.ran_since + by, event.at))
    if run.paused_at is not None and run.pause_deadline is not None:
        run = replace(run, paused_at=run.paused_at + by, pause_deadline=run.pause_deadline + by)
    return run


def _push_wait(wait: Wait | None, by: timedelta) -> Wait | None:
    if wait is None:
        return None
    return replace(
        wait,
        since=wait.since + by,
        deadline=wait.deadline + by,
        not_before=wait.not_before + by,
    )


def _apply_heard_of(run: Run, event: HeardOf) -> Run:
    return replace(
        run,
        seq=run.seq + 1,
        positions={
            **run.positions,
            event.step_id: replace(run.positions[event.step_id], since=event.at),
        },
    )


APPLY_EXTERNAL: dict[type[Any], Callable[[Run, Any], Run]] = {
    Asked: _apply_asked,
    Answered: _apply_answered,
    Reasked: _apply_reasked,
    Paused: _apply_paused,
    Resumed: _apply_resumed,
    Patched: _apply_patched,
    Migrated: _apply_migrated,
    ClocksPushed: _apply_clocks_pushed,
    HeardOf: _apply_heard_of,
}


ASKED, SETTLED = PositionPhase.ASKED, PositionPhase.SETTLED
CONTINUE, RUNNING = Outcome.CONTINUE, RunStatus.RUNNING


def evolve(run: Run | None, event: RunEvent) -> Run:
    """Return the run after the event; a run begins with `Started`."""
    if run is None:
        assert type(event) is Started, "a run begins with Started"
        return _with_status(_apply_started(event), event)
    assert run.terminal_status is None, "nothing happens after the end"
    kind = type(event)
    after = APPLY[kind](run, event)
    if kind in KEEPS_RUNNING and run.status is RUNNING:
        return after
    return _with_status(after, event)


def replay(events: Iterable[RunEvent], run: Run | None = None) -> Run:
    for event in events:
        run = evolve(run, event)
    assert run is not None, "a run has events"
    return run


def _with_status(run: Run, event: RunEvent) -> Run:
    """Derive the status from the positions; the run's clock runs exactly while it is `running`."""
    status = _derive_status(run)
    is_running = status is RUNNING
    if is_running == (run.ran_since is not None):
        return run if status is run.status else replace(run, status=status)
    if is_running:
        return replace(run, status=status, ran_since=event.at)
    return replace(run, status=status, ran=run.elapsed_seconds(event.at), ran_since=None)


def _derive_status(run: Run) -> RunStatus:
    if run.terminal_status is not None:
        return RunStatus.ENDED
    if run.paused_at is not None:
        return RunStatus.PAUSED
    for position in run.positions.values():
        if position.phase is not ASKED:
            return RUNNING
    return RunStatus.WAITING if run.positions else RUNNING


def _apply_started(event: Started) -> Run:
    position = Position(step_id=event.step_id, since=event.at, task=event.task)
    return Run(
        definition_digest=event.definition_digest,
        id=event.run_id,
        bead_id=event.bead_id,
        definition_id=event.definition_id,
        version=event.version,
        kind=event.kind,
        started_at=event.at,
        seq=1,
        limits=event.limits,
        title=event.title,
        description=event.description,
        filed_by=event.filed_by,
        context=event.context,
        review=event.review,
        hands=(event.filed_by,) if event.filed_by else (),
        paths=event.paths,
        phase=event.phase,
        dry_run=event.dry_run,
        traceparent=event.traceparent,
        positions={event.step_id: position},
        blocks=event.blocks,
        ledger=ledgers.add_budgets(event.carried or ledgers.Ledger(), event.budgets),
    )


KEEPS_RUNNING = frozenset({Offered, Claimed, Reported, Faulted, Lost, TimedOut, HandedOff, Warned})
"""Events that leave a running run running: some position waits for no person."""
REVISION_OUTCOMES = ("revise", "once_more")


def isoformat(at: datetime) -> str:
    """Return `at.isoformat()`. For UTC, the usual case, msgspec is five times as fast."""
    return to_builtins(at)[:-1] + "+00:00" if at.tzinfo is UTC else at.isoformat()


def _apply_offered(run: Run, event: Offered) -> Run:
    step, previous = run.ledger.steps + 1, run.positions[event.step_id]
    return replace(
        run,
        seq=run.seq + 1,
        fence=event.fence,
        ledger=replace(run.ledger, steps=step),
        positions={
            **run.positions,
            event.step_id: replace(
                previous,
                phase=OFFERED,
                since=event.at if previous.phase is WAITING else previous.since,
                attempts=event.attempt,
                fence=event.fence,
                step=step,
                role=event.role,
                agent="",
                lock=event.lock,
                repository=event.repository,
                nudge=run.nudge or previous.nudge,
            ),
        },
        nudge=None,
        concluding=event.concluding,
    )


def _apply_claimed(run: Run, event: Claimed) -> Run:
    position = replace(
        run.positions[event.step_id], phase=CLAIMED, agent=event.agent, since=event.at
    )
    context = run.context
    if context.get("redispatch_requested"):
        context = {**context, "redispatch_requested": False}
    return replace(
        run, seq=run.seq + 1, context=context, positions={**run.positions, event.step_id: position}
    )


def _apply_reported(run: Run, event: Reported) -> Run:
    previous, result = run.positions[event.step_id], event.result
    if event.phase or event.done or event.committed:
        run = _apply_achievements(run, event)
    context = dict(run.context)
    if result.data:
        context = merge_patch(
            context,
            {key: value for key, value in result.data.items() if key not in AGENT_READONLY_KEYS},
        )
    context["last_run_at"] = isoformat(event.at)
    if result.outcome is CONTINUE:
        context["redispatch_requested"] = True
    position = replace(
        previous,
        phase=PositionPhase.ASKING if event.asking else SETTLED,
        since=event.at,
        result=run.seq + 1,
        refusal="",
        lock=None,
        nudge=None,
    )
    if event.wait is not None:  # the attempt is not over, nor its key
        position = replace(
            position,
            phase=WAITING,
            attempts=previous.attempts - 1,
            result=previous.result,
            wait=event.wait,
        )
    agent = event.step_id if run.kind == "team" else event.agent
    ledger = ledgers.add_result(
        run.ledger, run.limits, previous.step, result.evidence, result.usage, event.weighed
    )
    if event.budgets:
        ledger = ledgers.add_budgets(ledger, event.budgets)
    if result.evidence.measured:
        goal = goal_command(run.context)
        ledger = ledgers.add_best(ledger, previous.step, agent, result.evidence, goal)
    return replace(
        run,
        seq=run.seq + 1,
        ledger=ledger,
        context=context,
        final_agent=agent,
        asks=run.asks + event.asking,
        positions={**run.positions, event.step_id: position},
    )


def _apply_achievements(run: Run, event: Reported) -> Run:
    """Apply what only some results carry: a milestone, a completed once-only task, a commit."""
    return replace(
        run,
        phase=event.phase or run.phase,
        phase_detail=event.phase_detail if event.phase else run.phase_detail,
        done={**run.done, event.done: run.seq + 1} if event.done else run.done,
        committers=append_once(run.committers, event.agent) if event.committed else run.committers,
    )


def _apply_faulted(run: Run, event: Faulted) -> Run:
    return replace(
        _apply_attempt_ended(run, event),
        ledger=ledgers.add_result(
            run.ledger,
            run.limits,
            run.positions[event.step_id].step,
            event.result.evidence,
            event.result.usage,
            event.weighed,
        ),
    )


def _apply_attempt_ended(run: Run, event: Faulted | Lost | TimedOut) -> Run:
    """Set the position back to ready and count the fault; the next event says what follows."""
    message = event.message if isinstance(event, Faulted) else ""
    previous = run.positions[event.step_id]
    position = replace(
        previous,
        phase=PositionPhase.READY,
        since=event.at,
        faults=previous.faults + 1,
        lost=previous.lost + (not isinstance(event, Faulted)),
        fault_steps=(*previous.fault_steps[1 - ledgers.CITATIONS_MAX :], previous.step),
        refusal=message,
        agent="",
        lock=None,
    )
    return replace(run, seq=run.seq + 1, positions={**run.positions, event.step_id: position})


def _apply_handed_off(run: Run, event: HandedOff) -> Run:
    if not event.accepted:
        return replace(run, seq=run.seq + 1)
    ledger = ledgers.add_handoff(
        run.ledger,
        run.limits,
        event.source,
        event.target,
        event.reason,
        steps=1 if event.already_done else 0,
    )
    previous = run.positions[event.source]
    if event.already_done:
        position = Position(
            step_id=event.source,
            since=event.at,
            task=previous.task,
            result=run.done.get(f"{event.target}/{event.task}", previous.result),
            wait=previous.wait,
        )
    else:
        position = Position(
            step_id=event.target,
            since=event.at,
            task=event.task,
            result=previous.result,
            wait=previous.wait,
        )
    last_targets = run.last_targets
    if last_targets.get(event.source) != event.target:
        last_targets = {**last_targets, event.source: event.target}
    redirected = run.redirected
    if event.proposed:
        edges = [ledgers.edge_key(event.source, target) for target in event.proposed]
        redirected = (*redirected, *edges)
    return replace(
        run,
        seq=run.seq + 1,
        ledger=ledger,
        positions={position.step_id: position},
        last_targets=last_targets,
        redirected=redirected,
    )


def _apply_moved(run: Run, event: Moved) -> Run:
    removed = {event.source, *event.cancels}
    last_result = 0
    positions: dict[str, Position] = {}
    for step_id, position in run.positions.items():
        if step_id not in removed:
            positions[step_id] = position
        elif position.result > last_result:
            last_result = position.result
    for step_id in event.enters:
        positions[step_id] = Position(
            step_id=step_id, since=event.at, result=last_result, task=event.task
        )
    approvals = run.pending_approvals
    if approvals:
        approvals = {q.id: q for q in approvals.values() if q.step_id not in removed}
    after = replace(
        run,
        seq=run.seq + 1,
        positions=positions,
        blocks=_blocks_after(run, event),
        reworks=_reworks_after(run, event),
        pending_approvals=approvals,
        ledger=run.ledger if event.spends or event.renews else _count_transitions(run, event),
    )
    return _renew_stretch(after, event) if event.renews else after


def _blocks_after(run: Run, event: Moved) -> dict[str, Block]:
    if not (event.closes or event.opens or event.arrives):
        return run.blocks
    blocks = {fork: block for fork, block in run.blocks.items() if fork not in event.closes}
    blocks |= event.opens
    if event.arrives is not None:
        fork, head = event.arrives
        blocks[fork] = Block(heads=blocks[fork].heads, arrived=(*blocks[fork].arrived, head))
    return blocks


def _reworks_after(run: Run, event: Moved) -> dict[str, int]:
    if not (event.forgets or event.spends):
        return run.reworks
    reworks = {v: n for v, n in run.reworks.items() if v not in event.forgets}
    if event.spends:
        reworks[event.spends] = reworks.get(event.spends, 0) + 1
    return reworks


def _renew_stretch(run: Run, event: Moved) -> Run:
    """Begin a new stretch: reset the counters."""
    return replace(
        run,
        stretch=run.stretch + 1,
        ledger=ledgers.renew(run.ledger),
        asks=0,
        done={},
        hands=append_once(run.hands, event.by) if event.outcome in REVISION_OUTCOMES else run.hands,
        ran=0.0,
        ran_since=None if run.ran_since is None else event.at,
        last_targets={},
        redirected=(),
        nudge=None,
        concluding=None,
    )


def _count_transitions(run: Run, event: Moved) -> ledgers.Ledger:
    """Count forward transitions as handoffs if the workflow sets rules that count them."""
    limits, ledger = run.limits, run.ledger
    if not counts_handoffs(limits):
        return ledger
    for target in event.targets:
        ledger = ledgers.add_handoff(ledger, limits, event.source, target, event.reason)
    return ledger


def _apply_warned(run: Run, event: Warned) -> Run:
    if event.nudge is None:
        ledger = ledgers.add_warning(run.ledger, warning_key(event))
        ledger = ledgers.add_budgets(ledger, event.budgets)
        return replace(run, seq=run.seq + 1, ledger=ledger)
    return replace(
        run,
        seq=run.seq + 1,
        ledger=ledgers.add_nudge(run.ledger, event.nudge.rule),
        nudge=run.nudge or event.nudge,
    )


def _apply_ended(run: Run, event: Ended) -> Run:
    return replace(
        run,
        seq=run.seq + 1,
        terminal_status=event.status,
        stop=event.stop,
        ended_at=event.at,
        final_agent=event.stop.agent or run.final_agent,
        positions={},
        blocks={},
        pending_approvals={},
        concluding=None,
        phase="terminated" if run.kind == "team" else run.phase,
    )


APPLY: dict[type[RunEvent], Callable[[Run, Any], Run]] = cast(
    "dict[type[RunEvent], Callable[[Run, Any], Run]]",
    {
        Offered: _apply_offered,
        Claimed: _apply_claimed,
        Reported: _apply_reported,
        Faulted: _apply_faulted,
        Lost: _apply_attempt_ended,
        TimedOut: _apply_attempt_ended,
        HandedOff: _apply_handed_off,
        Moved: _apply_moved,
        Warned: _apply_warned,
        Ended: _apply_ended,
        **APPLY_EXTERNAL,
    },
)
"""Each function returns the run after the event, with `seq` one higher."""
