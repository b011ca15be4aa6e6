"""A plan: a checked definition, ready to run. `check(document)` is the one way to get one.

It ties the parts together: read the shape, validate, compute the certificate and the slack, compile
the conditions, tabulate the measure. A plan is immutable and may be shared by any number of runs.
"""

from collections.abc import Mapping
from typing import Any

from handrail.kernel.certificate import Bound, bound_workflow, nest
from handrail.kernel.condition import Condition, Outcome
from handrail.kernel.decision import Value
from handrail.kernel.definition import (
    REVIEW_SEAT,
    Agent,
    Definition,
    Node,
    Problem,
    Settings,
    Team,
    Workflow,
)
from handrail.kernel.feasibility import Slack, feasibility, warnings
from handrail.kernel.graph import Graph
from handrail.kernel.limits import Limits, limits, scoped
from handrail.kernel.rank import Ranks
from handrail.kernel.reading import read
from handrail.kernel.team_certificate import bound_team
from handrail.kernel.team_rules import check_team
from handrail.kernel.workflow_rules import check_workflow
from handrail.kernel.workflow_rules import doubts as workflow_doubts


class Checked(Value):
    """What `check` found. A plan is there exactly if there are no errors."""

    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    bound: Bound | None = None
    feasibility: tuple[Slack, ...] = ()

    @property
    def valid(self) -> bool:
        return not self.errors


class Plan:
    """A valid definition with everything derived from it that a run needs."""

    def __init__(self, definition: Definition, graph: Graph | None, settings: Settings) -> None:
        self.definition = definition
        self.settings = settings
        self.kind = "workflow" if isinstance(definition, Workflow) else "team"
        self.limits: Limits = limits(definition.stop_rules, self.kind)
        self._conditions: dict[str, Condition] = {}
        self._graph = graph
        self._ranks = Ranks(graph) if graph is not None else None
        self.agents: dict[str, Agent] = {}
        if isinstance(definition, Team):
            self.agents = {agent.id: agent for agent in definition.agents}

    @property
    def team(self) -> Team:
        assert isinstance(self.definition, Team)
        return self.definition

    @property
    def workflow(self) -> Workflow:
        assert isinstance(self.definition, Workflow)
        return self.definition

    @property
    def graph(self) -> Graph:
        assert self._graph is not None
        return self._graph

    @property
    def ranks(self) -> Ranks:
        assert self._ranks is not None
        return self._ranks

    def node(self, node_id: str) -> Node:
        return self.graph.nodes[self.graph.index[node_id]]

    def knows(self, place: str) -> bool:
        """Whether a run can stand at this node or agent."""
        if isinstance(self.definition, Team):
            seat = self.definition.review is not None and place == REVIEW_SEAT
            return place in self.agents and not seat
        return place in self.graph.index

    def holds(self, expression: str, context: Mapping[str, Any]) -> Outcome:
        if not expression:
            return Outcome(holds=True)
        condition = self._conditions.get(expression)
        if condition is None:
            condition = self._conditions[expression] = Condition(expression)
        return condition.holds(context)

    def limits_for(self, scope: object) -> Limits:
        """The limits of a run whose bead says `task_scope`."""
        return scoped(self.limits, scope)

    def bound(self, scope: object = None) -> Bound:
        """The certificate of a run whose bead says `task_scope`."""
        given = self.limits_for(scope)
        if isinstance(self.definition, Team):
            return bound_team(self.definition, given, self.settings)
        return bound_workflow(self.graph, given, self.settings)


def check(document: object, settings: Settings = Settings()) -> tuple[Plan | None, Checked]:  # noqa: B008 - frozen
    """Validate a decoded document: all errors at once, or the plan with its certificate."""
    definition, errors, doubts = read(document)
    graph: Graph | None = None
    if isinstance(definition, Workflow):
        found, graph = check_workflow(definition, settings)
        errors += found
        doubts += workflow_doubts(definition)
    elif definition is not None:
        errors += check_team(definition, limits(definition.stop_rules, "team"))
    if definition is None or errors:
        return None, Checked(errors=tuple(errors), warnings=tuple(doubts))
    plan = Plan(definition, graph, settings)
    bound = plan.bound()
    largest = max(bound.handoffs, bound.transitions, bound.questions)
    if bound.dispatches > settings.dispatch_bound_max or largest >= 2**53:
        return None, Checked(errors=(_too_many(bound, graph, settings),), warnings=tuple(doubts))
    slacks = feasibility(plan.team if graph is None else graph, plan.limits)
    doubts += warnings(slacks)
    return plan, Checked(warnings=tuple(doubts), bound=bound, feasibility=slacks)


def _too_many(bound: Bound, graph: Graph | None, settings: Settings) -> Problem:
    most = settings.dispatch_bound_max
    known = f"{bound.dispatches:,}" if bound.dispatches < 2**53 else "more than 2^53"
    why = nest(graph) if graph is not None else "max_steps or max_handoffs allows it"
    return Problem(
        code="too_many_dispatches",
        path="$",
        message=f"a run may take {known} dispatches; at most {most:,} are allowed: {why}",
        hint="lower the max of a rework or max_attempts, or set stop_rules.max_steps",
    )
