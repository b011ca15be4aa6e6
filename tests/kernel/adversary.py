"""An exhaustive adversary: every outcome, every interleaving, every value of every condition.

It explores all states that the real machine can reach from a start without a raising act of a
person, and gives for each figure the largest value any play reaches. One raising act is drawn too:
a person lets a run go on that a soft rule would stop (`ladder.ask`). It opens a stretch, whose
figures are counted from there (K14). States that differ only in times, names and numbers are one
state. Conditions are not evaluated: the adversary answers them, each time anew.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from msgspec.structs import replace
from tests.kernel.driven_run import NOON, red

from handrail.kernel.definition.certificate import Bound
from handrail.kernel.definition.condition import ConditionResult as Holds
from handrail.kernel.definition.limits import ASKS_MAX
from handrail.kernel.definition.model import Settings
from handrail.kernel.definition.plan import Plan, check_definition
from handrail.kernel.result import Evidence, Outcome, Result
from handrail.kernel.run import commands as c
from handrail.kernel.run.decide import decide
from handrail.kernel.run.events import (
    Asked,
    HandedOff,
    Moved,
    Offered,
    Reported,
    RunEvent,
    Warned,
    is_measure_neutral,
)
from handrail.kernel.run.evolve import evolve
from handrail.kernel.run.measure import measure
from handrail.kernel.run.state import PendingApproval, Person, Position, Run

CLOCK_SECONDS_MAX = 60
"""Clocks that are further off are alike: no play waits so long."""
FIGURES = ("dispatches", "handoffs", "transitions", "questions", "asks")
HASTY = Settings(role_grace=0)
"""A missing role escalates at once: the adversary's way of letting any dispatch time out."""


class TooBigError(Exception):
    """More states than one test should look at."""


class Oracle(Plan):
    """A plan whose conditions the adversary answers, bit by bit; unasked bits are False."""

    bits: tuple[bool, ...] = ()
    asked: int = 0
    certificate: Bound
    most: int = 0
    """The measure of a run that has just started."""

    def evaluate(self, expression: str, context: Any, budget: Any) -> Holds:
        if not expression:
            return Holds(holds=True)
        self.asked += 1
        return Holds(holds=self.asked <= len(self.bits) and self.bits[self.asked - 1])


class Play(NamedTuple):
    """One accepted move: what it added to the figures, and where it led. If it opened a stretch,
    the figures are those of the new one."""

    added: tuple[int, ...]
    after: Run
    events: tuple[RunEvent, ...]

    @property
    def renews(self) -> bool:
        return any(isinstance(event, Moved) and event.renews for event in self.events)


def oracle(document: dict[str, Any]) -> Oracle:
    plan, checked = check_definition(document, HASTY)
    assert plan is not None, checked.errors
    asked = Oracle(plan.definition, plan._graph, HASTY)
    asked.certificate = plan.bound()
    return asked


def plays(
    plan: Oracle, run: Run | None, command: c.RunCommand, seconds: float = 0
) -> Iterator[Play]:
    """The command, so many seconds later, under every answer to the conditions it meets."""
    bits: tuple[bool, ...] = ()
    while True:
        plan.bits, plan.asked = bits, 0
        decision = decide(plan, run, command, time_of(run) + timedelta(seconds=seconds))
        if decision.refusal is None:
            after = _apply(plan, run, decision.events)
            yield Play(added(decision.events), after, decision.events)
        full = bits + (False,) * (plan.asked - len(bits))
        while full and full[-1]:
            full = full[:-1]
        if not full:
            return
        bits = (*full[:-1], True)


def time_of(run: Run | None) -> datetime:
    """The time at which the next move is made. It stands still but for waits, a second each, so
    that no other clock is ever near."""
    if run is None:
        return NOON
    return max([NOON, *(token.since for token in run.positions.values())])


def _apply(plan: Oracle, run: Run | None, events: tuple[RunEvent, ...]) -> Run:
    """Evolve, and see the measure fall with every event but a mere record. A new stretch never
    lifts it above that of the start."""
    rank = None if run is None else measure(plan, run)
    for event in events:
        run = evolve(run, event)
        now = measure(plan, run)
        assert (now == 0) == run.has_ended
        if rank is None:
            plan.most = now
        elif isinstance(event, Moved) and event.renews:
            assert now <= plan.most, event
        else:
            assert now < rank or (now == rank and is_measure_neutral(event)), event
        rank = now
    assert run is not None
    return run


