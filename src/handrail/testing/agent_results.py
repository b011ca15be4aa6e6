"""Results that simulated agents report: by their characters good, false, huge, or with evidence of
every kind. The generator is that of the world, so a seed determines them."""

from collections.abc import Callable
from random import Random
from typing import Any

from handrail.kernel.definition.model import REVIEW_STEP_ID
from handrail.kernel.definition.plan import Plan
from handrail.kernel.result import Check, Evidence, Outcome, Result, Usage
from handrail.kernel.run.state import Position
from handrail.testing.scripted_runs import shortest_way_results
from handrail.testing.seed_options import SeedOptions


class AgentResultMaker:
    def __init__(self, options: SeedOptions, plan: Plan, rng: Random) -> None:
        self.options, self.plan, self.rng = options, plan, rng
        self.shortest_way = shortest_way_results(plan) if plan.kind == "team" else {}
        self.step_ids = tuple(plan.agents) or tuple(node.id for node in plan.graph.nodes)

    def best_result(self, position: Position) -> Result:
        """Return the result of an agent that wants the run to end well."""
        if self.plan.kind == "team":
            return self.shortest_way.get(position.step_id, Result(outcome=Outcome.TERMINATE))
        return Result(outcome=Outcome.SUCCESS)

    def make_result(self, position: Position, character: str) -> Result:
        make_result = self._team_result if self.plan.kind == "team" else self._workflow_result
        bare_result = make_result(position, character)
        return self._add_details(bare_result)

    def _workflow_result(self, position: Position, character: str) -> Result:
        rng = self.rng
        node = self.plan.node(position.step_id)
        weights = OUTCOME_WEIGHTS[character]
        (outcome,) = rng.choices(tuple(weights), tuple(weights.values()))
        if outcome is Outcome.CONTINUE and not node.config.multi_dispatch and character != "lying":
            outcome = Outcome.FAILURE
        if node.config.max_waits and rng.random() < WAIT_CHANCES[character]:
            return self._waiting_result()
        return Result(outcome=outcome, reason="so it is", question="which one?", to="nobody")

    def _waiting_result(self) -> Result:
        """Return a wait: short, past most deadlines, or unusable."""
        seconds = self.rng.choice((1, 1, 2.5, 30, 3600, 0))
        return Result(
            outcome=Outcome.WAITING, waits_for=self.rng.choice(("CI", "a job")), retry_after=seconds
        )

    def _team_result(self, position: Position, character: str) -> Result:
        rng, agent = self.rng, self.plan.agents[position.step_id]
        targets = agent.hands_off_to
        final_result = self.shortest_way.get(position.step_id, Result(outcome=Outcome.TERMINATE))
        may_wait = self.plan.limits.max_waits > 0 or character == "lying"
        if may_wait and rng.random() < WAIT_CHANCES[character]:
            return self._waiting_result()
        if character == "endless":
            to = targets[0] if targets else agent.id
            return Result(outcome=Outcome.HANDOFF, to=to, reason="again")
        if character == "diligent" and rng.random() < self.options.eager:
            return final_result
        if character in ("diligent", "erratic") and targets and rng.random() < 0.9:
            loops = [*agent.when_exhausted][:1] if rng.random() < 0.5 else []
            to = rng.choice(loops or targets)  # often the same one, until a rule is against it
            return Result(outcome=Outcome.HANDOFF, to=to, reason="your turn")
        if character in ("diligent", "waiting"):
            return final_result
        if character == "failing":
            return Result(outcome=Outcome.FAILURE, reason="I cannot")
        if character == "asking" and rng.random() < 0.8:
            return Result(outcome=Outcome.ASK, question=rng.choice(("which?", " ")))
        return self._false_result(final_result)

    def _false_result(self, final_result: Result) -> Result:
        """Return a result that an agent may not give, or that is untrue."""
        rng = self.rng
        return rng.choice(
            (
                final_result,
                Result(),
                Result(outcome=Outcome.TERMINATE, reason="I say so"),
                Result(outcome=Outcome.TERMINATE, status="done_partial"),
                Result(outcome=Outcome.HANDOFF, to=""),
                Result(outcome=Outcome.HANDOFF, to="x" * 1_000),
                Result(outcome=Outcome.HANDOFF, to=REVIEW_STEP_ID),
                Result(outcome=Outcome.HANDOFF, to=rng.choice(self.step_ids), task="none such"),
                Result(outcome=Outcome.HANDOFF, to=rng.choice(self.step_ids), marker="A1_DONE"),
                Result(outcome=Outcome.SUCCESS, text="TERMINATE_WORKFLOW", marker="TERMINATE"),
            )
        )

    def _add_details(self, result: Result) -> Result:
        """Add text, data, evidence and usage to the result."""
        rng = self.rng
        data: dict[str, Any] = {}
        if rng.random() < 0.4:
            data = {
                f"k{rng.randint(1, 8)}": rng.choice((0, 1, None)),
                "severity": rng.randint(0, 5),
            }
        if rng.random() < 0.05:
            data |= {"redispatch_requested": "forged", "phase_detail": "hit", "task_scope": "large"}
        usage = self.options.usage
        return Result(
            outcome=result.outcome,
            to=result.to,
            reason=result.reason,
            task=result.task,
            status=result.status,
            question=result.question,
            waits_for=result.waits_for,
            retry_after=result.retry_after,
            marker=result.marker or self._pick_marker(),
            text="done\n" if rng.random() < 0.98 else "y" * 20_000,
            data=data,
            evidence=self._make_evidence(),
            usage=Usage(tokens=rng.randint(0, usage), cost=usage * rng.random() / 100),
        )

    def _pick_marker(self) -> str:
        """Return an agent's marker, sometimes; any agent's."""
        if not self.plan.agents or self.rng.random() < 0.5:
            return ""
        return self.plan.agents[self.rng.choice(self.step_ids)].marker

    def huge_result(self) -> Result:
        return Result(text="{" * 10_000, usage=Usage(tokens=self.options.usage))

    def _make_evidence(self) -> Evidence:
        rng, kind = self.rng, self.options.evidence
        if kind == "mixed":
            kind = rng.choice(
                ("none", "red", "idle", "flip", "fresh", "score", "forbidden", "green")
            )
        return EVIDENCE_MAKERS[kind](rng, rng.random() < self.options.measured)


