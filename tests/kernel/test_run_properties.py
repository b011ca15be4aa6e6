"""Whatever is asked of a run, in whatever order: the promises hold (Hypothesis, stateful).

The machine under test is a run of a random definition. Each rule asks something of it, sensible or
not; `_take` then checks the decision: the measure, replay, the wire format, refusals and the end.
"""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.health_checks import EVERY_HEALTH_CHECK
from tests.kernel.driven_run import ANA, NOON, OLA

from handrail.kernel.definition.plan import check_definition
from handrail.kernel.result import Check, Evidence, Outcome, Result, Usage
from handrail.kernel.run import commands as c
from handrail.kernel.run import decide as decide_module
from handrail.kernel.run import decision_builder as builder_module
from handrail.kernel.run import evolve as evolve_module
from handrail.kernel.run.clocks import next_due
from handrail.kernel.run.decide import decide, decide_and_apply
from handrail.kernel.run.events import RunEvent, Started, is_measure_neutral, may_raise_measure
from handrail.kernel.run.evolve import evolve, replay
from handrail.kernel.run.measure import measure
from handrail.kernel.run.state import Person, Run
from handrail.kernel.stop import ledger as ledger_module
from handrail.kernel.stop import rules as rules_module
from handrail.testing.random_definitions import random_team, random_workflow

pytestmark = pytest.mark.requirement("K21", "K26", "K27", "K14", "K15", "K16", "L4.6", "L8.7", "S1")
EVENT = msgspec.json.Decoder(RunEvent)
RUN = msgspec.json.Decoder(Run)
EVE = Person(name="eve", role="viewer")
PEOPLE = (ANA, OLA, EVE, Person(name="ben", role="admin"))
PICK = st.integers(0, 5)


SHORTCUTS: tuple[tuple[Any, str, Any], ...] = (
    (decide_module, "_is_trivially_valid", lambda command: False),
    (builder_module, "EVENTS_WITHOUT_EFFECTS", frozenset()),
    (evolve_module, "KEEPS_RUNNING", frozenset()),
    (ledger_module, "NO_EVIDENCE", None),
    (rules_module, "NO_EVIDENCE", None),
)
"""What is not looked at where the usual case shows that there is nothing to see."""


@contextmanager
def no_shortcuts() -> Generator[None]:
    with ExitStack() as stack:
        for module, name, never in SHORTCUTS:
            stack.enter_context(patch.object(module, name, never))
        yield


