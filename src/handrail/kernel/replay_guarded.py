"""How a guarded run is replayed: what each event of it brings about under other limits.

A guarded run goes on in a program elsewhere. Nothing of it follows from the definition, which is
only what was seen of the team so far; a guard judged each handoff and each result when it came, and
so does the replay, in the same way. Times on record are told by another clock: how long the run had
been running is taken from the stop that says so, unless the limit of it is another one now.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from msgspec.structs import replace

from handrail.kernel.limits import Limits
from handrail.kernel.plan import Plan
from handrail.kernel.progress import weigh
from handrail.kernel.rules import Fired, Moment, StopRule, judge_step
from handrail.kernel.run import people
from handrail.kernel.run.book import Book
from handrail.kernel.run.commands import Answer
from handrail.kernel.run.events import (
    Answered,
    Asked,
    Ended,
    HandedOff,
    Migrated,
    Moved,
    Offered,
    Reported,
    RunEvent,
    Started,
)
from handrail.kernel.run.evolve import evolve
from handrail.kernel.run.state import Person

OUT_OF_TIME = frozenset({StopRule.MAX_DURATION})
STEPPING = frozenset({StopRule.BUDGET, StopRule.MAX_STEPS}) | OUT_OF_TIME
"""What fires before a step, which is not on record then."""
OF_ITSELF = frozenset(
    {StopRule.AGENT_LOST, StopRule.HUMAN_DEADLINE, StopRule.PAUSE_DEADLINE}
    | {StopRule.CLOSED, StopRule.TERMINATED, StopRule.COMPLETED}
)
"""Ends that no limit brings about: the program's own, a person's, or nobody's."""


class Walk(Protocol):
    """A replay on its way: `next` is the event that happens now."""

    events: list[RunEvent]
    next: int
    plan: Plan

    def limits(self, event: Started | Migrated, context: dict[str, Any]) -> Limits: ...
    def plans(self, workflow_id: str, version: int, /) -> Plan: ...


def _started(walk: Walk, book: Book, event: Started) -> None:
    book.emit(replace(event, limits=walk.limits(event, event.context)))


def _seen(walk: Walk, book: Book, event: Asked | Moved) -> None:
    book.emit(event)


def _migrated(walk: Walk, book: Book, event: Migrated) -> None:
    walk.plan = book.plan = walk.plans(event.definition_id, event.version)
    book.emit(replace(event, limits=walk.limits(event, book.run.context)))


def _answered(walk: Walk, book: Book, event: Answered) -> None:
    question = book.run.questions[event.question_id]
    book.emit(event)
    answer = Answer(question_id=question.id, by=Person(name=event.by), text=event.text)
    people.SETTLE[event.decision](book, question, answer)


def _offered(walk: Walk, book: Book, event: Offered) -> None:
    """A step. The first of a turn was judged with the handoff that led to it."""
    further = book.run.tokens[event.place].fence > 0
    full = _full(walk, book) if further else []
    if full:
        _stop(walk, book, full, book.run.final_agent)
    else:
        book.emit(event)


def _reported(walk: Walk, book: Book, event: Reported) -> None:
    run, agent = book.run, event.agent
    evidence, scored = event.result.evidence, event.weighed.goal
    weighed = weigh(
        run.ledger,
        run.limits,
        agent,
        evidence,
        task=scored.removeprefix(f"{agent}/") if scored != agent else "",
        milestone=event.phase,
        paths=None if run.paths is None else frozenset(run.paths),
    )
    step = run.tokens[event.place].step
    book.emit(replace(event, weighed=weighed))
    fired = book.judge_result(agent, event.result, step)
    if fired:
        _stop(walk, book, fired, agent)


def _handed_off(walk: Walk, book: Book, event: HandedOff) -> None:
    """The handoff that completes a repetition is still made."""
    found, full = book.judge_handoff(event.source, event.target), _full(walk, book)
    accepted = not full and all(one.rule is StopRule.REPEATED_PATTERN for one in found)
    number = book.run.ledger.handoffs + 1 if accepted else 0
    book.emit(replace(event, accepted=accepted, number=number))
    if found or full:
        _stop(walk, book, [*found, *full], event.source)


def _ended(walk: Walk, book: Book, event: Ended) -> None:
    if event.stop.rule in OF_ITSELF:
        book.emit(event)
        return
    # Whoever wanted one more step, and had none left, is named before the clock.
    rules = OUT_OF_TIME if event.stop.rule in OUT_OF_TIME else STEPPING
    full = [one for one in _full(walk, book) if one.rule in rules]
    if full and event.stop.rule in rules:
        _stop(walk, book, full, event.stop.agent)


def _full(walk: Walk, book: Book) -> list[Fired]:
    """Rules against one more step."""
    run = book.run
    end = _end(walk, 2)
    timed = end is not None and end.stop.rule is StopRule.MAX_DURATION
    elapsed = end.stop.seen if end is not None and timed else 0.0
    assert isinstance(elapsed, int | float), "it is a time"
    return judge_step(Moment(run.ledger, run.limits, step=run.ledger.steps, elapsed=elapsed))


def _stop(walk: Walk, book: Book, fired: Sequence[Fired], agent: str) -> None:
    """The end on record where it is the same: only the program knew whether its goal was met."""
    before = book.run
    book.stop(list(fired), agent)
    stop, end = book.run.stop, _end(walk, len(book.events))
    if end is not None and stop is not None and end.stop.rule is stop.rule:
        book.run, book.events[-1] = evolve(before, end), end


def _end(walk: Walk, within: int) -> Ended | None:
    """The end on record, if it is that near."""
    for event in walk.events[walk.next : walk.next + within]:
        if isinstance(event, Ended):
            return event
    return None


GUARDED = cast(
    "dict[type[RunEvent], Callable[[Any, Book, Any], None]]",
    {
        Started: _started,
        Asked: _seen,
        Moved: _seen,
        Migrated: _migrated,
        Answered: _answered,
        Offered: _offered,
        Reported: _reported,
        HandedOff: _handed_off,
        Ended: _ended,
    },
)
