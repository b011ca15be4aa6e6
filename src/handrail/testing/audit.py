"""The auditor: watches a run from outside and knows what must never happen.

It takes part in nothing. It gives the machine a command, keeps a book of its own from the events
that come back (dispatches, attempts, questions, figures), and compares. What it finds wrong is a
`Violation` that names the rule. Its book shares no code with `evolve`, so the two can disagree.

Rules that are checked after every event (docs/requirements.md):

- the measure falls, except for records and acts of people; these have their allotments (K14, K16);
  it is 0 exactly at the end (K26)
- fences grow, one dispatch at a place is open, its holder alone answers it (K2, K21)
- attempts stay within `max_attempts` of the visit (K1), and every figure of a stretch within the
  certificate (K14, K23)
- an answer settles an open question in time, from somebody who may give it (design 6)
- only the terminator ends a team, apart from rules and people (H5)

and after every decision: a refusal changed nothing (but for clocks that were due anyway), nothing
in the state before was written over, an ended run stays as it is, every wait has a deadline, no
work begins beyond the running time, and effects tell the outside world what it must know.
"""

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, ClassVar, cast

import msgspec

from handrail.kernel.definition import NodeType, TerminalStatus
from handrail.kernel.plan import Plan
from handrail.kernel.result import Outcome
from handrail.kernel.rules import StopRule
from handrail.kernel.run import commands as c
from handrail.kernel.run import machine
from handrail.kernel.run.effects import CancelWork, Conclude, FreeLock, Notify, SeekLock
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
from handrail.kernel.run.machine import Run, RunDecision
from handrail.kernel.run.state import Person, Phase, Question, QuestionKind, RunStatus
from handrail.kernel.run.team import review_wanted

FIGURES = ("dispatches", "handoffs", "transitions", "questions", "asks")
LEVEL = ("viewer", "operator", "ceo", "admin")
FALLING = (c.GrantLock, c.Claim, c.Report, c.Lose, c.MissRole, c.Tick)
"""Commands of agents and of time: as a whole they lower the measure if they change anything."""
STATUSES = {
    StopRule.CLOSED: {TerminalStatus.CLOSED_BY_HUMAN},
    StopRule.TERMINATED: {TerminalStatus.DONE_SUCCESS, TerminalStatus.DONE_PARTIAL},
    StopRule.CONSTRAINT: {TerminalStatus.ABORTED_CONSTRAINT},
    StopRule.BUDGET: {TerminalStatus.ABORTED_CONSTRAINT},
    StopRule.COMPLETED: {
        TerminalStatus.DONE_SUCCESS,
        TerminalStatus.DONE_PARTIAL,
        TerminalStatus.ABORTED_STUCK,
    },
}
WORKED_ON = (Phase.OFFERED, Phase.CLAIMED)
STUCK = {TerminalStatus.ABORTED_STUCK, TerminalStatus.DONE_PARTIAL}

encode = msgspec.json.Encoder(order="deterministic").encode
decode_event = cast(
    "Callable[[bytes], RunEvent]", msgspec.json.Decoder(cast("type[Any]", RunEvent)).decode
)


class Violation(AssertionError):  # noqa: N818 - what it is, in the words of the tests
    """Something happened that must never happen."""


def expect(holds: bool, rule: str, detail: object = "") -> None:
    if not holds:
        raise Violation(f"{rule}: {detail}" if detail != "" else rule)


class Visit:
    """The auditor's own note on one stay at a node, or one turn."""

    def __init__(self) -> None:
        self.attempts = 0
        self.fence = 0
        """Of the open dispatch; 0 if there is none."""
        self.agent = ""

    def close(self) -> None:
        self.fence, self.agent = 0, ""