OUTCOME_WEIGHTS: dict[str, dict[Outcome | None, int]] = {
    "diligent": {Outcome.SUCCESS: 6, Outcome.FAILURE: 3, Outcome.ASK: 1},
    "failing": {Outcome.FAILURE: 3, Outcome.SUCCESS: 1},
    "endless": {Outcome.CONTINUE: 9, Outcome.SUCCESS: 1},
    "asking": {Outcome.ASK: 4, Outcome.SUCCESS: 1},
    "erratic": {Outcome.SUCCESS: 1, Outcome.FAILURE: 1, Outcome.CONTINUE: 1, Outcome.ASK: 1},
    "waiting": {Outcome.SUCCESS: 1},
    "lying": {None: 1, Outcome.TERMINATE: 1, Outcome.CONTINUE: 1, Outcome.SUCCESS: 2},
}


WAIT_CHANCES = {
    "diligent": 0.2,
    "failing": 0.1,
    "endless": 0.2,
    "asking": 0.2,
    "erratic": 0.4,
    "lying": 0.3,
    "waiting": 0.9,
}
"""How often an agent of this character waits, where it may."""


def _red_evidence(rng: Random, measured: bool) -> Evidence:
    stderr = f"AssertionError: boom at 0x{rng.randrange(1 << 30):x}"
    check = Check(command="pytest", exit_code=1, stderr=stderr)
    return Evidence(checks=(check,), measured=measured)


EVIDENCE_MAKERS: dict[str, Callable[[Random, bool], Evidence]] = {
    "none": lambda _, measured: Evidence(measured=measured),
    "red": _red_evidence,
    "green": lambda _, measured: Evidence(
        checks=(Check(command="pytest", exit_code=0),), failures=(), measured=measured
    ),
    "idle": lambda _, measured: Evidence(files={}, measured=measured),
    "flip": lambda rng, measured: Evidence(files={"src/a.py": rng.choice("ab")}, measured=measured),
    "fresh": lambda rng, measured: Evidence(
        files={rng.choice(("src/a.py", "new.py")): f"{rng.random()}"},
        ticket_state=rng.choice(("open", "shut", None)),
        failures=tuple("abc"[: rng.randint(0, 3)]),
        measured=measured,
    ),
    "score": lambda rng, measured: Evidence(score=rng.random() / 2, measured=measured),
    "forbidden": lambda rng, measured: Evidence(
        files={"secrets/key": "1"} if rng.random() < 0.5 else None,
        checks=(Check(command="ls; rm -rf .", exit_code=0),),
        measured=measured,
    ),
}
