"""A guarded run in a Handrail database: `runs`, `show`, `report`, `why`, `replay` and the page know
it like any other.

What the guard saw becomes the history of a team's run: who had the turn, each step offered, taken
and answered, each handoff, the end with its reason. The definition says which agents there were and
who handed to whom; the same team again is the same version. All of it is one transaction, written
when the run has ended: of a program that is killed nothing is on record.

An agent that has brought the run to its own end is its terminator. A step and the handoff that
follows it are one answer, given when it was handed over. Where several agents worked at once, their
steps stand under the one whose turn it was; a handoff by another one is preceded by a move of the
turn to it.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace
from uuid_utils import uuid7

from handrail.engine.engine import Engine
from handrail.engine.opening import open as open_engine
from handrail.engine.project import project
from handrail.kernel.limits import Limits
from handrail.kernel.plan import check
from handrail.kernel.result import Outcome, Result
from handrail.kernel.rules import StopRule
from handrail.kernel.run.events import (
    Claimed,
    Ended,
    HandedOff,
    Moved,
    Offered,
    Reported,
    RunEvent,
    Started,
)
from handrail.kernel.run.evolve import replay
from handrail.store.port import StoreError, iso

STEPS_MAX = 100_000
"""In the definition of a run that had neither a limit of handoffs nor of steps."""


def record(events: Sequence[RunEvent], database: str, team: str) -> str:
    """Writes the run that these events are of; its id there. Raises StoreError."""
    with open_engine(database, visit=True) as opened:
        return opened.do(_write(opened.engine, events, team))


async def _write(engine: Engine, events: Sequence[RunEvent], team: str) -> str:
    first = events[0]
    assert isinstance(first, Started), "a guarded run begins with it"
    document = definition(events, team)
    defined = await engine.define(document)
    plan, _ = check(document, engine.settings.kernel)
    assert plan is not None, "it has just been defined"
    run_id = uuid7().hex
    started = replace(
        first,
        run_id=run_id,
        bead_id=uuid7().hex,
        definition_id=defined.id,
        version=defined.version,
        place=document["start"],
    )
    story = history([started, *events[1:]])
    write, _ = project(plan, None, replay(story), story)
    _, won = engine.store.commit([write], iso(engine.clock()))
    if not won[0]:
        raise StoreError(f"run '{run_id}' was not written: another one has its id; try again")
    return run_id


def definition(events: Sequence[RunEvent], team: str) -> dict[str, Any]:
    """The team as the run has shown it."""
    ways: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event, HandedOff):
            ways.setdefault(event.source, []).append(event.target)
            ways.setdefault(event.target, [])
        elif isinstance(event, Reported):
            ways.setdefault(event.agent, [])
    if not ways:
        ways["nobody"] = []
    start = next(iter(ways))
    reached = {start, *(target for targets in ways.values() for target in targets)}
    ways[start] += [agent for agent in ways if agent not in reached]  # worked beside the others
    first = events[0]
    assert isinstance(first, Started), "a guarded run begins with it"
    final = next(
        (one.target for one in reversed(events) if isinstance(one, HandedOff) and one.accepted),
        start,
    )
    return {
        "name": team,
        "kind": "team",
        "start": start,
        "terminator": final,
        "agents": [
            {"id": agent, "hands_off_to": sorted(set(targets))} for agent, targets in ways.items()
        ],
        "stop_rules": _rules(first.limits),
        "metadata": {"guarded": True},
    }


def _rules(limits: Limits) -> dict[str, Any]:
    rules: dict[str, Any] = msgspec.to_builtins(limits)
    if limits.max_handoffs is None and limits.max_steps is None:
        rules["max_steps"] = STEPS_MAX
    return rules


def history(events: Sequence[RunEvent]) -> list[RunEvent]:
    """The guard's events as those of a team's run."""
    started = events[0]
    assert isinstance(started, Started), "a guarded run begins with it"
    told = _Story(started)
    for event, after in zip(events[1:], [*events[2:], None], strict=True):
        match event:
            case Reported():
                told.reported(event, after)
            case HandedOff():
                told.handed_off(event)
            case Ended():
                told.ended(event)
            case _:
                raise AssertionError(f"no guard records {type(event).__name__}")
    return told.events


class _Story:
    """The history as far as it is told. `answered`: the holder's last step has its result."""

    def __init__(self, started: Started) -> None:
        self.events: list[RunEvent] = [started]
        self.holder, self.fence, self.answered = started.place, 0, False
        self._offer(started.at)

    def reported(self, event: Reported, after: RunEvent | None) -> None:
        if self.answered:
            self._offer(event.at)
        at, result = event.at, replace(event.result, outcome=Outcome.CONTINUE)
        if isinstance(after, HandedOff) and after.source == self.holder:
            at, result = after.at, _handing(result, after)
        elif isinstance(after, Ended) and after.stop.rule is StopRule.COMPLETED:
            at, result = after.at, _ending(result, after)
        self._report(at, result, event)

    def handed_off(self, event: HandedOff) -> None:
        if event.source != self.holder:
            self._move(event)
        if not self.answered:
            self._report(event.at, _handing(Result(), event))
        self.events.append(event)
        if event.accepted:
            self.holder, self.answered = event.target, False
            self._offer(event.at)

    def ended(self, event: Ended) -> None:
        last = self.events[-1]
        if event.stop.rule is StopRule.COMPLETED:
            if not self.answered:
                self._report(event.at, _ending(Result(), event))
            stop = replace(event.stop, rule=StopRule.TERMINATED, agent=self.holder)
            event = replace(event, stop=stop)
        elif isinstance(last, Claimed) and event.stop.rule is not StopRule.AGENT_LOST:
            del self.events[-2:]  # the next step was not taken any more
        self.events.append(event)

    def _offer(self, at: datetime) -> None:
        self.fence += 1
        self.answered = False
        place, fence = self.holder, self.fence
        self.events += [
            Offered(at=at, place=place, fence=fence, attempt=1, role=place),
            Claimed(at=at, place=place, fence=fence, agent=place),
        ]

    def _report(self, at: datetime, result: Result, seen: Reported | None = None) -> None:
        event = Reported(
            at=at, place=self.holder, fence=self.fence, agent=self.holder, result=result
        )
        if seen is not None:
            event = replace(event, agent=seen.agent, weighed=seen.weighed, phase=seen.phase)
        self.events.append(event)
        self.answered = True

    def _move(self, event: HandedOff) -> None:
        """The turn goes to an agent that worked beside the holder."""
        self.events.append(
            Moved(
                at=event.at,
                source=self.holder,
                targets=(event.source,),
                outcome="beside",
                reason="several agents worked at once",
                enters=(event.source,),
                cancels=(self.holder,),
                spends=event.source,  # so it is no handoff: nobody handed it over
            )
        )
        self.holder = event.source
        self._offer(event.at)


def _handing(result: Result, event: HandedOff) -> Result:
    return replace(result, outcome=Outcome.HANDOFF, to=event.target, reason=event.reason)


def _ending(result: Result, event: Ended) -> Result:
    return replace(result, outcome=Outcome.TERMINATE, reason=event.stop.reason)
