"""A plan: a checked definition, ready to run. Only `check_definition(document)` makes plans.

It combines the parts: read the shape, validate, compute the certificate and the slack, compile the
conditions, tabulate the measure. A plan is immutable; any number of runs may share it.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

from handrail.kernel.decision import Value
from handrail.kernel.definition.certificate import (
    Bound,
    allowed_targets,
    bound_team,
    bound_workflow,
    describe_nesting,
    queue_seconds,
    work_seconds,
)
from handrail.kernel.definition.checks import (
    check_team,
    check_workflow,
    team_warnings,
    workflow_warnings,
)
from handrail.kernel.definition.condition import Condition, ConditionBudget, ConditionResult
from handrail.kernel.definition.context_keys import reserved_keys, steering_warnings
from handrail.kernel.definition.feasibility import Slack, compute_slack, slack_warnings
from handrail.kernel.definition.graph import Graph
from handrail.kernel.definition.limits import Limits, resolve_limits, scale_limits
from handrail.kernel.definition.model import (
    REVIEW_STEP_ID,
    Agent,
    Definition,
    DocumentProblem,
    Node,
    Settings,
    Team,
    Workflow,
)
from handrail.kernel.definition.rank import Ranks
from handrail.kernel.definition.reader import read_definition

ALWAYS_TRUE = ConditionResult(holds=True)


class DefinitionCheck(Value):
    """The findings of `check_definition`. There is a plan exactly if there are no errors."""

    errors: tuple[DocumentProblem, ...] = ()
    warnings: tuple[DocumentProblem, ...] = ()
    bound: Bound | None = None
    feasibility: tuple[Slack, ...] = ()

    @property
    def is_valid(self) -> bool:
        return not self.errors


class Plan:
    """A valid definition with everything derived from it that a run needs."""

    def __init__(self, definition: Definition, graph: Graph | None, settings: Settings) -> None:
        self.definition = definition
        self.settings = settings
        self.digest = ""
        """That of the stored text; a run says with which it began. Empty for one not stored."""
        is_workflow = isinstance(definition, Workflow)
        self.kind: Literal["workflow", "team"] = "workflow" if is_workflow else "team"
        self.limits: Limits = resolve_limits(
            definition.stop_rules, self.kind, wait_deadline=settings.wait_deadline
        )
        self._conditions: dict[str, Condition] = {}
        self.reserved_keys = reserved_keys(definition.metadata)
        """Keys of the context that agents may not write: the least level of people who may."""
        self._graph = graph
        self._ranks = Ranks(graph) if graph is not None else None
        self._nodes = {node.id: node for node in graph.nodes} if graph is not None else {}
        self.commit_repositories = {
            node.id: node.config.repository or "default"
            for node in self._nodes.values()
            if node.config.kind == "commit"
        }
        """The repository of each commit node, whose dispatch waits for its commit lock (L12)."""
        self.advance_rounds = range(8 * len(self._nodes) + 8)
        """More rounds than a run can advance by itself between two answers."""
        self.success_edges = (
            _success_edges(definition, graph) if isinstance(definition, Workflow) else {}
        )
        self.is_guarded = not is_workflow and bool(definition.metadata.get("guarded"))
        """Whether its agents work in a guarded program, outside of this server."""
        self.default_waits = _wait_durations(settings.queue_timeout, settings.node_timeout)
        """How long a dispatch may be offered, and how long in work; for a guarded program, how long
        it may be silent."""
        if self.is_guarded:
            self.default_waits = _wait_durations(settings.guard_silence, settings.guard_silence)
        self.node_waits = {
            node.id: _wait_durations(queue_seconds(node, settings), work_seconds(node, settings))
            for node in self._nodes.values()
        }
        """The same for each node of a workflow."""
        self.agents: dict[str, Agent] = {}
        self.handoff_targets: dict[str, tuple[str, ...]] = {}
        """The allowed handoff targets of each agent of a team, the review step included."""
        if isinstance(definition, Team):
            self.agents = {agent.id: agent for agent in definition.agents}
            self.handoff_targets = {
                agent.id: allowed_targets(definition, agent, to_review=True)
                for agent in definition.agents
            }

    def is_of(self, digest: str) -> bool:
        """Whether it is the plan of the definition with that digest, as far as either is known."""
        return self.digest == digest or not (self.digest and digest)

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

    def has_step(self, step_id: str) -> bool:
        """Whether a run can stand at this node or agent."""
        if isinstance(self.definition, Team):
            is_review_step = self.definition.review is not None and step_id == REVIEW_STEP_ID
            return step_id in self.agents and not is_review_step
        return step_id in self.graph.index

    def evaluate(
        self, expression: str, context: Mapping[str, Any], budget: ConditionBudget
    ) -> ConditionResult:
        if not expression:
            return ALWAYS_TRUE
        return self._condition(expression).evaluate(context, budget)

    def _condition(self, expression: str) -> Condition:
        condition = self._conditions.get(expression)
        if condition is None:
            condition = self._conditions[expression] = Condition(expression)
        return condition

    def names_behind(self, node_id: str) -> frozenset[str]:
        """Return the keys that the conditions of the node's edges name."""
        expressions = [expression for expression, _ in self.success_edges[node_id] if expression]
        return frozenset[str]().union(*(self._condition(text).names for text in expressions))

    def limits_for(self, scope: object) -> Limits:
        """Return the limits of a run whose bead has this `task_scope`."""
        return scale_limits(self.limits, scope)

    def bound(self, scope: object = None) -> Bound:
        """Compute the certificate of a run whose bead has this `task_scope`."""
        run_limits = self.limits_for(scope)
        if isinstance(self.definition, Team):
            return bound_team(self.definition, run_limits, self.settings)
        return bound_workflow(self.graph, run_limits, self.settings)


