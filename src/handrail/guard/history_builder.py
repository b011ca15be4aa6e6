"""Build the history of a team's run from the events that a guard saw. Pure.

The history has the turns, each step offered, claimed and reported, each handoff, the end with its
reason. The definition is the team as the run has shown it so far.

An agent that has brought the run to its own end is its terminator. A step and the handoff that
follows it are one result, reported at the handoff. Where several agents worked at once, their steps
stand under the agent whose turn it was; a handoff by another one is preceded by a move of the turn
to it. A step is recorded once it has its result: until then only the turn is known, so that no
other agent can claim it, and nothing has to be revoked.

There are exactly as many steps as the guard has counted: one for each turn, and one more for each
further result in it. A turn that has its result is handed over, asks a person and ends without
another one.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from handrail.client.guard_calls import GuardedEvent
from handrail.guard.event_validation import STEPS_MAX
from handrail.kernel.definition.limits import Limits
from handrail.kernel.result import Outcome, Result
from handrail.kernel.run.decision_builder import approval_digest
from handrail.kernel.run.events import (
    Asked,
    Claimed,
    Ended,
    HandedOff,
    HeardOf,
    Migrated,
    Moved,
    Offered,
    Reported,
    RunEvent,
    Started,
)
from handrail.kernel.run.evolve import evolve
from handrail.kernel.run.state import ApprovalKind, PendingApproval, Run, to_timedelta
from handrail.kernel.stop.rules import StopRule

NO_AGENT = "nobody"
"""The agent of a run in which no agent has done anything."""

GUARDED_ROLE_PREFIX = "guarded:"
"""Prefix for the role of an agent that works elsewhere."""


def build_history(events: Sequence[RunEvent]) -> list[RunEvent]:
    """Convert a guard's events of a whole run to those of a team's run."""
    started = events[0]
    assert isinstance(started, Started), "a guarded run begins with it"
    builder = HistoryBuilder(evolve(None, started))
    builder.add_events(guard_events(events[1:]))
    return [started, *builder.events]


def guard_events(events: Iterable[RunEvent]) -> list[GuardedEvent]:
    """Return the events that a guard reports after the beginning of a run."""
    return [event for event in events if isinstance(event, GuardedEvent)]


def first_agent(events: Sequence[RunEvent]) -> str:
    """Return the agent that has the turn first."""
    for event in events:
        if isinstance(event, HandedOff):
            return event.source
        if isinstance(event, Reported):
            return event.agent
    return NO_AGENT


def team_definition(
    team: str,
    limits: Limits,
    events: Sequence[RunEvent],
    known_document: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Build the definition that these events show, on top of `known_document`.

    No agent of a server has the roles in it.
    """
    known_document = known_document or {}
    targets_by_agent = {
        agent["id"]: list(agent["hands_off_to"]) for agent in known_document.get("agents", ())
    }
    for event in events:
        if isinstance(event, HandedOff):
            targets_by_agent.setdefault(event.source, []).append(event.target)
            targets_by_agent.setdefault(event.target, [])
        elif isinstance(event, Reported):
            targets_by_agent.setdefault(event.agent, [])
    start = known_document.get("start") or first_agent(events)
    targets_by_agent.setdefault(start, [])
    for agent in targets_by_agent:
        if agent not in _reachable_agents(targets_by_agent, start):  # it worked in parallel
            targets_by_agent[start].append(agent)
    return {
        "name": team,
        "kind": "team",
        "start": start,
        "terminator": known_document.get("terminator") or start,
        "agents": [
            {
                "id": agent,
                "hands_off_to": sorted(set(targets)),
                "role": f"{GUARDED_ROLE_PREFIX}{agent}",
            }
            for agent, targets in targets_by_agent.items()
        ],
        "stop_rules": _stop_rules(limits),
        "metadata": {"guarded": True},
    }


def _reachable_agents(targets: dict[str, list[str]], start: str) -> set[str]:
    """Return the agents that the turn can reach."""
    reached, pending = {start}, [start]
    while pending:  # each agent once
        new_agents = set(targets[pending.pop()]) - reached
        reached |= new_agents
        pending += new_agents
    return reached


def with_terminator(
    document: dict[str, Any], events: Sequence[RunEvent], active_agent: str
) -> dict[str, Any]:
    """Return the definition with the last agent as its terminator, if it ended the run itself."""
    last_event = events[-1]
    if not (isinstance(last_event, Ended) and last_event.stop.rule is StopRule.COMPLETED):
        return document
    targets = (
        event.target
        for event in reversed(events)
        if isinstance(event, HandedOff) and event.accepted
    )
    return {**document, "terminator": next(targets, active_agent)}


def _stop_rules(limits: Limits) -> dict[str, Any]:
    rules: dict[str, Any] = msgspec.to_builtins(limits)
    rules["max_steps"] = STEPS_MAX if limits.max_steps is None else min(limits.max_steps, STEPS_MAX)
    return rules