class RunPromises(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.events: list[RunEvent] = []
        self.now = NOON

    @initialize(seed=st.integers(0, 5_000), a_team=st.booleans())
    def start(self, seed: int, a_team: bool) -> None:
        rng = Random(seed)
        document = (
            random_team(rng, agents=3, soft_limits=seed % 2 == 0)
            if a_team
            else random_workflow(rng, size=5, forks=True)
        )
        plan, checked = check_definition(document)
        assert plan is not None, checked.errors
        self.plan = plan
        start = c.Start(run_id="r", bead_id="b", filed_by="ola", context={"k1": seed % 3})
        decision = decide(plan, None, start, self.now)
        assert decision.refusal is None
        self.run = replay(decision.events)
        self.events = list(decision.events)
        self.most = measure(plan, replay(decision.events[:1]))
        assert measure(plan, self.run) <= self.most

    def _take(self, command: Any) -> None:
        before, run = self.run, self.run
        decision, reached = decide_and_apply(self.plan, run, command, self.now)
        with no_shortcuts():
            assert decision == decide(self.plan, run, command, self.now)
        rank = measure(self.plan, run)
        for event in decision.events:
            run = evolve(run, event)
            after = measure(self.plan, run)
            if may_raise_measure(event):
                resume = run.paused_at is not None  # a pause still has its own end to come (K16)
                assert after <= self.most + resume, "a human act grants at most a fresh allotment"
            elif is_measure_neutral(event):
                assert after == rank
            else:
                assert after < rank, event
            assert (after == 0) == run.has_ended
            rank = after
        self.events += decision.events
        self.run = run
        with no_shortcuts():
            assert replay(decision.events, before) == run
        assert reached == run, "a step reaches what its events lead to"
        assert decision.events or reached is before
        if decision.refusal is not None and not decision.events:
            assert run == before
        if before.has_ended:
            assert decision.events == ()
            assert decision.refusal is not None
            assert decision.effects == ()
        if decision.refusal is not None:
            assert decision.refusal.message
        self._invariants(decision.events)

    def _invariants(self, events: tuple[RunEvent, ...]) -> None:
        run = self.run
        assert replay(self.events) == run
        for event in events:
            assert EVENT.decode(msgspec.json.encode(event)) == event
        assert RUN.decode(msgspec.json.encode(run)) == run
        assert (next_due(self.plan, run) is None) == run.has_ended
        assert run.has_ended == (run.stop is not None) == (run.ended_at is not None)
        fences = [t.fence for t in run.positions.values() if t.phase in ("offered", "claimed")]
        assert len(fences) == len(set(fences))
        asked = {t.approval_id for t in run.positions.values() if t.phase == "asked"}
        assert asked == set(run.pending_approvals)

    def _token(self, pick: int) -> Any:
        tokens = list(self.run.positions.values())
        return tokens[pick % len(tokens)] if tokens else None

    @rule(pick=PICK)
    def claim(self, pick: int) -> None:
        token = self._token(pick)
        fence, role = (token.fence, token.role) if token else (1, "x")
        self._take(c.Claim(fence=fence, agent=f"worker {pick % 2}", roles=(role,)))

    @rule(
        pick=PICK,
        outcome=st.sampled_from([*Outcome, None]),
        to=PICK,
        how=st.integers(0, 4),
        stranger=st.integers(0, 9),
    )
    def report(self, pick: int, outcome: Outcome | None, to: int, how: int, stranger: int) -> None:
        token = self._token(pick)
        if token is None:
            return
        names = [*self.plan.agents, "review", "nobody"]
        evidence = [
            Evidence(),
            Evidence(files={"f": str(len(self.events) % 3)}, measured=True),
            Evidence(checks=(Check(command="t", exit_code=1, stderr="boom"),), measured=True),
            Evidence(checks=(Check(command="t", exit_code=0),), score=0.5, failures=("x",)),
            Evidence(ticket_state="s", files={}),
        ][how]
        result = Result(
            outcome=outcome,
            to=names[to % len(names)],
            question="?",
            waits_for="it" if outcome is Outcome.WAITING else "",
            retry_after=10 if outcome is Outcome.WAITING else 0,
            text="text",
            data={"k1": how, "last_run_at": "x"},
            evidence=evidence,
            usage=Usage(tokens=how),
            marker="WORKFLOW_COMPLETE" if how == 2 else "",
        )
        agent = "stranger" if stranger == 0 else token.agent
        self._take(c.Report(fence=token.fence, agent=agent, result=result))

    @rule(turns=st.lists(st.tuples(PICK, st.integers(0, 3)), min_size=1, max_size=12))
    def work(self, turns: list[tuple[int, int]]) -> None:
        """Agents do as they may, one after the other: hand off or succeed, fail alike, or wait."""
        for pick, how in turns:
            token = self._token(pick)
            if token is None or token.agent or token.phase != "offered":
                self._take(c.Tick())
                continue
            self._take(c.Claim(fence=token.fence, agent="worker", roles=(token.role,)))
            to = self.plan.handoff_targets.get(token.step_id, ())
            result = Result(outcome=Outcome.SUCCESS)
            if how == 0:
                result = Result(outcome=Outcome.WAITING, waits_for="it", retry_after=1)
                self.now += timedelta(seconds=1)
            elif to:
                result = Result(outcome=Outcome.HANDOFF, to=to[pick % len(to)], reason="on")
            if how == 1:
                check = Check(command="t", exit_code=1, stderr="boom")
                result = msgspec.structs.replace(
                    result, evidence=Evidence(checks=(check,), measured=True)
                )
            self._take(c.Report(fence=token.fence, agent="worker", result=result))
            self._take(c.Tick())

    @rule(pick=PICK)
    def malformed(self, pick: int) -> None:
        if token := self._token(pick):
            self._take(c.Report(fence=token.fence, agent=token.agent, malformed="no JSON"))

    @rule(pick=PICK)
    def lose(self, pick: int) -> None:
        if token := self._token(pick):
            self._take(c.Lose(fence=token.fence, reason="gone"))

    @rule(pick=PICK)
    def miss_role(self, pick: int) -> None:
        if token := self._token(pick):
            self._take(c.MissRole(fence=token.fence))

    @rule(pick=PICK)
    def grant_lock(self, pick: int) -> None:
        if token := self._token(pick):
            self._take(c.GrantLock(step_id=token.step_id, lock=pick))

    @rule(seconds=st.sampled_from([1, 61, 1_801, 86_401]))
    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self._take(c.Tick())

    @rule(seconds=st.sampled_from([0.0, 10.0, 5_000.0]))
    def outage(self, seconds: float) -> None:
        self._take(c.PushClocks(seconds=seconds))

    @precondition(lambda self: bool(self.run.pending_approvals))
    @rule(
        pick=PICK,
        by=st.sampled_from(PEOPLE),
        text=st.sampled_from(["ok", "change it", "no", ""]),
        decision=st.sampled_from([None, None, "approve", "revise", "reject"]),
    )
    def answer(self, pick: int, by: Person, text: str, decision: Any) -> None:
        ids = list(self.run.pending_approvals)
        command = c.Answer(approval_id=ids[pick % len(ids)], by=by, text=text, decision=decision)
        self._take(command)

    @rule(number=st.integers(1, 3))
    def answer_an_old_question(self, number: int) -> None:
        self._take(c.Answer(approval_id=f"r.q{number}", by=ANA, text="ok"))

    @rule(pick=st.integers(0, 30), by=st.sampled_from(PEOPLE))
    def move(self, pick: int, by: Person) -> None:
        nodes = [node.id for node in self.plan.graph.nodes] if self.plan.kind == "workflow" else []
        places = [*self.plan.agents, *nodes, "nowhere"]
        self._take(c.Move(by=by, step_id=places[pick % len(places)], reason="try"))

    @rule(by=st.sampled_from(PEOPLE))
    def pause(self, by: Person) -> None:
        self._take(c.Pause(by=by, reason="x"))

    @rule(by=st.sampled_from(PEOPLE))
    def resume(self, by: Person) -> None:
        self._take(c.Resume(by=by, reason="x"))

    @rule(value=st.integers(0, 3), by=st.sampled_from(PEOPLE))
    def patch(self, value: int, by: Person) -> None:
        self._take(c.Patch(by=by, patch={"k1": value}))

    @rule(version=st.integers(2, 4))
    def migrate(self, version: int) -> None:
        started = self.events[0]
        assert isinstance(started, Started)
        self._take(
            c.Migrate(
                by=ANA, definition_id="d", version=version, step_id=started.step_id, reason="fixed"
            )
        )

    @rule(pick=st.integers(0, 40))
    def close(self, pick: int) -> None:
        if pick == 0:
            self._take(c.Close(by=ANA, reason="enough"))


TestRunPromises = RunPromises.TestCase
TestRunPromises.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=EVERY_HEALTH_CHECK,
)
