"""Effects: what the shell does after the commit, derived from the run before and after."""

from collections.abc import Iterator

from handrail.kernel.decision import Value
from handrail.kernel.definition.plan import Plan
from handrail.kernel.run.events import (
    Claimed,
    HandedOff,
    Lost,
    Moved,
    Offered,
    Reported,
    RunEvent,
    TimedOut,
    Warned,
)
from handrail.kernel.run.state import CLAIMED, OFFERED, Position, PositionPhase, Run
from handrail.kernel.run.workflow import needs_lock, repository_of


class CancelDispatch(Value):
    """Tell the agent to stop: its dispatch no longer counts (H5.5)."""

    fence: int
    agent: str


class AcquireLock(Value):
    """Queue for the repository's commit lock."""

    step_id: str
    repository: str
    attempt: int


class ReleaseLock(Value):
    step_id: str
    repository: str
    lock: int


RunEffect = CancelDispatch | AcquireLock | ReleaseLock
EVENTS_WITHOUT_EFFECTS = frozenset({Offered, Claimed, Reported, HandedOff, Moved, Warned})
"""Most decisions have no others: one dispatch returned, the next one was offered."""
OPEN_PHASES = (OFFERED, CLAIMED)


def derive_effects(
    plan: Plan, before: Run | None, after: Run, events: list[RunEvent]
) -> tuple[RunEffect, ...]:
    if (
        before is not None
        and len(before.positions) == 1  # no branch that could be cancelled
        and before.stretch == after.stretch  # no person moved the run
        and not plan.has_commit_nodes
        and EVENTS_WITHOUT_EFFECTS.issuperset(map(type, events))
    ):
        return ()
    run_effects: list[RunEffect] = []
    positions_before = before.positions.values() if before is not None else ()
    for position in positions_before:
        if position.phase in OPEN_PHASES and _is_cancelled(position, after, events):
            run_effects.append(CancelDispatch(fence=position.fence, agent=position.agent))
    for position in positions_before:
        if position.lock is not None and after.find_position(position.fence) is None:
            run_effects.append(
                ReleaseLock(
                    step_id=position.step_id, repository=position.repository, lock=position.lock
                )
            )
    if plan.has_commit_nodes:
        run_effects.extend(_lock_requests(plan, before, after))
    return tuple(run_effects)


def _is_cancelled(position: Position, after: Run, events: list[RunEvent]) -> bool:
    """Whether the dispatch timed out, or is no longer open and did not return by itself."""
    returned = False
    for event in events:
        if type(event) is Reported or type(event) is Lost:
            returned = returned or event.fence == position.fence
        elif type(event) is TimedOut and event.fence == position.fence:
            return True
    return not returned and after.find_position(position.fence) is None


def _lock_requests(plan: Plan, before: Run | None, after: Run) -> Iterator[RunEffect]:
    positions_before = before.positions if before is not None else {}
    for step_id, position in after.positions.items():
        seeking = _is_at_commit_node(plan, position) and position.phase not in (
            *OPEN_PHASES,
            PositionPhase.ASKED,
        )
        position_before = positions_before.get(step_id)
        resumed = before is not None and before.paused_at is not None
        is_waiting_already = (
            not resumed and position_before is not None and position_before.since == position.since
        )
        is_waiting_already = (
            is_waiting_already
            and position_before is not None
            and position_before.phase not in (*OPEN_PHASES, PositionPhase.ASKED)
        )
        if seeking and not is_waiting_already and after.paused_at is None:
            attempt = position.attempts + 1
            yield AcquireLock(
                step_id=step_id, repository=repository_of(plan, step_id), attempt=attempt
            )


def _is_at_commit_node(plan: Plan, position: Position) -> bool:
    return plan.has_step(position.step_id) and needs_lock(plan.node(position.step_id))