class HistoryBuilder:
    """Builds the history on top of a run; `events` are the new ones. `has_result`: the holder's
    turn has its first result.
    """

    def __init__(self, run: Run, since: datetime | None = None) -> None:
        (position,) = run.positions.values()
        self.run = run
        self.events: list[RunEvent] = []
        self._outcome_reported = False
        """Whether the holder's last result says already what comes next."""
        self.active_agent, self.since = position.step_id, since or position.since
        self.has_result = position.fence > 0

    def add_migration(self, event: Migrated) -> None:
        """Move the run to the definition that the next events need."""
        self._emit(event)

    def add_heartbeat(self, at: datetime) -> None:
        """Record that the program lives."""
        self._emit(HeardOf(at=at, step_id=self.active_agent))

    def add_events(self, events: Sequence[GuardedEvent]) -> None:
        for n, event in enumerate(events, 1):
            next_event = events[n] if n < len(events) else None
            match event:
                case Reported():
                    self._add_reported(event, next_event)
                case HandedOff():
                    self._add_handed_off(event)
                case Ended():
                    self._add_ended(event)

    def add_approval(self, text: str, at: datetime, wait_seconds: float) -> PendingApproval:
        """Open an approval for the holder, with `wait_seconds` for an answer."""
        result = self.run.positions[self.active_agent].result
        approval = PendingApproval(
            id=f"{self.run.id}.q{self.run.approvals_opened + 1}",
            kind=ApprovalKind.CLARIFICATION,
            step_id=self.active_agent,
            text=text,
            digest=approval_digest(self.run, text, result),
            asked_at=at,
            deadline=at + to_timedelta(wait_seconds),
            result=result,
            own=True,
        )
        self._emit(Asked(at=at, approval=approval))
        return approval

    def _add_reported(self, event: Reported, next_event: GuardedEvent | None) -> None:
        self._begin_step(event.at)
        at, result = event.at, replace(event.result, outcome=Outcome.CONTINUE)
        if isinstance(next_event, HandedOff) and next_event.source == self.active_agent:
            at, result, self._outcome_reported = (
                next_event.at,
                _handoff_result(result, next_event),
                True,
            )
        elif isinstance(next_event, Ended) and next_event.stop.rule is StopRule.COMPLETED:
            at, result, self._outcome_reported = (
                next_event.at,
                _terminate_result(result, next_event),
                True,
            )
        self._end_step(at, result, event)

    def _add_handed_off(self, event: HandedOff) -> None:
        if event.source != self.active_agent:
            self._move_position(event)
        if not (self._outcome_reported or self.has_result):
            self._begin_step(event.at)
            self._end_step(event.at, _handoff_result(Result(), event))
        self._outcome_reported = False
        number = self.run.ledger.handoffs + 1 if event.accepted else 0
        self._emit(replace(event, number=number))
        if event.accepted:
            self.active_agent, self.since, self.has_result = event.target, event.at, False

    def _add_ended(self, event: Ended) -> None:
        if event.stop.rule is StopRule.COMPLETED:
            if not (self._outcome_reported or self.has_result):
                self._begin_step(event.at)
                self._end_step(event.at, _terminate_result(Result(), event))
            stop = replace(event.stop, rule=StopRule.TERMINATED, agent=self.active_agent)
            event = replace(event, stop=stop)
        elif not self.has_result and event.stop.rule is StopRule.AGENT_LOST:
            self._begin_step(event.at)
        self._emit(event)

    def _begin_step(self, at: datetime) -> None:
        """Begin a step of the holder, at the time of its turn, or else now."""
        if not self.has_result:
            at = self.since
        step_id, fence = self.active_agent, self.run.fence + 1
        self._emit(Offered(at=at, step_id=step_id, fence=fence, attempt=1, role=step_id))
        self._emit(Claimed(at=at, step_id=step_id, fence=fence, agent=step_id))

    def _end_step(self, at: datetime, result: Result, reported: Reported | None = None) -> None:
        event = Reported(
            at=at,
            step_id=self.active_agent,
            fence=self.run.fence,
            agent=self.active_agent,
            result=result,
        )
        if reported is not None:
            event = replace(
                event, agent=reported.agent, weighed=reported.weighed, phase=reported.phase
            )
        self._emit(event)
        self.has_result = True

    def _move_position(self, event: HandedOff) -> None:
        """Move the turn to an agent that worked in parallel to the holder.

        For the guard it is the same turn, whose step is counted.
        """
        self._emit(
            Moved(
                at=event.at,
                source=self.active_agent,
                targets=(event.source,),
                outcome="beside",
                reason="several agents worked at once",
                enters=(event.source,),
                cancels=(self.active_agent,),
                spends=event.source,  # a move, not a handoff
            )
        )
        self.active_agent, self.since = event.source, event.at

    def _emit(self, event: RunEvent) -> None:
        self.run = evolve(self.run, event)
        self.events.append(event)


def _handoff_result(result: Result, event: HandedOff) -> Result:
    return replace(result, outcome=Outcome.HANDOFF, to=event.target, reason=event.reason)


def _terminate_result(result: Result, event: Ended) -> Result:
    return replace(result, outcome=Outcome.TERMINATE, reason=event.stop.reason)
