"""Replay: what other stop rules would have made of a recorded run. No agent is run.

Theory of operation. Of the events of a run some came from outside (a result, a lost lease, a clock
that ran out, an act of a person) and the others followed. Replay takes those from outside, in order
and at their recorded times, gives them to the very functions that decided live, under the other
limits, and compares what follows with what is on record:

    the same events                    the run goes on as recorded
    an end that is not on record       there the other rules would have stopped it
    no end where the record has one    they would have let it go on; nothing is recorded beyond

Until the two differ, the state is what evolve makes of the recorded events, with progress weighed
anew: what counts as progress depends on the limits. The clocks of dispatches, questions and pauses
are what happened and no stop rules: they fire as recorded, whatever the settings say today. The
time that a run may be running is a rule: its clock fires when it is due under the other limits.

In a guarded run everything comes from outside, and it was judged there (`replay_guarded.py`).
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, cast

from msgspec.structs import replace

from handrail.kernel.limits import Limits
from handrail.kernel.other_rules import Given, limits_under
from handrail.kernel.plan import Plan
from handrail.kernel.replay_guarded import GUARDED
from handrail.kernel.rules import ORDER, StopRule
from handrail.kernel.run import clocks, people, team, workflow
from handrail.kernel.run.book import Book
from handrail.kernel.run.commands import Answer
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
)
from handrail.kernel.run.evolve import evolve
from handrail.kernel.run.evolve import replay as replay_events
from handrail.kernel.run.state import Person, Phase, Question, Run, Stop
from handrail.kernel.steps import started

Plans = Callable[[str, int], Plan]
"""The plan of a version of a definition."""

FROM_OUTSIDE = frozenset(
    {StopRule.HUMAN_DEADLINE, StopRule.PAUSE_DEADLINE, StopRule.CLOSED, StopRule.AGENT_LOST}
)
"""Ends that no limit brings about."""
NO_LIMITS = frozenset(rule for rule in StopRule if ORDER[rule] > ORDER[StopRule.AGENT_LOST])
"""Ends that other limits cannot put off."""
SAME_MOMENT = 3
"""How far behind a handoff that was refused its end stands, warnings included."""


class Walked:
    """How a recording goes under some rules. `run` is its last state: ended if the rules, or what
    came from outside, end it. `beyond`: it would go on where the recording has its end. `unlike` is
    the number of the first event that does not follow from the definition at all, else 0."""

    def __init__(self, run: Run, *, beyond: bool = False, unlike: int = 0) -> None:
        self.run, self.beyond, self.unlike = run, beyond, unlike


def walk(recording: Sequence[RunEvent], plans: Plans, given: Given | None = None) -> Walked:
    """The recording under these rules; without any, under those that it was recorded under."""
    return _Walk(recording, plans, given).go()


class _Walk:
    """`next` is the first recorded event that has not been gone over, `run` the state before it."""

    def __init__(self, recording: Sequence[RunEvent], plans: Plans, given: Given | None) -> None:
        first = started(recording)
        assert first.place, "recorded by an engine"
        self.events, self.plans, self.given = list(recording), plans, given
        self.plan = plans(first.definition_id, first.version)
        self.run: Run = None  # pyright: ignore[reportAttributeAccessIssue] - none until Started
        self.next = 0
        self.looked: tuple[datetime, datetime | None] = (first.at, None)
        self.happen = {**HAPPEN, **GUARDED} if self.plan.guarded else HAPPEN
        self.recorded = first.limits

    def go(self) -> Walked:
        while self.next < len(self.events):
            event = self.events[self.next]
            if isinstance(event, PASSING):
                self._take(event)
                continue
            book = self._happens(event)
            after = self.next + len(book.events)
            if book.events and self.events[self.next : after] == book.events:
                self.run, self.next = book.run, after  # as nearly always: the very same
            elif (found := self._compare(book.events)) is not None:
                return found
        return Walked(self.run)

    def _take(self, event: RunEvent) -> None:
        self.run = evolve(self.run, event)
        self.next += 1

    def _happens(self, event: RunEvent) -> Book:
        """All that follows from this event, itself included, under the limits in force."""
        due = self._due(event)
        if due is not None and due <= event.at and self._before(due, event):
            # Where it is on record it was noticed then; elsewhere it is noticed when it is so.
            late = isinstance(event, Ended) and event.stop.rule is StopRule.MAX_DURATION
            at = event.at if late else max(due, self.events[self.next - 1].at)
            book = Book(self.plan, self.run, at)
            clocks.run_out(book)
        else:
            book = Book(self.plan, self.run, event.at)
            self.happen.get(type(event), _nothing)(self, book, event)
        return book

    def _due(self, event: RunEvent) -> datetime | None:
        """When the running time is up. Clocks that fire at one moment were looked at together."""
        if self.next == 0 or isinstance(event, ClocksPushed):
            return None
        if self.plan.guarded and self.run.limits.max_duration == self.recorded.max_duration:
            return None  # it was judged by the program's own clock
        if self.looked[0] != event.at or not isinstance(event, CLOCKS):
            self.looked = (event.at, clocks.out_of_time(self.run))
        return self.looked[1]

    def _before(self, due: datetime, event: RunEvent) -> bool:
        """Whether it is up before the clock ran out that this event tells of."""
        match event:
            case (
                TimedOut(place=place, clock="queue" | "work")
                | Asked(question=Question(place=place))
            ):
                token = self.run.tokens[place]
                waits = self.plan.waits.get(place, self.plan.usual_waits)
                return due <= token.since + waits[token.phase is Phase.CLAIMED]
            case Ended(stop=Stop(rule=StopRule.HUMAN_DEADLINE)):
                return due <= min(question.deadline for question in self.run.questions.values())
            case _:
                return True

    def _compare(self, happened: list[RunEvent]) -> Walked | None:
        """Go over what is the same on record; where it is not, the walk is at its end."""
        for i, event in enumerate(happened):
            if isinstance(event, Warned):
                continue
            while self.next < len(self.events) and isinstance(self.events[self.next], Warned):
                self._take(self.events[self.next])
            recorded = self.events[self.next] if self.next < len(self.events) else None
            if recorded is None or _key(event) != _key(recorded):
                return self._parted(happened[i:])
            self._take(_reweighed(recorded, event))
        return self._parted([]) if not happened else None

    def _parted(self, happened: list[RunEvent]) -> Walked:
        """What happens is not what is on record: an end there, an end here, or neither."""
        if any(isinstance(event, Ended) for event in happened):
            return Walked(replay_events(happened, self.run))
        soon = self.events[self.next : self.next + SAME_MOMENT]
        ends = [event.stop.rule for event in soon if isinstance(event, Ended)]
        if ends and ends[0] not in NO_LIMITS:
            return Walked(self.run, beyond=True)
        return Walked(self.run, unlike=self.next + 1)

    def limits(self, event: Started | Migrated, context: dict[str, Any]) -> Limits:
        if self.given is None:
            return event.limits
        return limits_under(self.plan, self.given, context.get("task_scope"))


def _key(event: RunEvent) -> tuple[object, ...]:
    """Where an event leads. Texts and figures in it are not compared: they may have been put in
    other words since, or follow from the limits."""
    return type(event), *(getattr(event, name) for name in KEYS.get(type(event), ()))


KEYS: dict[type[RunEvent], tuple[str, ...]] = {
    Offered: ("place", "fence"),
    Reported: ("place", "fence", "asking"),
    Faulted: ("place", "fence"),
    Lost: ("place", "fence"),
    TimedOut: ("place", "fence"),
    HandedOff: ("source", "target", "accepted", "already_done"),
    Moved: ("source", "targets", "enters", "cancels"),
}


def _reweighed(recorded: RunEvent, happened: RunEvent) -> RunEvent:
    """As recorded, but for what follows from the limits."""
    if isinstance(recorded, Reported | Faulted) and isinstance(happened, Reported | Faulted):
        return replace(recorded, weighed=happened.weighed)
    return happened if isinstance(recorded, Started | Migrated | Ended) else recorded


# What each event from outside brings about


def _advance(book: Book) -> None:
    if not book.run.ended:
        (team if book.run.kind == "team" else workflow).advance(book)


def _nothing(walk: _Walk, book: Book, event: RunEvent) -> None:
    """It does not come from outside: here nothing brings it about."""


def _started(walk: _Walk, book: Book, event: Started) -> None:
    book.emit(replace(event, limits=walk.limits(event, event.context)))
    _advance(book)


def _claimed(walk: _Walk, book: Book, event: Claimed) -> None:
    book.emit(event)


def _acted(walk: _Walk, book: Book, event: Paused | Resumed | Patched | ClocksPushed) -> None:
    book.emit(event)
    _advance(book)


def _moved(walk: _Walk, book: Book, event: Moved) -> None:
    """A person's act, where it is one."""
    if event.renews:
        book.emit(event)
        _advance(book)


