"""An exhaustive adversary: every outcome, every interleaving, every value of every condition.

It explores all states that the real machine can reach from a start without a raising act of a
person, and gives for each figure the largest value any play reaches. States that differ only in
times, names and numbers are one state. Conditions are not evaluated: the adversary answers them,
each time anew.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from tests.kernel.driven_run import NOON

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
    RunEvent,
    is_measure_neutral,
)
from handrail.kernel.run.evolve import evolve
from handrail.kernel.run.measure import measure
from handrail.kernel.run.state import Person, Position, Run

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

    def evaluate(self, expression: str, context: Any) -> Holds:
        if not expression:
            return Holds(holds=True)
        self.asked += 1
        return Holds(holds=self.asked <= len(self.bits) and self.bits[self.asked - 1])


class Play(NamedTuple):
    """One accepted move: what it added to the figures, and where it led."""

    added: tuple[int, ...]
    after: Run
    events: tuple[RunEvent, ...]


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


def _apply(plan: Plan, run: Run | None, events: tuple[RunEvent, ...]) -> Run:
    """Evolve, and see the measure fall with every event but a mere record."""
    rank = None if run is None else measure(plan, run)
    for event in events:
        run = evolve(run, event)
        now = measure(plan, run)
        assert (now == 0) == run.has_ended
        assert rank is None or now < rank or (now == rank and is_measure_neutral(event)), event
        rank = now
    assert run is not None
    return run


def added(events: tuple[RunEvent, ...]) -> tuple[int, ...]:
    seen = Counter(type(event) for event in events)
    own = sum(1 for e in events if isinstance(e, Asked) and e.approval.own)
    handed = sum(1 for e in events if isinstance(e, HandedOff) and e.accepted)
    return seen[Offered], handed, seen[Moved] + handed, seen[Asked] - own, own


def is_redirected(play: Play) -> bool:
    return any(isinstance(event, HandedOff) and event.proposed for event in play.events)


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
        if has_redirects(plan):  # without progress a rule may lead the handoff elsewhere (K30)
            yield Result(outcome=Outcome.HANDOFF, to=to, reason="on")


def has_redirects(plan: Plan) -> bool:
    return any(agent.when_exhausted for agent in plan.agents.values())


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
                report = c.Report(fence=token.fence, agent=token.step_id, result=result)
                yield from plays(plan, run, report)
        elif token.phase == "asked":
            question = run.pending_approvals[token.approval_id]
            names = [*question.approvers, *(f"p{n}" for n in range(question.quorum))]
            free = next(n for n in names if n not in (*question.approved_by, *question.barred))
            by = Person(name=free, role="admin")
            for how in ("approve", "reject"):
                yield from plays(
                    plan, run, c.Answer(approval_id=question.id, by=by, decision=how, text="t")
                )


def key(plan: Oracle, run: Run) -> object:
    """What decides how the run can go on."""
    if run.has_ended:
        return "ended"
    tokens = tuple(
        sorted(
            (t.step_id, t.phase, t.attempts, t.faults, _waits(t), _question(run, t.approval_id))
            for t in run.positions.values()
        )
    )
    if run.kind == "team":
        counts = run.ledger.steps, run.ledger.handoffs, run.asks, run.concluding is not None
        loops = _loops(run) if has_redirects(plan) else ()
        return tokens, counts, tuple(sorted(run.done)), loops
    blocks = tuple(sorted((f, b.heads, tuple(sorted(b.arrived))) for f, b in run.blocks.items()))
    asks = run.asks if plan.certificate.asks == ASKS_MAX else 0
    return tokens, blocks, tuple(sorted(run.reworks.items())), asks


def _loops(run: Run) -> object:
    """What the rules that may redirect a handoff look at."""
    ledger = run.ledger
    names = {edge.symbol: name for name, edge in ledger.edges.items()}
    counts = {name: edge.count for name, edge in ledger.edges.items() if edge.epoch == ledger.epoch}
    trail = tuple(names[symbol] for symbol in ledger.trail)
    return trail, tuple(sorted(counts.items())), tuple(sorted(run.redirected))


def _waits(token: Position) -> int:
    return token.wait.count if token.wait is not None else 0


def _question(run: Run, question_id: str) -> object:
    question = run.pending_approvals.get(question_id)
    return None if question is None else (question.own, len(question.approved_by))


class Explored(NamedTuple):
    most: dict[str, int]
    states: int
    redirects: int


def explore(document: dict[str, Any], *, limit: int, asks: bool = True) -> Explored:
    """The largest value of each figure over all plays; a cycle of states fails."""
    plan = oracle(document)
    graph: dict[object, list[tuple[tuple[int, ...], object]]] = {}
    review = "required" if plan.kind == "team" and plan.team.review is not None else None
    begin = c.Start(run_id="r", bead_id="b", review=review)
    roots = [(play.added, play.after) for play in plays(plan, None, begin)]
    todo = [run for _, run in roots]
    redirects = 0
    while todo:
        run = todo.pop()
        here = key(plan, run)
        if here in graph:
            continue
        graph[here] = []
        if len(graph) > limit:
            raise TooBigError
        for play in moves(plan, run, asks=asks):
            graph[here].append((play.added, key(plan, play.after)))
            todo.append(play.after)
            redirects += is_redirected(play)
    best = _longest(graph)
    most = [0] * len(FIGURES)
    for added_first, run in roots:
        reached = best[key(plan, run)]
        most = [max(m, a + r) for m, a, r in zip(most, added_first, reached, strict=True)]
    return Explored(dict(zip(FIGURES, most, strict=True)), len(graph), redirects)


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
