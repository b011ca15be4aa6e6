"""Evidence is minimal, over simulated stops of every rule: without any one of the cited events the
rule does not fire.

A run's events become a tape of what the ledger takes in: steps, handoffs, results, faults, a
person's fresh start. The tape is played through the kernel's own ledger and rules: as it is, the
rule fires at its end; with one cited event left out, it does not fire at all.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from msgspec.structs import replace
from tests.kernel.driven_run import DrivenRun, edge, files, node, red, team, workflow

from handrail.kernel.decision import Value
from handrail.kernel.definition.limits import Limits
from handrail.kernel.result import Evidence, Outcome, Usage
from handrail.kernel.run.decision_builder import expected_paths
from handrail.kernel.run.events import (
    Ended,
    Faulted,
    HandedOff,
    Lost,
    Migrated,
    Moved,
    Offered,
    Reported,
    RunEvent,
    Started,
    TimedOut,
)
from handrail.kernel.run.evolve import evolve
from handrail.kernel.run.state import Run, Stop
from handrail.kernel.stop.ledger import (
    WAIT_ASSESSMENT,
    Ledger,
    add_handoff,
    add_result,
    assess_result,
    find_edge,
    renew,
)
from handrail.kernel.stop.rules import (
    FiredRule,
    RuleContext,
    StopRule,
    counts_handoffs,
    judge_handoff,
    judge_result,
    judge_step,
)
from handrail.testing.simulator import history

COUNTED = {
    StopRule.CONSTRAINT,
    StopRule.BUDGET,
    StopRule.RESEARCH_EXHAUSTED,
    StopRule.SAME_ERROR,
    StopRule.NO_CHANGE,
    StopRule.OSCILLATION,
    StopRule.REPEATED_PATTERN,
    StopRule.MAX_EDGE,
    StopRule.MAX_HANDOFFS,
    StopRule.MAX_STEPS,
    StopRule.PROTOCOL,
}
"""Rules that count events. The others look at a clock or a person, and cite nothing."""
_WAY = re.compile(r"(?P<source>.+) handed to (?P<target>.+?) \d+ times without progress and wants")


class Entry(Value):
    """One thing that the ledger takes in. `step` and `handoff` are the numbers it is cited by."""

    kind: str
    step: int = 0
    handoff: int = 0
    source: str = ""
    target: str = ""
    steps: int = 0
    agent: str = ""
    task: str = ""
    milestone: str = ""
    evidence: Evidence = Evidence()
    usage: Usage = Usage()
    paths: frozenset[str] | None = None
    limits: Limits | None = None
    event: int = 0


def tape(events: Sequence[RunEvent]) -> tuple[list[Entry], Stop]:
    """Everything up to the stop, the last entry being what was judged."""
    run: Run | None = None
    found: list[Entry] = []
    for number, event in enumerate(events):
        concluding = event.concluding if isinstance(event, Offered) else None
        stop = event.stop if isinstance(event, Ended) else concluding
        if stop is not None:
            assert run is not None
            found += _judged(run, stop, found)
            return found, stop
        found += [replace(one, event=number) for one in _entries(run, event)]
        run = evolve(run, event)
    raise AssertionError("every simulated run ends")


def _entries(run: Run | None, event: RunEvent) -> Iterator[Entry]:
    if isinstance(event, Started | Migrated):
        yield Entry(kind="limits", limits=event.limits)
        return
    assert run is not None
    match event:
        case Offered():
            yield Entry(kind="step", step=run.ledger.steps + 1)
        case HandedOff():
            yield from _handed(run, event)
        case Moved():
            yield from _moved(run, event)
        case Reported():
            yield _result(run, event)
        case Faulted(step_id=place):
            yield _result(run, event)
            yield Entry(kind="fault", step=run.positions[place].step)
        case Lost(step_id=place) | TimedOut(step_id=place):
            yield Entry(kind="fault", step=run.positions[place].step)
        case _:
            pass


def _handed(run: Run, event: HandedOff) -> Iterator[Entry]:
    way = {"source": event.source, "target": event.target, "handoff": event.number}
    yield Entry(kind="propose", **way)
    if event.accepted:
        step = run.ledger.steps + 1 if event.already_done else 0
        yield Entry(kind="handoff", steps=int(event.already_done), step=step, **way)
        yield Entry(kind="turn")


def _moved(run: Run, event: Moved) -> Iterator[Entry]:
    if event.renews:
        yield Entry(kind="renew")
    elif not event.spends and counts_handoffs(run.limits):
        first = run.ledger.handoffs + 1
        yield Entry(kind="propose", source=event.source, target=event.targets[0], handoff=first)
        for number, target in enumerate(event.targets, first):
            yield Entry(kind="handoff", source=event.source, target=target, handoff=number)


def _result(run: Run, event: Reported | Faulted) -> Entry:
    token = run.positions[event.step_id]
    waits = isinstance(event, Reported) and event.result.outcome is Outcome.WAITING
    return Entry(
        kind="wait" if waits else "result",
        step=token.step,
        agent=token.step_id if run.kind == "team" else token.agent,
        task=token.task if run.kind == "team" or isinstance(event, Faulted) else "",
        milestone=event.phase if isinstance(event, Reported) else "",
        evidence=event.result.evidence,
        usage=event.result.usage,
        paths=expected_paths(run, event.result),
    )


def _judged(run: Run, stop: Stop, found: list[Entry]) -> Iterator[Entry]:
    """What the last rule looked at, if no event tells of it."""
    at_step = stop.rule in (StopRule.MAX_STEPS, StopRule.BUDGET)
    refused = {StopRule.MAX_EDGE, StopRule.MAX_HANDOFFS} & {stop.rule, *stop.also}
    if refused and run.kind == "workflow":
        said = _WAY.search(stop.reason.partition(": ")[2])
        source, target = (said["source"], said["target"]) if said else ("?", "?")
        if stop.pattern:
            source, target = stop.pattern[-1].split(" -> ")
        yield Entry(kind="propose", source=source, target=target)
    elif at_step and not fires(found, stop):
        yield Entry(kind="ask", step=run.ledger.steps)


class Player:
    """The kernel's ledger and rules over a tape; `fired` is what fired on the last entry."""

    def __init__(self) -> None:
        self.ledger, self.limits, self.faults = Ledger(), Limits(), 0
        self.fired: list[FiredRule] = []

    def play(self, one: Entry) -> None:
        self.fired = []
        getattr(self, f"_{one.kind}")(one)

    def _limits(self, one: Entry) -> None:
        assert one.limits is not None
        self.limits = one.limits

    def _step(self, one: Entry) -> None:
        self.ledger = replace(self.ledger, steps=self.ledger.steps + 1)

    def _ask(self, one: Entry) -> None:
        self.fired = judge_step(RuleContext(self.ledger, self.limits, step=one.step))

    def _propose(self, one: Entry) -> None:
        edge = find_edge(self.ledger, one.source, one.target)
        moment = RuleContext(
            self.ledger, self.limits, source=one.source, target=one.target, edge=edge
        )
        self.fired = judge_handoff(moment)

    def _handoff(self, one: Entry) -> None:
        ledger = add_handoff(self.ledger, self.limits, one.source, one.target, "", steps=one.steps)
        self.ledger = ledger

    def _turn(self, one: Entry) -> None:
        self.faults = 0

    def _renew(self, one: Entry) -> None:
        self.ledger, self.faults = renew(self.ledger), 0

    def _result(self, one: Entry) -> None:
        weighed = assess_result(
            self.ledger, self.limits, one.agent, one.evidence,
            task=one.task, milestone=one.milestone, paths=one.paths,
        )  # fmt: skip
        self.ledger = add_result(
            self.ledger, self.limits, one.step, one.evidence, one.usage, weighed
        )
        moment = RuleContext(
            self.ledger, self.limits, agent=one.agent, evidence=one.evidence, step=one.step
        )
        self.fired = judge_result(moment)

    def _wait(self, one: Entry) -> None:
        self.ledger = add_result(
            self.ledger, self.limits, one.step, one.evidence, one.usage, WAIT_ASSESSMENT
        )
        moment = RuleContext(
            self.ledger, self.limits, agent=one.agent, evidence=one.evidence, step=one.step
        )
        self.fired = judge_result(moment)

    def _fault(self, one: Entry) -> None:
        self.faults += 1
        if self.faults >= self.limits.protocol_error_limit:
            self.fired = [FiredRule(rule=StopRule.PROTOCOL, reason="")]


