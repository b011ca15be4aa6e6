"""The history of a team's run, from the events that a guard saw.

The history has the turns, each step offered, claimed and reported, each handoff, the end with its
reason. A step and the handoff that follows it are one result, reported at the handoff. Where
several agents worked at once, their steps stand under the agent whose turn it was; a handoff by
another one is preceded by a move of the turn to it. A step is recorded once it has its result:
until then only the turn is known, so that no other agent can claim it, and nothing has to be
revoked.

There are exactly as many steps as the guard has counted: one for each turn, and one more for each
further result in it. A turn that has its result is handed over, asks a person and ends without
another one.
"""

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from handrail.kernel.result import Outcome, Result
from handrail.kernel.run.decision_builder import DecisionBuilder
from handrail.kernel.run.events import (
    Claimed,
    Ended,
    GuardedEvent,
    HandedOff,
    Moved,
    Offered,
    Reported,
)
from handrail.kernel.stop.rules import StopRule


class GuardedHistory:
    """Writes the history of what a guard saw into a decision, from the time `since` on."""

    def __init__(self, builder: DecisionBuilder, since: datetime | None = None) -> None:
        (position,) = builder.run.positions.values()
        self._builder = builder
        self._active_agent, self._since = position.step_id, since or position.since
        self._has_result = position.fence > 0
        """Whether the holder's turn has its first result."""
        self._outcome_reported = False
        """Whether the holder's last result says already what comes next."""

    def add_events(self, events: Sequence[GuardedEvent]) -> None:
        for n, event in enumerate(events, 1):
            if isinstance(event, Reported):
                self._add_reported(event, events[n] if n < len(events) else None)
            elif isinstance(event, HandedOff):
                self._add_handed_off(event)
            else:
                self._add_ended(event)

    def _add_reported(self, event: Reported, next_event: GuardedEvent | None) -> None:
        self._begin_step(event.at)
        at, result = event.at, replace(event.result, outcome=Outcome.CONTINUE)
        if isinstance(next_event, HandedOff) and next_event.source == self._active_agent:
            at, result = next_event.at, _handoff_result(result, next_event)
            self._outcome_reported = True
        elif isinstance(next_event, Ended) and next_event.stop.rule is StopRule.COMPLETED:
            at, result = next_event.at, _terminate_result(result, next_event)
            self._outcome_reported = True
        self._end_step(at, result, event)

    def _add_handed_off(self, event: HandedOff) -> None:
        if event.source != self._active_agent:
            self._move_position(event)
        if not (self._outcome_reported or self._has_result):
            self._begin_step(event.at)
            self._end_step(event.at, _handoff_result(Result(), event))
        self._outcome_reported = False
        number = self._builder.run.ledger.handoffs + 1 if event.accepted else 0
        self._builder.emit(replace(event, number=number))
        if event.accepted:
            self._active_agent, self._since, self._has_result = event.target, event.at, False

    def _add_ended(self, event: Ended) -> None:
        if event.stop.rule is StopRule.COMPLETED:
            if not (self._outcome_reported or self._has_result):
                self._begin_step(event.at)
                self._end_step(event.at, _terminate_result(Result(), event))
            stop = replace(event.stop, rule=StopRule.TERMINATED, agent=self._active_agent)
            event = replace(event, stop=stop)
        elif not self._has_result and event.stop.rule is StopRule.AGENT_LOST:
            self._begin_step(event.at)
        self._builder.emit(event)

    def _begin_step(self, at: datetime) -> None:
        """Begin a step of the holder, at the time of its turn, or else now."""
        if not self._has_result:
            at = self._since
        step_id, fence = self._active_agent, self._builder.run.fence + 1
        self._builder.emit(Offered(at=at, step_id=step_id, fence=fence, attempt=1, role=step_id))
        self._builder.emit(Claimed(at=at, step_id=step_id, fence=fence, agent=step_id))

    def _end_step(self, at: datetime, result: Result, reported: Reported | None = None) -> None:
        event = Reported(
            at=at,
            step_id=self._active_agent,
            fence=self._builder.run.fence,
            agent=self._active_agent,
            result=result,
        )
        if reported is not None:
            event = replace(
                event, agent=reported.agent, weighed=reported.weighed, phase=reported.phase
            )
        self._builder.emit(event)
        self._has_result = True

    def _move_position(self, event: HandedOff) -> None:
        """Move the turn to an agent that worked in parallel to the holder.

        For the guard it is the same turn, whose step is counted.
        """
        self._builder.emit(
            Moved(
                at=event.at,
                source=self._active_agent,
                targets=(event.source,),
                outcome="beside",
                reason="several agents worked at once",
                enters=(event.source,),
                cancels=(self._active_agent,),
                spends=event.source,  # a move, not a handoff
            )
        )
        self._active_agent, self._since = event.source, event.at


def _handoff_result(result: Result, event: HandedOff) -> Result:
    return replace(result, outcome=Outcome.HANDOFF, to=event.target, reason=event.reason)


def _terminate_result(result: Result, event: Ended) -> Result:
    return replace(result, outcome=Outcome.TERMINATE, reason=event.stop.reason)