def added(events: tuple[RunEvent, ...]) -> tuple[int, ...]:
    """What the events add to the figures, from the last beginning of a stretch on."""
    begins = [i for i, e in enumerate(events) if isinstance(e, Moved) and e.renews]
    events = events[begins[-1] + 1 :] if begins else events
    seen = Counter(type(event) for event in events)
    own = sum(1 for e in events if isinstance(e, Asked) and e.approval.own)
    handed = sum(1 for e in events if isinstance(e, HandedOff) and e.accepted)
    return seen[Offered], handed, seen[Moved] + handed, seen[Asked] - own, own


def happenings(play: Play) -> set[str]:
    """What the move brought, of all that bends the way of a run."""
    happened: set[str] = set()
    for event in play.events:
        if isinstance(event, Warned) and event.nudge is not None:
            happened.add("nudge")
        elif isinstance(event, Offered) and event.concluding is not None:
            happened.add("conclusion")
        elif isinstance(event, HandedOff) and event.proposed:
            happened.add("redirect")
        elif isinstance(event, Reported) and event.wait is not None:
            happened.add("wait")
        elif isinstance(event, Asked) and event.approval.stop is not None:
            happened.add("ask")
    return happened


def results(plan: Plan, run: Run, *, asks: bool) -> Iterator[Result]:
    """Everything the holder may say that changes the run."""
    ask = [Result(outcome=Outcome.ASK, question="?")] if asks else []
    ask.append(Result(outcome=Outcome.WAITING, waits_for="it", retry_after=1))
    if run.kind == "workflow":
        yield Result(outcome=Outcome.SUCCESS)
        yield Result(outcome=Outcome.FAILURE)
        yield from ask
        return
    yield Result()
    yield from ask
    yield Result(outcome=Outcome.TERMINATE)
    for to in (*plan.agents, "review"):
        # Progress that Handrail measured keeps every soft rule quiet (K22).
        evidence = Evidence(files={"work": f"version {run.seq}"}, measured=True)
        yield Result(outcome=Outcome.HANDOFF, to=to, reason="on", evidence=evidence)
        if meets_soft_rules(plan):
            yield Result(outcome=Outcome.HANDOFF, to=to, reason="on")


def meets_soft_rules(plan: Plan) -> bool:
    """Whether a soft rule does more than end the run: it may lead a handoff elsewhere, ask a person
    or bring a conclusion."""
    ladder = plan.limits.ladder
    redirects = any(agent.when_exhausted for agent in plan.agents.values())
    return plan.kind == "team" and (redirects or ladder.ask or ladder.conclude)


def fails_softly(plan: Plan) -> bool:
    """Whether the first failure that Handrail measures meets a soft rule, whatever the answer."""
    return meets_soft_rules(plan) and plan.limits.same_error_limit == 1


def moves(plan: Oracle, run: Run, *, asks: bool) -> Iterator[Play]:
    for token in run.positions.values():
        if token.phase in ("ready", "settled"):
            yield from plays(plan, run, c.GrantLock(step_id=token.step_id, lock=1))
        elif token.phase == "waiting":
            yield from plays(plan, run, c.Tick(), seconds=1)
        elif token.phase == "offered":
            claim = c.Claim(fence=token.fence, agent=token.step_id, roles=(token.role,))
            yield from plays(plan, run, claim)
            yield from plays(plan, run, c.MissRole(fence=token.fence))
        elif token.phase == "claimed":
            yield from plays(plan, run, c.Lose(fence=token.fence, reason="gone"))
            for result in results(plan, run, asks=asks):
                evidences = [result.evidence, red()] if fails_softly(plan) else [result.evidence]
                for evidence in evidences:
                    shown = replace(result, evidence=evidence)
                    report = c.Report(fence=token.fence, agent=token.step_id, result=shown)
                    yield from plays(plan, run, report)
        elif token.phase == "asked":
            yield from _answers(plan, run, run.pending_approvals[token.approval_id])


def _answers(plan: Oracle, run: Run, question: PendingApproval) -> Iterator[Play]:
    names = [*question.approvers, *(f"p{n}" for n in range(question.quorum))]
    free = next(n for n in names if n not in (*question.approved_by, *question.barred))
    by = Person(name=free, role="admin")
    for how in ("approve", "reject"):
        command = c.Answer(approval_id=question.id, by=by, decision=how, text="t")
        yield from plays(plan, run, command)