class Auditor:
    """One run under watch: `take` is the only way to it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.live: Run | None = None
        self.events: list[RunEvent] = []
        self.stored: list[bytes] = []
        self.rank = 0
        self.stretches = 1
        self.visits: dict[str, Visit] = {}
        self.open: dict[str, tuple[str, ...]] = {}
        """Open questions, and who has approved each."""
        self.figures: Counter[str] = Counter()
        self.fence = 0
        self.seeking: set[str] = set()
        """Commit nodes whose lock was asked for."""
        self._bound: dict[str, int] = {}
        self._by: Person | None = None
        self._reported: Reported | None = None
        self._saved: Run | None = None
        self._replayed = 0

    @property
    def run(self) -> Run:
        assert self.live is not None, "the run has been started"
        return self.live

    def take(self, command: c.RunCommand, now: datetime) -> RunDecision:
        """Give the machine a command and watch what it makes of it."""
        before = self.live
        was = encode(before)
        due = None if before is None else machine.next_due(self.plan, before)
        decision = machine.decide(self.plan, before, command, now)
        expect(encode(before) == was, "decide changes none of its arguments")
        self._by = getattr(command, "by", None)
        self._reported = None
        if before is not None:
            self._check_refusal(before, command, decision, now, due)
        rank = self.rank
        for event in decision.events:
            self._apply(event)
        if self.live is not None:
            self._check_whole(before, command, decision, now, rank)
        return decision

    # After every event

    def _apply(self, event: RunEvent) -> None:
        before, rank = self.live, self.rank
        if before is not None:
            expect(not before.ended, "nothing happens after the end", event)
        stored = encode(event)
        read = decode_event(stored)
        expect(read == event, "an event is stored as it is", stored)
        expect(encode(read) == stored, "an event read is written byte for byte", stored)
        self.CHECKS[type(event)](self, event)
        self.live = after = machine.evolve(before, event)
        self.events.append(event)
        self.stored.append(stored)
        expect(after.seq == len(self.events), "events are numbered without gaps", after.seq)
        self.rank = machine.measure(self.plan, after)
        expect((self.rank == 0) == after.ended, "the measure is 0 exactly at the end", self.rank)
        expect(set(after.tokens) == set(self.visits), "tokens stand where the events say", event)
        expect(
            set(after.questions) == set(self.open), "questions are open as the events say", event
        )
        if before is not None:
            self._check_measure(before, event, rank)

    def _check_measure(self, before: Run, event: RunEvent, rank: int) -> None:
        rise = self.rank - rank
        if isinstance(event, Warned | ClocksPushed | HeardOf | Patched):
            expect(rise == 0, "a record leaves the measure as it is", event)
        elif isinstance(event, HandedOff) and not event.accepted:
            expect(rise == 0, "a refused handoff leaves the measure as it is", event)
        elif isinstance(event, Migrated):
            return  # the move that follows is the raising act
        elif isinstance(event, Moved) and event.renews:
            most = self._fresh() + (1 if before.paused_at is not None else 0)
            expect(self.rank <= most, "a person's act grants no more than a fresh run", event)
        elif isinstance(event, Paused):
            expect(rise <= 1, "a pause raises the measure by its own two events", event)
        elif isinstance(event, Reasked):
            lost = len(before.questions[event.question_id].approved_by)
            expect(rise <= max(1, lost), "asking again grants only the answers again", event)
        else:
            expect(rise < 0, f"the measure falls with {type(event).__name__}", (rank, self.rank))

    def _fresh(self) -> int:
        """The measure of a run that starts now, under the limits of this one."""
        run, plan = self.run, self.plan
        place = plan.team.start if plan.kind == "team" else plan.graph.nodes[plan.graph.start].id
        start = Started(
            at=run.started_at,
            run_id=run.id,
            bead_id=run.bead_id,
            definition_id=run.definition_id,
            version=run.version,
            kind=run.kind,
            place=place,
            limits=run.limits,
        )
        return machine.measure(plan, machine.evolve(None, start))

    def _certify(self, scope: object) -> None:
        bound = self.plan.bound(scope)
        self._bound = {figure: getattr(bound, figure) for figure in FIGURES}

    def _count(self, figure: str) -> None:
        self.figures[figure] += 1
        count, most = self.figures[figure], self._bound[figure]
        expect(count <= most, f"{figure} of a stretch stay within the certificate", (count, most))

    def _started(self, event: Started) -> None:
        expect(self.live is None, "a run starts once")
        self._certify(event.context.get("task_scope"))
        self.visits = {event.place: Visit()}

    def _offered(self, event: Offered) -> None:
        visit = self.visits[event.place]
        expect(event.fence > self.fence, "fences grow over the whole run", event)
        expect(visit.fence == 0, "at most one dispatch is open at a place", event)
        expect(self.run.paused_at is None, "nothing is offered in a pause", event)
        visit.attempts += 1
        expect(event.attempt == visit.attempts, "attempts are counted per visit", event)
        if self.plan.kind == "workflow":
            node = self.plan.node(event.place)
            expect(node.type is NodeType.TASK, "only tasks are dispatched", event)
            expect(visit.attempts <= node.max_attempts, "attempts stay within their limit", event)
            locked = event.lock is not None
            expect(locked == (node.config.kind == "commit"), "a commit needs the lock", event)
        self.fence = visit.fence = event.fence
        self._count("dispatches")

    def _claimed(self, event: Claimed) -> None:
        visit = self.visits[event.place]
        expect(visit.fence == event.fence and not visit.agent, "only an offer is claimed", event)
        expect(self.run.paused_at is None, "nothing is claimed in a pause", event)
        visit.agent = event.agent

    def _returned(self, event: Reported | Faulted | Lost) -> None:
        visit = self.visits[event.place]
        mine = visit.fence == event.fence != 0 and visit.agent == event.agent != ""
        expect(mine, "only the holder of an open dispatch answers it", event)
        visit.close()
        if isinstance(event, Reported):
            self._reported = event

    def _timed_out(self, event: TimedOut) -> None:
        visit = self.visits[event.place]
        held = visit.agent != ""
        expect(held == (event.clock == "work"), "the clock that ran is the one that fires", event)
        visit.close()

    def _handed_off(self, event: HandedOff) -> None:
        if not event.accepted:
            return
        expect(self._reported is not None, "a handoff follows a result", event)
        self._count("handoffs")
        self._count("transitions")
        self.visits = {event.source if event.already_done else event.target: Visit()}

    def _moved(self, event: Moved) -> None:
        if event.renews:
            by = self._by
            allowed = by is not None and by.name == event.by and LEVEL.index(by.role) >= 1
            expect(allowed, "only a person opens a new stretch", event)
            self.figures.clear()
            self.stretches += 1
        else:
            self._count("transitions")
        gone = {event.source, *event.cancels}
        for place in gone & set(self.visits):
            del self.visits[place]
        for place in event.enters:
            self.visits[place] = Visit()
        self.open = {q: who for q, who in self.open.items() if self._place(q) not in gone}

    def _place(self, question_id: str) -> str:
        return self.run.questions[question_id].place

    def _asked(self, event: Asked) -> None:
        question = event.question
        expect(self.visits[question.place].fence == 0, "who asks works on nothing", event)
        expect(question.deadline >= event.at, "a question has a deadline", event)
        self.open[question.id] = ()
        self._count("asks" if question.own else "questions")

    def _answered(self, event: Answered) -> None:
        run = self.run
        expect(event.question_id in self.open, "only an open question is answered", event)
        question, who = run.questions[event.question_id], self.open[event.question_id]
        waited = event.at - run.paused_at if run.paused_at is not None else timedelta(0)
        expect(event.at < question.deadline + waited, "an expired question is not answered", event)
        by = self._by
        expect(by is not None and by.name == event.by, "the person who answers is named", event)
        assert by is not None
        expect(may_answer(question, by), "nobody answers without the right to", (by, question))
        expect(by.name not in who, "each person approves once", event)
        final = event.decision != "approve" or len(who) + 1 >= question.quorum
        expect(final == event.final, "M of N approvals settle a question", event)
        if final:
            del self.open[event.question_id]
        else:
            self.open[event.question_id] = (*who, by.name)

    def _reasked(self, event: Reasked) -> None:
        old, new = self.run.questions[event.question_id], event.question
        expect(new.deadline == old.deadline, "a question asked again keeps its deadline", event)
        expect(new.digest != old.digest and not new.approved_by, "it is asked afresh", event)
        del self.open[old.id]
        self.open[new.id] = ()

    def _migrated(self, event: Migrated) -> None:
        self._certify(self.run.context.get("task_scope"))

    def _nothing(self, event: RunEvent) -> None:
        """Moves nothing that the auditor keeps."""

    def _ended(self, event: Ended) -> None:
        rule = event.stop.rule
        expect(event.status in STATUSES.get(rule, STUCK), "rule and status agree", event)
        if self.plan.kind == "team" and rule in (StopRule.TERMINATED, StopRule.COMPLETED):
            self._check_terminator(event)
        self.visits, self.open = {}, {}

    def _check_terminator(self, event: Ended) -> None:
        team, said = self.plan.team, self._reported
        if said is None:
            expect(bool(event.by), "somebody ended the run", event)
            return
        reviewed = team.review is not None and said.place in team.review.after
        ends = said.place == team.terminator
        if event.stop.rule is StopRule.TERMINATED:
            ends = ends and said.result.outcome is Outcome.TERMINATE
            expect(ends, "only the terminator ends a team", event)
        else:
            expect(reviewed or ends, "only the terminator ends a team", event)
        wanted = review_wanted(self.plan, self.run)
        expect(not wanted, "a review is skipped only if it may be", event)

    CHECKS: ClassVar[dict[type[RunEvent], Callable[[Any, Any], None]]] = {
        Started: _started,
        Offered: _offered,
        Claimed: _claimed,
        Reported: _returned,
        Faulted: _returned,
        Lost: _returned,
        TimedOut: _timed_out,
        HandedOff: _handed_off,
        Moved: _moved,
        Asked: _asked,
        Answered: _answered,
        Reasked: _reasked,
        Paused: _nothing,
        Resumed: _nothing,
        Patched: _nothing,
        Migrated: _migrated,
        ClocksPushed: _nothing,
        HeardOf: _nothing,
        Warned: _nothing,
        Ended: _ended,
    }

    # After every decision

    def _check_refusal(
        self,
        before: Run,
        command: c.RunCommand,
        decision: RunDecision,
        now: datetime,
        due: datetime | None,
    ) -> None:
        if before.ended:
            expect(decision.refusal is not None, "an ended run refuses everything", command)
            expect(not decision.events and not decision.effects, "the end absorbs", command)
        elif decision.refusal is not None and decision.events:
            expect(due is not None and due <= now, "a refusal changes nothing", command)
            ticked = machine.decide(self.plan, before, c.Tick(), now).events
            expect(decision.events == ticked, "a refusal lets only clocks fire", command)

    def _check_whole(
        self,
        before: Run | None,
        command: c.RunCommand,
        decision: RunDecision,
        now: datetime,
        rank: int,
    ) -> None:
        run = self.run
        due = machine.next_due(self.plan, run)
        expect((due is None) == run.ended, "every wait has a deadline", run.tokens)
        if before is None:
            self.seeking = {e.place for e in decision.effects if isinstance(e, SeekLock)}
        if before is None or before.ended:
            return
        changed = any(not isinstance(e, Warned) for e in decision.events)
        if changed and isinstance(command, FALLING):
            expect(self.rank < rank, "a command of agents or time lowers the measure", command)
        if not isinstance(command, c.Start | c.Migrate | c.PushClocks):  # these see no clock
            self._check_duration(before, decision, now)
        self._check_effects(before, decision)
        if self.plan.kind == "workflow":
            self._check_lock(before, decision)

    def _check_duration(self, before: Run, decision: RunDecision, now: datetime) -> None:
        most = before.limits.max_duration
        if most is None or before.status is not RunStatus.RUNNING:
            return
        if before.elapsed(now) >= most:
            begun = [e for e in decision.events if isinstance(e, Offered | Claimed | Reported)]
            expect(not begun, "no work begins beyond the running time", begun)
            over = self.run.ended or self.run.status is RunStatus.WAITING
            expect(over, "the running time ends a run", decision)

    def _check_effects(self, before: Run, decision: RunDecision) -> None:
        asked = {e.question.id for e in decision.events if isinstance(e, Asked | Reasked)}
        told = {e.question_id for e in decision.effects if isinstance(e, Notify)}
        expect(asked == told, "whoever is asked is told", asked ^ told)
        concluded = any(isinstance(e, Conclude) for e in decision.effects)
        ended = bool(decision.events) and self.run.ended
        expect(concluded == ended, "the end is told once", decision)
        came = {e.fence for e in decision.events if isinstance(e, Reported | Faulted | Lost)}
        held = {t.fence for t in before.tokens.values() if t.agent and t.phase == "claimed"}
        still = {v.fence for v in self.visits.values()}
        cancelled = {e.fence for e in decision.effects if isinstance(e, CancelWork)}
        expect(held - came - still <= cancelled, "cancelled work is told to stop", held)

    def _check_lock(self, before: Run, decision: RunDecision) -> None:
        """A commit that waits has asked for the lock; one that is over has given it back."""
        freed = {e.place for e in decision.effects if isinstance(e, FreeLock)}
        self.seeking |= {e.place for e in decision.effects if isinstance(e, SeekLock)}
        still = {visit.fence for visit in self.visits.values()}
        for place, token in before.tokens.items():
            over = token.phase in WORKED_ON and token.fence not in still
            if over and self._commits(place):
                expect(place in freed, "the lock of a commit that is over is freed", place)
        if self.run.paused_at is not None:
            return
        for place, token in self.run.tokens.items():
            if self._commits(place) and token.phase in (Phase.READY, Phase.SETTLED):
                expect(place in self.seeking, "a commit that waits has asked for the lock", place)
            else:
                self.seeking.discard(place)

    def _commits(self, place: str) -> bool:
        return self.plan.node(place).config.kind == "commit"

    # After a crash

    def rebuild(self) -> None:
        """The process is gone: build the run from what was stored, and go on with that."""
        since = [decode_event(raw) for raw in self.stored[self._replayed :]]
        rebuilt = machine.replay(since, self._saved)
        expect(rebuilt == self.live, "a replayed run equals the live one", len(self.events))
        self.live = self._saved = rebuilt
        self._replayed = len(self.stored)

    def rebuild_from_the_start(self) -> None:
        rebuilt = machine.replay(decode_event(raw) for raw in self.stored)
        expect(rebuilt == self.live, "a replayed run equals the live one", len(self.events))


def may_answer(question: Question, by: Person) -> bool:
    """Who may: named people, or the level that the kind of question takes; never the author."""
    if by.name in question.barred:
        return False
    named = question.approvers
    if by.name in named:
        return True
    needed = 1 if question.kind is QuestionKind.CLARIFICATION else 2
    level = LEVEL.index(by.role)
    roles = [LEVEL.index(role) for role in named if role in LEVEL]
    return level >= needed and (not named or any(level >= role for role in roles))
