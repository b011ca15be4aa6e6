"""What a guard saw, told as the history of a team's run. Pure.

Who had the turn, each step offered, taken and answered, each handoff, the end with its reason. The
definition is the team as the run has shown it so far.

An agent that has brought the run to its own end is its terminator. A step and the handoff that
follows it are one answer, given when it was handed over. Where several agents worked at once, their
steps stand under the one whose turn it was; a handoff by another one is preceded by a move of the
turn to it. A step stands there once it is answered: until then the turn alone is known, so that
nobody else can take it, and nothing has to be unsaid.

There are exactly as many steps as the guard has counted: one for each turn, and one more for each
further result in it. A turn that has its result is handed over, asks a person and ends without
another one.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from handrail.client.guard_calls import Seen
from handrail.guard.meant import STEPS_MAX
from handrail.kernel.limits import Limits
from handrail.kernel.result import Outcome, Result
from handrail.kernel.rules import StopRule
from handrail.kernel.run.book import digest
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
from handrail.kernel.run.state import Question, QuestionKind, Run, seconds

NOBODY = "nobody"
"""The agent of a run in which none has done anything."""

APART = "guarded:"
"""Before the name of an agent that works elsewhere."""


def history(events: Sequence[RunEvent]) -> list[RunEvent]:
    """A whole run of a guard's events as those of a team's run."""
    started = events[0]
    assert isinstance(started, Started), "a guarded run begins with it"
    told = Story(evolve(None, started))
    told.go_on(seen(events[1:]))
    return [started, *told.events]


def seen(events: Iterable[RunEvent]) -> list[Seen]:
    """What a guard tells of a run that has begun."""
    return [event for event in events if isinstance(event, Seen)]


def start_of(events: Sequence[RunEvent]) -> str:
    """Who has the turn first."""
    for event in events:
        if isinstance(event, HandedOff):
            return event.source
        if isinstance(event, Reported):
            return event.agent
    return NOBODY


def definition(
    team: str,
    limits: Limits,
    events: Sequence[RunEvent],
    known: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The team as these events show it, and as it was `known` before. No agent of a server has the
    roles in it."""
    known = known or {}
    ways = {agent["id"]: list(agent["hands_off_to"]) for agent in known.get("agents", ())}
    for event in events:
        if isinstance(event, HandedOff):
            ways.setdefault(event.source, []).append(event.target)
            ways.setdefault(event.target, [])
        elif isinstance(event, Reported):
            ways.setdefault(event.agent, [])
    start = known.get("start") or start_of(events)
    ways.setdefault(start, [])
    for agent in ways:
        if agent not in _reached(ways, start):  # it worked beside the others
            ways[start].append(agent)
    return {
        "name": team,
        "kind": "team",
        "start": start,
        "terminator": known.get("terminator") or start,
        "agents": [
            {"id": agent, "hands_off_to": sorted(set(targets)), "role": f"{APART}{agent}"}
            for agent, targets in ways.items()
        ],
        "stop_rules": _rules(limits),
        "metadata": {"guarded": True},
    }


def _reached(ways: dict[str, list[str]], start: str) -> set[str]:
    """Agents to whom the turn can come."""
    found, ahead = {start}, [start]
    while ahead:  # each agent once
        fresh = set(ways[ahead.pop()]) - found
        found |= fresh
        ahead += fresh
    return found


def ended_by(document: dict[str, Any], events: Sequence[RunEvent], holder: str) -> dict[str, Any]:
    """With the agent that had the turn last as its terminator, if it has brought the run to its
    end."""
    last = events[-1]
    if not (isinstance(last, Ended) and last.stop.rule is StopRule.COMPLETED):
        return document
    held = (one.target for one in reversed(events) if isinstance(one, HandedOff) and one.accepted)
    return {**document, "terminator": next(held, holder)}


def _rules(limits: Limits) -> dict[str, Any]:
    rules: dict[str, Any] = msgspec.to_builtins(limits)
    rules["max_steps"] = STEPS_MAX if limits.max_steps is None else min(limits.max_steps, STEPS_MAX)
    return rules