def _migrated(walk: _Walk, book: Book, event: Migrated) -> None:
    walk.plan = book.plan = walk.plans(event.definition_id, event.version)
    book.emit(replace(event, limits=walk.limits(event, book.run.context)))
    soon = walk.events[walk.next + 1 : walk.next + 2]
    for follows in [event for event in soon if isinstance(event, Moved)]:  # no clock in between
        book.emit(follows)
        _advance(book)


def _answered(walk: _Walk, book: Book, event: Answered) -> None:
    question = book.run.questions[event.question_id]
    book.emit(event)
    if event.final:
        by = Person(name=event.by)
        answer = Answer(question_id=question.id, by=by, text=event.text)
        people.SETTLE[event.decision](book, question, answer)
    _advance(book)


def _reported(walk: _Walk, book: Book, event: Reported) -> None:
    token = book.run.tokens[event.place]
    (team if book.run.kind == "team" else workflow).report(book, token, event.result)
    _advance(book)


def _faulted(walk: _Walk, book: Book, event: Faulted) -> None:
    token = book.run.tokens[event.place]
    if book.run.kind == "team":
        team.fault(book, token, event.fault, event.message, event.result)
    else:
        workflow.malformed(book, token, event.message, event.result)
    _advance(book)


def _lost(walk: _Walk, book: Book, event: Lost) -> None:
    clocks.lose(book, book.run.tokens[event.place], event.reason)
    _advance(book)