def fires(entries: Sequence[Entry], stop: Stop) -> bool:
    """Whether the rule fires anywhere in the last stretch of the tape; for a pattern, whether that
    pattern does. In an earlier stretch it may have fired, and a person have let the run go on."""
    player, has_fired = Player(), False
    for one in entries:
        player.play(one)
        fired = any(f.rule is stop.rule and f.pattern == stop.pattern for f in player.fired)
        has_fired = fired or (has_fired and one.kind != "renew")
    return has_fired


def without(entries: Sequence[Entry], cited: str) -> list[Entry]:
    """The tape without the step, or the handoff, that is cited so."""
    what, _, number = cited.partition(" ")
    events = {one.event for one in entries if getattr(one, what) == int(number)} - {0}
    return [one for one in entries if one.event not in events]


def check(seed: int) -> StopRule | None:
    """The rule that stopped the run of this seed, if it cites events; each of them was needed."""
    events = history(seed)
    entries, stop = tape(events)
    if stop.rule not in COUNTED or not stop.evidence:
        return None
    if any(isinstance(event, HandedOff) and event.rule is stop.rule for event in events):
        return None  # without one of the cited events it would have redirected, which no tape plays
    assert fires(entries, stop), f"seed {seed}: {stop} does not fire on its own tape"
    assert len(set(stop.evidence)) == len(stop.evidence), f"seed {seed}: cited twice: {stop}"
    described = tuple(step.citation for step in stop.alike)
    assert described in ((), stop.evidence), f"seed {seed}: not what is cited: {stop}"
    for cited in stop.evidence:
        left = without(entries, cited)
        assert len(left) < len(entries), f"seed {seed}: there is no {cited}: {stop}"
        assert not fires(left, stop), f"seed {seed}: fires without {cited}: {stop}"
    return stop.rule