class Story:
    """The history, told from a run as it stands; `events` are those that came since. `answered`:
    the holder's turn has its first result."""

    def __init__(self, run: Run, since: datetime | None = None) -> None:
        (token,) = run.tokens.values()
        self.run = run
        self.events: list[RunEvent] = []
        self._said = False
        """The holder's last answer says already what comes next."""
        self.holder, self.since = token.place, since or token.since
        self.answered = token.fence > 0

    def migrate(self, event: Migrated) -> None:
        """Before what has shown more of the team."""
        self._tell(event)

    def live_on(self, at: datetime) -> None:
        """The program lives, and nothing else is known of it."""
        self._tell(HeardOf(at=at, place=self.holder))

    def go_on(self, events: Sequence[Seen]) -> None:
        for n, event in enumerate(events, 1):
            after = events[n] if n < len(events) else None
            match event:
                case Reported():
                    self._reported(event, after)
                case HandedOff():
                    self._handed_off(event)
                case Ended():
                    self._ended(event)

    def ask(self, text: str, at: datetime, wait: float) -> Question:
        """The holder asks a person, who has so many seconds for an answer."""
        result = self.run.tokens[self.holder].result
        question = Question(
            id=f"{self.run.id}.q{self.run.questions_asked + 1}",
            kind=QuestionKind.CLARIFICATION,
            place=self.holder,
            text=text,
            digest=digest(self.run, text, result),
            asked_at=at,
            deadline=at + seconds(wait),
            result=result,
            own=True,
        )
        self._tell(Asked(at=at, question=question))
        return question

    def _reported(self, event: Reported, after: Seen | None) -> None:
        self._step(event.at)
        at, result = event.at, replace(event.result, outcome=Outcome.CONTINUE)
        if isinstance(after, HandedOff) and after.source == self.holder:
            at, result, self._said = after.at, _handing(result, after), True
        elif isinstance(after, Ended) and after.stop.rule is StopRule.COMPLETED:
            at, result, self._said = after.at, _ending(result, after), True
        self._answer(at, result, event)

    def _handed_off(self, event: HandedOff) -> None:
        if event.source != self.holder:
            self._move(event)
        if not (self._said or self.answered):
            self._step(event.at)
            self._answer(event.at, _handing(Result(), event))
        self._said = False
        number = self.run.ledger.handoffs + 1 if event.accepted else 0
        self._tell(replace(event, number=number))
        if event.accepted:
            self.holder, self.since, self.answered = event.target, event.at, False

    def _ended(self, event: Ended) -> None:
        if event.stop.rule is StopRule.COMPLETED:
            if not (self._said or self.answered):
                self._step(event.at)
                self._answer(event.at, _ending(Result(), event))
            stop = replace(event.stop, rule=StopRule.TERMINATED, agent=self.holder)
            event = replace(event, stop=stop)
        elif not self.answered and event.stop.rule is StopRule.AGENT_LOST:
            self._step(event.at)
        self._tell(event)

    def _step(self, at: datetime) -> None:
        """A step of the holder, from when it got the turn, or else from now."""
        if not self.answered:
            at = self.since
        place, fence = self.holder, self.run.fence + 1
        self._tell(Offered(at=at, place=place, fence=fence, attempt=1, role=place))
        self._tell(Claimed(at=at, place=place, fence=fence, agent=place))

    def _answer(self, at: datetime, result: Result, told: Reported | None = None) -> None:
        event = Reported(
            at=at,
            place=self.holder,
            fence=self.run.fence,
            agent=self.holder,
            result=result,
        )
        if told is not None:
            event = replace(event, agent=told.agent, weighed=told.weighed, phase=told.phase)
        self._tell(event)
        self.answered = True

    def _move(self, event: HandedOff) -> None:
        """The turn goes to an agent that worked beside the holder. For the guard it is the same
        turn, whose step is counted."""
        self._tell(
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
        self.holder, self.since = event.source, event.at

    def _tell(self, event: RunEvent) -> None:
        self.run = evolve(self.run, event)
        self.events.append(event)


def _handing(result: Result, event: HandedOff) -> Result:
    return replace(result, outcome=Outcome.HANDOFF, to=event.target, reason=event.reason)


def _ending(result: Result, event: Ended) -> Result:
    return replace(result, outcome=Outcome.TERMINATE, reason=event.stop.reason)