def _timed_out(walk: _Walk, book: Book, event: TimedOut) -> None:
    due = walk.looked[1]
    clocks.time_out(book, book.run.tokens[event.place], event.clock)
    if book.run.kind == "team" and due is not None and due <= event.at and not book.run.ended:
        clocks.run_out(book)  # both had run out when somebody looked
    _advance(book)


def _asked(walk: _Walk, book: Book, event: Asked) -> None:
    """By itself only where the commit lock did not come in time."""
    token = book.run.tokens[event.question.place]
    if token.phase in workflow.WAITING_TO_GO:
        clocks.time_out(book, token, "queue")


def _offered(walk: _Walk, book: Book, event: Offered) -> None:
    """By itself only where the commit lock has come."""
    if event.lock is not None:
        workflow.offer(book, book.run.tokens[event.place], event.role, event.lock)


def _ended(walk: _Walk, book: Book, event: Ended) -> None:
    """By itself only from outside, or because the commit lock came and no step was left."""
    if event.stop.rule in FROM_OUTSIDE:
        book.emit(event)
        return
    for token in book.run.tokens.values():
        if book.run.kind == "workflow" and token.phase in workflow.WAITING_TO_GO:
            workflow.offer(book, token, token.role, 0)
            return


PASSING = (Warned, Reasked, HeardOf)
"""Change nothing that a rule looks at."""
CLOCKS = (TimedOut, Asked, Ended)
"""Tell, where they come from outside, of clocks that ran out."""
HAPPEN = cast(
    "dict[type[RunEvent], Callable[[_Walk, Book, Any], None]]",
    {
        Started: _started,
        Claimed: _claimed,
        Paused: _acted,
        Resumed: _acted,
        Patched: _acted,
        ClocksPushed: _acted,
        Moved: _moved,
        Migrated: _migrated,
        Answered: _answered,
        Reported: _reported,
        Faulted: _faulted,
        Lost: _lost,
        TimedOut: _timed_out,
        Asked: _asked,
        Offered: _offered,
        Ended: _ended,
    },
)
