"""Feasibility: can a run succeed within its own limits, and with how much to spare?

The certificate says how much a run can cost; this module computes how little a success needs, and
compares it with each limit. Slack 0 means that one retry fails the run: a warning with the numbers.
A limit below what success needs makes every run fail: a stronger warning (the runs still end).

A team's success is the shortest walk to the authority; where milestones are declared, also the
shortest walk that passes an agent of each milestone. That second search is over sets of milestones,
so it runs only for at most MILESTONES_MAX milestones and SEARCH_STATES_MAX states.
"""

from collections.abc import Iterator

from handrail.kernel.decision import Value
from handrail.kernel.definition.graph import Graph, handoff_distances
from handrail.kernel.definition.limits import Limits
from handrail.kernel.definition.model import (
    REVIEW_STEP_ID,
    DocumentProblem,
    NodeType,
    Team,
    TerminalStatus,
)

MILESTONES_MAX = 10
SEARCH_STATES_MAX = 2_000_000
"""Limit on handoffs times sets of milestones: about a third of a second."""


class Slack(Value):
    """How much of a limit the shortest success needs, and how much the limit allows."""

    limit: str
    way: str
    needed: int
    allowed: int

    @property
    def slack(self) -> int:
        return self.allowed - self.needed


def compute_slack(subject: Graph | Team, limits: Limits) -> tuple[Slack, ...]:
    return tuple(
        _workflow_slack(subject, limits)
        if isinstance(subject, Graph)
        else _team_slack(subject, limits)
    )


def slack_warnings(slacks: tuple[Slack, ...]) -> list[DocumentProblem]:
    """Return a warning for each slack of 0 or less."""
    out: list[DocumentProblem] = []
    for slack in slacks:
        path = f"$.stop_rules.{slack.limit}"
        if slack.slack == 0:
            out.append(
                DocumentProblem(
                    code="slack_0",
                    path=path,
                    message=f"slack 0: {slack.limit} is {slack.allowed}, and {slack.way} takes "
                    f"{slack.needed}",
                    hint="one retry or detour fails the run; allow a few more",
                )
            )
        elif slack.slack < 0:
            out.append(
                DocumentProblem(
                    code="infeasible",
                    path=path,
                    message=f"{slack.limit} is {slack.allowed}, but {slack.way} takes "
                    f"{slack.needed}",
                    hint="no run can succeed that way; raise the limit",
                )
            )
    return out


def _workflow_slack(graph: Graph, limits: Limits) -> Iterator[Slack]:
    for limit, allowed, weight in (
        ("max_steps", limits.max_steps, (NodeType.TASK,)),
        ("max_handoffs", limits.max_handoffs, tuple(t for t in NodeType if t is not NodeType.END)),
    ):
        needed = _shortest_success(graph, weight)
        if allowed is not None and needed < UNREACHABLE:
            yield Slack(
                limit=limit, way="the shortest way to success", needed=needed, allowed=allowed
            )


UNREACHABLE = 1 << 60


def _shortest_success(graph: Graph, counted: tuple[NodeType, ...]) -> int:
    """Return the fewest nodes of the counted types from the start to an end that is not an abort.

    A block that waits for all needs every branch that it always starts. UNREACHABLE if there is no
    such way.
    """
    rest: dict[int, int] = {}
    for i in reversed(graph.order):
        here = 1 if graph.nodes[i].type in counted else 0
        region = graph.region[i]
        block_merge = graph.merge_of.get(region[0]) if region is not None else None
        if i in graph.heads:
            merge = graph.merge_of[i]
            waits_for_any = graph.nodes[merge].config.wait == "any"
            begun = [link.node for link in graph.succ[i] if waits_for_any or link.is_unconditional]
            branches = [rest[head] for head in begun if head != merge]
            rest[i] = here + (min(branches) if waits_for_any else sum(branches)) + rest[merge]
        elif graph.nodes[i].type is NodeType.END:
            aborts = graph.nodes[i].config.status is TerminalStatus.ABORTED_STUCK
            rest[i] = UNREACHABLE if aborts else here
        else:
            ways = [0 if link.node == block_merge else rest[link.node] for link in graph.succ[i]]
            rest[i] = here + min(ways)
    return rest[graph.start]


def _team_slack(team: Team, limits: Limits) -> Iterator[Slack]:
    for way, handoffs in (
        ("the shortest way to the end", _shortest_walk(team)),
        ("the shortest way through all milestones", _milestone_walk(team)),
    ):
        if handoffs is None:
            continue
        if limits.max_handoffs is not None and not limits.frees_visits:
            yield Slack(limit="max_handoffs", way=way, needed=handoffs, allowed=limits.max_handoffs)
        if limits.ordinary_steps is not None:
            yield Slack(
                limit="max_steps",
                way=way,
                needed=handoffs + 1 if team.review is None else handoffs,
                allowed=limits.ordinary_steps,
            )


def _finishing_agents(team: Team) -> dict[str, int]:
    """Return the agents whose result can end a run, with the extra handoffs of the ending."""
    ending = dict.fromkeys(team.review.after, 1) if team.review is not None else {}
    review_handoffs = int(team.review is not None and team.review.required)
    return ending | ({team.terminator: review_handoffs} if team.terminator is not None else {})


def _shortest_walk(team: Team) -> int | None:
    steps = handoff_distances(team)
    return min(
        [steps[name] + extra for name, extra in _finishing_agents(team).items() if name in steps],
        default=None,
    )


def _milestone_walk(team: Team) -> int | None:
    """The fewest handoffs through every milestone to the end; None without or with too many."""
    names = sorted({t.milestone for agent in team.agents for t in agent.tasks if t.milestone})
    handoffs = sum(len(agent.hands_off_to) for agent in team.agents)
    if not names or len(names) > MILESTONES_MAX or handoffs << len(names) > SEARCH_STATES_MAX:
        return None
    bit = {name: 1 << i for i, name in enumerate(names)}
    milestones_of = {
        a.id: sum({bit[t.milestone] for t in a.tasks if t.milestone}) for a in team.agents
    }
    targets = {a.id: [to for to in a.hands_off_to if to != REVIEW_STEP_ID] for a in team.agents}
    ending = _finishing_agents(team)
    all_milestones = (1 << len(names)) - 1
    first = (team.start, milestones_of[team.start])
    seen = {first: 0}
    queue = [first]
    best: int | None = None
    for current in queue:  # grows during the loop
        agent, collected = current
        if collected == all_milestones and agent in ending:
            best = min(seen[current] + ending[agent], best if best is not None else 1 << 30)
        for to in targets[agent]:
            state = (to, collected | milestones_of.get(to, 0))
            if to in milestones_of and state not in seen:
                seen[state] = seen[current] + 1
                queue.append(state)
    return best
