"""evolve for events from outside: approvals and answers, pauses, changes of the bead, of the
definition and of the clock. No policy: live runs and replays take this same path.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from handrail.kernel.result import merge_patch
from handrail.kernel.run.events import (
    Answered,
    Asked,
    ClocksPushed,
    HeardOf,
    Migrated,
    Patched,
    Paused,
    Reasked,
    Resumed,
)
from handrail.kernel.run.state import ENGINE_KEYS, PositionPhase, Run, to_timedelta


def append_once(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return names if name in names else (*names, name)


def _apply_asked(run: Run, event: Asked) -> Run:
    approval, previous = event.approval, run.positions[event.approval.step_id]
    is_unprompted = (
        approval.own and previous.phase is not PositionPhase.ASKING
    )  # from a guarded program
    position = replace(previous, phase=PositionPhase.ASKED, approval_id=approval.id)
    return replace(
        run,
        seq=run.seq + 1,
        asks=run.asks + is_unprompted,
        pending_approvals={**run.pending_approvals, approval.id: approval},
        approvals_opened=run.approvals_opened + 1,
        positions={**run.positions, approval.step_id: position},
    )


def _apply_answered(run: Run, event: Answered) -> Run:
    approval = run.pending_approvals[event.approval_id]
    if not event.final:
        updated = replace(approval, approved_by=(*approval.approved_by, event.by))
        return replace(
            run, seq=run.seq + 1, pending_approvals={**run.pending_approvals, approval.id: updated}
        )
    phase = PositionPhase.READY if approval.own else PositionPhase.LEAVING
    position = replace(run.positions[approval.step_id], phase=phase, approval_id="", since=event.at)
    approvals = {q.id: q for q in run.pending_approvals.values() if q.id != approval.id}
    positions = {**run.positions, approval.step_id: position}
    return replace(run, seq=run.seq + 1, pending_approvals=approvals, positions=positions)


def _apply_reasked(run: Run, event: Reasked) -> Run:
    approvals = {q.id: q for q in run.pending_approvals.values() if q.id != event.approval_id}
    approvals[event.approval.id] = event.approval
    position = replace(run.positions[event.approval.step_id], approval_id=event.approval.id)
    return replace(
        run,
        seq=run.seq + 1,
        pending_approvals=approvals,
        approvals_opened=run.approvals_opened + 1,
        positions={**run.positions, event.approval.step_id: position},
    )


def _apply_paused(run: Run, event: Paused) -> Run:
    return replace(run, seq=run.seq + 1, paused_at=event.at, pause_deadline=event.deadline)


def _apply_resumed(run: Run, event: Resumed) -> Run:
    assert run.paused_at is not None
    positions = {
        p: replace(t, since=t.since + (event.at - max(run.paused_at, t.since)))
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
    )


def _apply_clocks_pushed(run: Run, event: ClocksPushed) -> Run:
    """Move every clock of the run later by `event.seconds`."""
    by = to_timedelta(event.seconds)
    positions = {p: replace(t, since=t.since + by) for p, t in run.positions.items()}
    approvals = {i: replace(q, deadline=q.deadline + by) for i, q in run.pending_approvals.items()}
    run = replace(run, seq=run.seq + 1, positions=positions, pending_approvals=approvals)
    if run.ran_since is not None:
        run = replace(run, ran_since=min(run.ran_since + by, event.at))
    if run.paused_at is not None and run.pause_deadline is not None:
        run = replace(run, paused_at=run.paused_at + by, pause_deadline=run.pause_deadline + by)
    return run


def _apply_heard_of(run: Run, event: HeardOf) -> Run:
    position = replace(run.positions[event.step_id], since=event.at)
    return replace(run, seq=run.seq + 1, positions={**run.positions, event.step_id: position})


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
