"""A plan: a checked definition, ready to run. `check(document)` is the one way to get one.

It ties the parts together: read the shape, validate, compute the certificate and the slack, compile
the conditions, tabulate the measure. A plan is immutable and may be shared by any number of runs.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

from handrail.kernel.certificate import Bound, bound_workflow, nest, queue_seconds, work_seconds
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
from handrail.kernel.team_certificate import bound_team, hand_targets
from handrail.kernel.team_rules import check_team
from handrail.kernel.workflow_rules import check_workflow
from handrail.kernel.workflow_rules import doubts as workflow_doubts

ALWAYS = Outcome(holds=True)


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
        is_workflow = isinstance(definition, Workflow)
        self.kind: Literal["workflow", "team"] = "workflow" if is_workflow else "team"
        self.limits: Limits = limits(definition.stop_rules, self.kind)
        self._conditions: dict[str, Condition] = {}
        self._graph = graph
        self._ranks = Ranks(graph) if graph is not None else None
        self._nodes = {node.id: node for node in graph.nodes} if graph is not None else {}
        self.commits = any(node.config.kind == "commit" for node in self._nodes.values())
        """Whether it has commit nodes; without them nobody waits for a lock."""
        self.rounds = range(8 * len(self._nodes) + 8)
        """More than the steps that a run can take by itself between two answers."""
        self.ways_out = _ways_out(definition, graph) if isinstance(definition, Workflow) else {}
        self.guarded = not is_workflow and bool(definition.metadata.get("guarded"))
        """Whether its agents work in a program elsewhere, which is under guard."""
        self.usual_waits = _waits(settings.queue_timeout, settings.node_timeout)
        """How long a dispatch may be offered, and how long worked on; how long nothing may be heard
        of a guarded program."""
        if self.guarded:
            self.usual_waits = _waits(settings.guard_silence, settings.guard_silence)
        self.waits = {
            node.id: _waits(queue_seconds(node, settings), work_seconds(node, settings))
            for node in self._nodes.values()
        }
        """The same for each node of a workflow."""
        self.agents: dict[str, Agent] = {}
        self.targets: dict[str, tuple[str, ...]] = {}
        """Whom each agent of a team may hand to, the reviewing person included."""
        if isinstance(definition, Team):
            self.agents = {agent.id: agent for agent in definition.agents}
            self.targets = {
                agent.id: hand_targets(definition, agent, to_review=True)
                for agent in definition.agents
            }

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
        return self._nodes[node_id]

    def knows(self, place: str) -> bool:
        """Whether a run can stand at this node or agent."""
        if isinstance(self.definition, Team):
            seat = self.definition.review is not None and place == REVIEW_SEAT
            return place in self.agents and not seat
        return place in self.graph.index

    def holds(self, expression: str, context: Mapping[str, Any]) -> Outcome:
        if not expression:
            return ALWAYS
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


def _waits(queue: float, work: float) -> tuple[timedelta, timedelta]:
    return timedelta(seconds=queue), timedelta(seconds=work)


def _ways_out(workflow: Workflow, graph: Graph | None) -> dict[str, tuple[tuple[str, str], ...]]:
    """Each node's success edges as (expression, target), in the order they are tried."""
    assert graph is not None, "a workflow has a graph"
    ways: dict[str, tuple[tuple[str, str], ...]] = {}
    for node, links in zip(graph.nodes, graph.succ, strict=True):
        found = [
            (workflow.edges[link.edge].expression, graph.nodes[link.node].id)
            for link in links
            if not link.on_failure
        ]
        found.sort(key=lambda way: not way[0])  # stable: the default comes last
        ways[node.id] = tuple(found)
    return ways


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