def _wait_durations(queue: float, work: float) -> tuple[timedelta, timedelta]:
    return timedelta(seconds=queue), timedelta(seconds=work)


def _success_edges(
    workflow: Workflow, graph: Graph | None
) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return each node's success edges as (expression, target), in the order of trial."""
    assert graph is not None, "a workflow has a graph"
    edges_by_node: dict[str, tuple[tuple[str, str], ...]] = {}
    for node, links in zip(graph.nodes, graph.succ, strict=True):
        edges = [
            (workflow.edges[link.edge].expression, graph.nodes[link.node].id)
            for link in links
            if not link.is_failure
        ]
        edges.sort(key=lambda way: not way[0])  # stable: the default comes last
        edges_by_node[node.id] = tuple(edges)
    return edges_by_node


def check_definition(
    document: object,
    settings: Settings = Settings(),  # noqa: B008 - frozen
) -> tuple[Plan | None, DefinitionCheck]:
    """Validate a decoded document: return all errors at once, or the plan and its certificate."""
    definition, errors, all_warnings = read_definition(document)
    graph: Graph | None = None
    if isinstance(definition, Workflow):
        problems, graph = check_workflow(definition, settings)
        errors += problems
        all_warnings += workflow_warnings(definition)
    elif definition is not None:
        limits = resolve_limits(definition.stop_rules, "team", wait_deadline=settings.wait_deadline)
        errors += check_team(definition, limits)
        all_warnings += team_warnings(limits)
    if definition is None or errors:
        return None, DefinitionCheck(errors=tuple(errors), warnings=tuple(all_warnings))
    plan = Plan(definition, graph, settings)
    bound = plan.bound()
    largest = max(bound.handoffs, bound.transitions, bound.questions)
    if bound.dispatches > settings.dispatch_bound_max or largest >= 2**53:
        return None, DefinitionCheck(
            errors=(_too_many_dispatches(bound, graph, settings),), warnings=tuple(all_warnings)
        )
    if graph is not None:
        all_warnings += steering_warnings(graph, definition.metadata, plan.names_behind)
    slacks = compute_slack(plan.team if graph is None else graph, plan.limits)
    all_warnings += slack_warnings(slacks)
    return plan, DefinitionCheck(warnings=tuple(all_warnings), bound=bound, feasibility=slacks)


def _too_many_dispatches(bound: Bound, graph: Graph | None, settings: Settings) -> DocumentProblem:
    limit = settings.dispatch_bound_max
    count_text = f"{bound.dispatches:,}" if bound.dispatches < 2**53 else "more than 2^53"
    cause = describe_nesting(graph) if graph is not None else "max_steps or max_handoffs allows it"
    return DocumentProblem(
        code="too_many_dispatches",
        path="$",
        message=f"a run may take {count_text} dispatches; at most {limit:,} are allowed: {cause}",
        hint="lower the max of a rework or max_attempts, or set stop_rules.max_steps",
    )