@pytest.mark.requirement("H3.1", "S2", "S3", "S4", "S7")
def test_without_any_cited_event_no_simulated_stop_happens():
    rules = Counter(filter(None, map(check, range(4_000_000, 4_000_300))))
    assert rules.total() >= 50, rules
    assert len(rules) >= 6, rules


@pytest.mark.heavy
@pytest.mark.requirement("H3.1", "S2", "S3", "S4", "S7")
@pytest.mark.parametrize("first", range(5_000_000, 5_010_000, 2_000))
def test_without_any_cited_event_none_of_a_thousand_simulated_stops_happens(first: int):
    """Two hundred in each of the five."""
    rules = Counter(filter(None, map(check, range(first, first + 1_400))))
    assert rules.total() >= 200, rules
    assert len(rules) >= 9, rules


# What the simulated stops have shown, one by one


def last(d: DrivenRun) -> Stop:
    assert d.run.stop is not None
    return d.run.stop


def test_a_handoff_that_another_rule_refused_is_not_cited():
    rules = {"max_handoffs": 2}
    d = DrivenRun(team({"a": ["a"]}, terminator="a", stop_rules=rules))
    for _ in range(3):
        d.hand("a")
    assert (last(d).rule, last(d).also) == ("repeated_pattern", ("max_handoffs",))
    assert last(d).evidence == ("handoff 1", "handoff 2")


def test_a_fork_that_goes_past_the_limit_is_cited_alone():
    names = ("b", "c", "d")
    document = workflow(
        node("start", "start"), node("fork", "decision", parallel=True),
        *[node(name) for name in names], node("join", "merge"), node("end", "end"),
        edges=[edge("start", "fork"), *[edge("fork", name, "true") for name in names[:2]],
               edge("fork", "d"), *[edge(name, "join") for name in names], edge("join", "end")],
        stop_rules={"max_handoffs": 2},
    )  # fmt: skip
    d = DrivenRun(document)
    d.succeed("b")
    assert (last(d).rule, last(d).seen) == ("max_handoffs", 5)
    assert last(d).evidence == ("handoff 2", "handoff 3", "handoff 4")


def test_a_budget_of_nothing_cites_nothing():
    d = DrivenRun(team({"a": ["a"]}, terminator="a", stop_rules={"max_tokens": 0}))
    assert (last(d).rule, last(d).evidence) == ("budget", ())


def test_a_budget_cites_the_step_that_spent_the_last_of_it():
    d = DrivenRun(team({"a": ["a"]}, terminator="a", stop_rules={"max_cost": 5}))
    d.hand("a", usage=Usage(cost=5.0))
    assert last(d).evidence == ("step 1",)
    d = DrivenRun(team({"a": ["a"]}, terminator="a", stop_rules={"max_tokens": 5}))
    d.report(outcome=None, usage=Usage(tokens=5))
    assert last(d).evidence == ("step 1",)


def test_a_failure_that_was_progress_too_is_not_needed_if_there_were_some_before():
    d = DrivenRun(team({"a": ["a"]}, terminator="a", stop_rules={"repeat_limit": None}))
    d.hand("a", evidence=red())
    d.hand("a", evidence=red(ticket_state="seen"))
    for _ in range(2):
        d.hand("a", evidence=red())
    assert (last(d).rule, last(d).evidence) == ("same_error", ("step 3", "step 4"))


def test_a_turn_that_would_have_gone_back_stands_in_for_the_one_that_did():
    d = DrivenRun(team({"a": ["a"]}, terminator="a", stop_rules={"repeat_limit": None}))
    for digest in "abaaba":
        d.hand("a", evidence=files(a_py=digest))
    assert (last(d).rule, last(d).evidence) == ("oscillation", ("step 5", "step 6"))
