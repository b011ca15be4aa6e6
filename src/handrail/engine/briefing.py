"""What an agent has to know to answer well: who it is, to whom it may turn, what counts against it.

Made from the plan and the run that the kernel decides by, so that what an agent is told and what is
accepted of it cannot drift apart. It goes over the wire with the dispatch: whoever works outside of
the engine's process (a worker, a program, a service) is told the same.
"""

from typing import Any, cast

from msgspec.structs import asdict

from handrail.kernel.definition import REVIEW_SEAT, Agent, Constraints, Task
from handrail.kernel.ledger import Ledger, Research, way
from handrail.kernel.plan import Plan
from handrail.kernel.run.state import Run, Token
from handrail.kernel.shown import Shown

_NO_NUMBERS = ("constraints", "profile")


class TaskBrief(Shown):
    """What an agent may be asked for. `done`: it was, and a once-only task is not done again."""

    id: str
    description: str
    when: str
    milestone: str
    once: bool
    done: bool


class Colleague(Shown):
    """Somebody to hand to, and how often this agent did since the last progress."""

    id: str
    description: str
    marker: str
    tasks: tuple[TaskBrief, ...]
    handed: int


class Sought(Shown):
    """Research: the best score of an agent at a task, and the visits that brought none better."""

    goal: str
    best: float
    in_vain: int


class Failing(Shown):
    """A failure that was met again, and how often since the last progress."""

    signature: str
    count: int


class Used(Shown):
    """What this stretch of the run has used up of its limits."""

    steps: int = 0
    handoffs: int = 0
    tokens: int = 0
    cost: float = 0.0


class Briefing(Shown):
    """`limits` are those in force by their names in `stop_rules`; one that is off is not there."""

    kind: str = "workflow"
    name: str = ""
    about: str = ""
    you: str = ""
    """What the agent, or the node, is there for."""
    marker: str = ""
    tasks: tuple[TaskBrief, ...] = ()
    colleagues: tuple[Colleague, ...] = ()
    terminator: str | None = None
    """Who alone may end the run; None where a reviewing person does."""
    review: bool = False
    """Whether a person has to approve before the run can end."""
    facts: tuple[str, ...] = ()
    """Names in the work's context that the definition knows of, and its conditions look at."""
    limits: dict[str, Any] = {}
    constraints: Constraints = Constraints()
    profile: str = "strict"
    used: Used = Used()
    last_progress_step: int = 0
    research: tuple[Sought, ...] = ()
    failing: tuple[Failing, ...] = ()
    unchanged: int = 0
    """Turns since the last progress that left every file as it was."""
    returned: int = 0
    """Turns since the last progress that went back to earlier contents."""


def briefing(plan: Plan, run: Run, token: Token) -> Briefing:
    """For whoever has this turn."""
    ledger, limits = run.ledger, run.limits
    known: dict[str, Any] = {
        "kind": plan.kind,
        "name": plan.definition.name,
        "about": plan.definition.description,
        "facts": _facts(plan),
        "limits": {
            name: value
            for name, value in asdict(limits).items()
            if value is not None and name not in _NO_NUMBERS
        },
        "constraints": limits.constraints,
        "profile": limits.profile,
        "used": Used(
            steps=ledger.steps - ledger.steps_before,
            handoffs=ledger.handoffs - ledger.handoffs_before,
            tokens=ledger.tokens,
            cost=float(ledger.cost),
        ),
        "last_progress_step": ledger.last_progress_step,
        "research": _research(ledger),
        "failing": _failing(ledger),
        "unchanged": ledger.idle.count,
        "returned": ledger.returns.count,
    }
    if plan.kind == "workflow":
        return Briefing(you=plan.node(token.place).description, **known)
    return Briefing(**known, **_in_a_team(plan, run, plan.agents[token.place]))


def _facts(plan: Plan) -> tuple[str, ...]:
    named: object = plan.definition.metadata.get("context")
    listed = cast("list[object]", named) if isinstance(named, list | tuple) else []
    return tuple(one for one in listed if isinstance(one, str))


def _in_a_team(plan: Plan, run: Run, agent: Agent) -> dict[str, Any]:
    team = plan.team
    return {
        "you": agent.description,
        "marker": agent.marker,
        "tasks": _tasks(agent, run),
        "colleagues": tuple(_colleague(plan, run, agent, to) for to in plan.targets[agent.id]),
        "terminator": team.terminator,
        "review": team.review is not None and (team.review.required or run.review == "required"),
    }


def _colleague(plan: Plan, run: Run, source: Agent, to: str) -> Colleague:
    edge = way(run.ledger, source.id, to)
    current = edge is not None and edge.epoch == run.ledger.epoch
    handed = edge.count if edge is not None and current else 0
    if to == REVIEW_SEAT and plan.team.review is not None:
        about = "A person, who approves the result or says what to change."
        return Colleague(id=to, description=about, marker="", tasks=(), handed=handed)
    other = plan.agents[to]
    return Colleague(
        id=to,
        description=other.description,
        marker=other.marker,
        tasks=_tasks(other, run),
        handed=handed,
    )


def _tasks(agent: Agent, run: Run) -> tuple[TaskBrief, ...]:
    def brief(task: Task) -> TaskBrief:
        return TaskBrief(
            id=task.id,
            description=task.description,
            when=task.when,
            milestone=task.milestone,
            once=task.once,
            done=f"{agent.id}/{task.id}" in run.done,
        )

    return tuple(brief(task) for task in agent.tasks)


def _research(ledger: Ledger) -> tuple[Sought, ...]:
    """What was measured counts before what was claimed."""
    held: dict[str, Research] = {**ledger.claimed.research, **ledger.measured.research}
    return tuple(
        Sought(goal=goal, best=float(one.best), in_vain=one.stale.count)
        for goal, one in held.items()
    )


def _failing(ledger: Ledger) -> tuple[Failing, ...]:
    return tuple(
        Failing(signature=signature, count=one.seen.count)
        for signature, one in ledger.errors.items()
        if one.epoch == ledger.epoch and one.seen.count
    )
