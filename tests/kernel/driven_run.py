"""Driving a run by hand in tests: one object that decides, evolves and keeps the history."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from handrail.kernel.definition.model import Settings
from handrail.kernel.definition.plan import Plan, check_definition
from handrail.kernel.result import Check, Evidence, Outcome, Result, Usage
from handrail.kernel.run import commands as c
from handrail.kernel.run.decide import RunDecision, decide
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.evolve import evolve, replay
from handrail.kernel.run.measure import measure
from handrail.kernel.run.state import Person, Run
from handrail.kernel.stop.budgets import BudgetState

DEFAULTS = Settings()
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ANA = Person(name="ana", role="ceo")
OLA = Person(name="ola", role="operator")
EVERY_ROLE = ("engineering-manager", "qa-engineer", "backend-engineer", "web-designer")


def node(node_id: str, node_type: str = "task", **rest: Any) -> dict[str, Any]:
    """A node of a document; tasks get a role, config keys may be given directly."""
    config_keys = {
        "multi_dispatch", "parallel", "queue_timeout", "on_failure", "kind", "role_from",
        "max_waits", "waits_within",
        "repository", "wait", "revise_to", "deadline", "approvers", "quorum", "four_eyes", "status",
    }  # fmt: skip
    config = {key: rest.pop(key) for key in list(rest) if key in config_keys}
    out: dict[str, Any] = {"id": node_id, "type": node_type, **rest}
    if node_type in ("task", "approval"):
        out.setdefault("role", "ceo" if node_type == "approval" else "backend-engineer")
    if config:
        out["config"] = config
    return out


def edge(source: str, target: str, condition: str = "") -> dict[str, Any]:
    return {"from_node_id": source, "to_node_id": target, "condition": condition}


def workflow(*nodes: dict[str, Any], edges: list[dict[str, Any]], **rest: Any) -> dict[str, Any]:
    return {"name": "w", "kind": "workflow", "nodes": list(nodes), "edges": edges, **rest}


def chain(*nodes: dict[str, Any], **rest: Any) -> dict[str, Any]:
    """start -> the nodes in a row -> end."""
    every = [node("start", "start"), *nodes, node("end", "end")]
    edges = [edge(a["id"], b["id"]) for a, b in pairwise(every)]
    return workflow(*every, edges=edges, **rest)


def team(hands: dict[str, list[str]], start: str = "", terminator: str | None = None, **rest: Any):
    agents = rest.pop("agents", {})
    return {
        "name": "t",
        "kind": "team",
        "start": start or next(iter(hands)),
        **({"terminator": terminator} if terminator else {}),
        "agents": [
            {"id": name, "hands_off_to": to, **agents.get(name, {})} for name, to in hands.items()
        ],
        **rest,
    }


def plan_of(document: dict[str, Any], settings: Settings = DEFAULTS) -> Plan:
    plan, checked = check_definition(document, settings)
    assert plan is not None, checked.errors
    return plan


class DrivenRun:
    """A run under test. Every decision's events are kept; refusals are given back, not raised."""

    def __init__(
        self,
        document: dict[str, Any] | Plan,
        *,
        settings: Settings = DEFAULTS,
        budgets: tuple[BudgetState, ...] = (),
        **start: Any,
    ):
        self.budgets = budgets
        """What is known of them when the next command is decided."""
        self.plan = document if isinstance(document, Plan) else plan_of(document, settings)
        self.now = NOON
        self.events: list[RunEvent] = []
        self.decisions: list[RunDecision] = []
        self._run: Run | None = None
        start = {"run_id": "r1", "bead_id": "b1", **start}
        self.do(c.Start(**start))

    @property
    def run(self) -> Run:
        assert self._run is not None
        return self._run

    def do(self, command: c.RunCommand) -> RunDecision:
        decision = decide(self.plan, self._run, command, self.now, self.budgets)
        for event in decision.events:
            self._run = evolve(self._run, event)
        self.events += decision.events
        self.decisions.append(decision)
        return decision

    def advance(self, seconds: float) -> RunDecision:
        self.now += timedelta(seconds=seconds)
        return self.do(c.Tick())

    def claim(self, place: str = "", agent: str = "", roles: tuple[str, ...] = ()) -> int:
        token = (
            self.run.positions[place]
            if place
            else next(t for t in self.run.positions.values() if t.phase == "offered")
        )
        decision = self.do(
            c.Claim(
                fence=token.fence, agent=agent or f"{token.step_id}-1", roles=roles or (token.role,)
            )
        )
        assert decision.refusal is None, decision.refusal
        return token.fence

    def report(self, place: str = "", *, agent: str = "", **result: Any) -> RunDecision:
        """Claim what is on offer (at `place`) if needed, then report."""
        held = [t for t in self.run.positions.values() if t.phase == "claimed"]
        held = [t for t in held if not place or t.step_id == place]
        if not held:
            self.claim(place, agent)
            held = [t for t in self.run.positions.values() if t.phase == "claimed"]
            held = [t for t in held if not place or t.step_id == place]
        token = held[0]
        return self.do(c.Report(fence=token.fence, agent=token.agent, result=Result(**result)))

    def succeed(self, place: str = "", **result: Any) -> RunDecision:
        return self.report(place, outcome=Outcome.SUCCESS, **result)

    def fail(self, place: str = "", **result: Any) -> RunDecision:
        return self.report(place, outcome=Outcome.FAILURE, **result)

    def hand(self, to: str, reason: str = "because", **result: Any) -> RunDecision:
        return self.report(outcome=Outcome.HANDOFF, to=to, reason=reason, **result)

    def question(self):
        return next(iter(self.run.pending_approvals.values()))

    def answer(self, text: str = "", by: Person = ANA, **rest: Any) -> RunDecision:
        return self.do(c.Answer(approval_id=self.question().id, by=by, text=text, **rest))

    @property
    def measure(self) -> int:
        return measure(self.plan, self.run)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def replayed(self) -> Run:
        return replay(self.events)


def red(command: str = "pytest", stderr: str = "AssertionError: boom", **rest: Any) -> Evidence:
    return Evidence(
        checks=(Check(command=command, exit_code=1, stderr=stderr),), measured=True, **rest
    )


def green(command: str = "pytest", **rest: Any) -> Evidence:
    return Evidence(checks=(Check(command=command, exit_code=0),), measured=True, **rest)


def files(measured: bool = True, **digests: str) -> Evidence:
    return Evidence(files={k.replace("_", "."): v for k, v in digests.items()}, measured=measured)


def used(tokens: int = 0, cost: float = 0.0) -> Usage:
    return Usage(tokens=tokens, cost=cost)
