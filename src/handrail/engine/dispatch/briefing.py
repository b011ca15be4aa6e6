"""What an agent has to know to answer well: who it is, to whom it may turn, what counts against it.

Made from the plan and the run that the kernel decides by, so that what an agent reads and what is
accepted of it cannot drift apart. It goes over the wire with the dispatch: an agent outside of the
engine's process (a worker, a program, a service) reads the same.
"""

from typing import Any, cast

from msgspec.structs import asdict

from handrail.kernel.definition.model import REVIEW_STEP_ID, Agent, Task
from handrail.kernel.definition.plan import Plan
from handrail.kernel.run.state import Position, Run
from handrail.kernel.stop.ledger import Ledger, ResearchScores, find_edge
from handrail.views.dispatches import (
    Briefing,
    Colleague,
    RepeatedFailure,
    ResearchGoal,
    TaskBrief,
    UsedLimits,
)

_NON_NUMERIC_LIMITS = ("constraints", "profile")


def build_briefing(plan: Plan, run: Run, position: Position) -> Briefing:
    """Build the briefing for the agent that has this dispatch."""
    ledger, limits = run.ledger, run.limits
    fields: dict[str, Any] = {
        "kind": plan.kind,
        "name": plan.definition.name,
        "about": plan.definition.description,
        "facts": _context_names(plan),
        "limits": {
            name: value
            for name, value in asdict(limits).items()
            if value is not None and name not in _NON_NUMERIC_LIMITS
        },
        "constraints": limits.constraints,
        "profile": limits.profile,
        "used": UsedLimits(
            steps=ledger.steps - ledger.steps_before,
            handoffs=ledger.handoffs - ledger.handoffs_before,
            tokens=ledger.tokens,
            cost=float(ledger.cost),
        ),
        "last_progress_step": ledger.last_progress_step,
        "research": _research(ledger),
        "failing": _repeated_failures(ledger),
        "unchanged": ledger.idle.count,
        "returned": ledger.returns.count,
    }
    if plan.kind == "workflow":
        return Briefing(you=plan.node(position.step_id).description, **fields)
    return Briefing(**fields, **_team_fields(plan, run, plan.agents[position.step_id]))


def _context_names(plan: Plan) -> tuple[str, ...]:
    declared: object = plan.definition.metadata.get("context")
    names = cast("list[object]", declared) if isinstance(declared, list | tuple) else []
    return tuple(name for name in names if isinstance(name, str))


def _team_fields(plan: Plan, run: Run, agent: Agent) -> dict[str, Any]:
    team = plan.team
    return {
        "you": agent.description,
        "marker": agent.marker,
        "tasks": _tasks(agent, run),
        "colleagues": tuple(
            _colleague(plan, run, agent, to) for to in plan.handoff_targets[agent.id]
        ),
        "terminator": team.terminator,
        "review": team.review is not None and (team.review.required or run.review == "required"),
    }


def _colleague(plan: Plan, run: Run, source: Agent, to: str) -> Colleague:
    edge = find_edge(run.ledger, source.id, to)
    is_current = edge is not None and edge.epoch == run.ledger.epoch
    handed = edge.count if edge is not None and is_current else 0
    if to == REVIEW_STEP_ID and plan.team.review is not None:
        description = "A person, who approves the result or says what to change."
        return Colleague(id=to, description=description, marker="", tasks=(), handed=handed)
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


def _research(ledger: Ledger) -> tuple[ResearchGoal, ...]:
    """The research goals: a measured score counts before a claimed one."""
    research_by_goal: dict[str, ResearchScores] = {
        **ledger.claimed.research,
        **ledger.measured.research,
    }
    return tuple(
        ResearchGoal(goal=goal, best=float(research.best), in_vain=research.stale.count)
        for goal, research in research_by_goal.items()
    )


def _repeated_failures(ledger: Ledger) -> tuple[RepeatedFailure, ...]:
    return tuple(
        RepeatedFailure(signature=signature, count=error.seen.count)
        for signature, error in ledger.errors.items()
        if error.epoch == ledger.epoch and error.seen.count
    )