def key(plan: Oracle, run: Run) -> object:
    """What decides how the run can go on, and what its stretch can still cost."""
    if run.has_ended:
        return "ended"
    now = time_of(run)
    tokens = tuple(
        sorted(
            (t.step_id, t.phase, t.attempts, t.faults, _waits(t, now), _question(run, t))
            for t in run.positions.values()
        )
    )
    clock = _left((run.limits.max_duration or CLOCK_SECONDS_MAX) - run.elapsed_seconds(now))
    if run.kind == "team":
        ledger = run.ledger
        steps, handoffs = (
            ledger.steps - ledger.steps_before,
            ledger.handoffs - ledger.handoffs_before,
        )
        counts = steps, handoffs, ledger.waits, run.asks, run.concluding is not None
        loops = _loops(run) if meets_soft_rules(plan) else ()
        visits = tuple(sorted(ledger.visited)) if run.limits.frees_visits else ()
        return tokens, clock, counts, tuple(sorted(run.done)), loops, visits
    blocks = tuple(sorted((f, b.heads, tuple(sorted(b.arrived))) for f, b in run.blocks.items()))
    asks = run.asks if plan.certificate.asks == ASKS_MAX else 0
    return tokens, clock, blocks, tuple(sorted(run.reworks.items())), asks


def _loops(run: Run) -> object:
    """What the rules against a handoff look at."""
    ledger = run.ledger
    names = {edge.symbol: name for name, edge in ledger.edges.items()}
    counts = {name: edge.count for name, edge in ledger.edges.items() if edge.epoch == ledger.epoch}
    trail = tuple(names[symbol] for symbol in ledger.trail)
    return trail, tuple(sorted(counts.items())), tuple(sorted(run.redirected))


def _waits(token: Position, now: datetime) -> object:
    """How often was waited, what the deadline leaves, and when the wait is over."""
    wait = token.wait
    if wait is None:
        return ()
    clocks = [wait.deadline, wait.not_before] if token.phase == "waiting" else [wait.deadline]
    return wait.count, *(_left((clock - now).total_seconds()) for clock in clocks)


def _left(seconds: float) -> float:
    return min(seconds, CLOCK_SECONDS_MAX)


def _question(run: Run, token: Position) -> object:
    question = run.pending_approvals.get(token.approval_id)
    if question is None:
        return None
    return question.own, question.stop is not None, len(question.approved_by)


class Explored(NamedTuple):
    most: dict[str, int]
    states: int
    happened: frozenset[str]
    """What some play brought, of `happenings`."""


def explore(document: dict[str, Any], *, limit: int, asks: bool = True) -> Explored:
    """The largest value of each figure over all plays of a stretch; a cycle of states fails."""
    plan = oracle(document)
    graph: dict[object, list[tuple[tuple[int, ...], object]]] = {}
    review = "required" if plan.kind == "team" and plan.team.review is not None else None
    begin = c.Start(run_id="r", bead_id="b", review=review)
    starts = [*plays(plan, None, begin)]
    roots = {(play.added, key(plan, play.after)) for play in starts}
    todo = [play.after for play in starts]
    happened: set[str] = set()
    while todo:
        run = todo.pop()
        here = key(plan, run)
        if here in graph:
            continue
        graph[here] = []
        if len(graph) > limit:
            raise TooBigError
        for play in moves(plan, run, asks=asks):
            there = key(plan, play.after)
            if play.renews:
                roots.add((play.added, there))
            else:
                graph[here].append((play.added, there))
            todo.append(play.after)
            happened |= happenings(play)
    best = _longest(graph)
    most = [0] * len(FIGURES)
    for added_first, root in roots:
        most = [max(m, a + r) for m, a, r in zip(most, added_first, best[root], strict=True)]
    return Explored(dict(zip(FIGURES, most, strict=True)), len(graph), frozenset(happened))


def _longest(
    graph: dict[object, list[tuple[tuple[int, ...], object]]],
) -> dict[object, tuple[int, ...]]:
    """For each state the largest remainder of each figure; fails if states form a cycle."""
    degree = Counter(to for out in graph.values() for _, to in out)
    ready = [state for state in graph if not degree[state]]
    order: list[object] = []
    for state in ready:  # grows while it is walked
        order.append(state)
        for _, to in graph[state]:
            degree[to] -= 1
            if not degree[to]:
                ready.append(to)
    assert len(order) == len(graph), "the states form a cycle: a run without end"
    best: dict[object, tuple[int, ...]] = {}
    for state in reversed(order):
        most = [0] * len(FIGURES)
        for step, to in graph[state]:
            most = [max(m, s + b) for m, s, b in zip(most, step, best[to], strict=True)]
        best[state] = tuple(most)
    return best
