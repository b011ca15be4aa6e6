"""Feasibility: can a run succeed within its own limits, and with how much to spare?

The certificate says how much a run can cost; this says how little a success needs, and compares it
with each limit. Slack 0 means that one retry fails the run: a warning with the numbers. A limit
below what success needs makes every run fail: a warning too, in stronger words (the definition
still ends).

A team's success is the shortest walk to the authority; where milestones are declared, also the
shortest walk that passes an agent of each of them. That second search is over sets of milestones,
so it is done for at most MILESTONES_MAX of them, and only where it is short.
"""

from collections.abc import Iterator

from handrail.kernel.decision import Value
from handrail.kernel.definition import REVIEW_SEAT, NodeType, Problem, Team, TerminalStatus
from handrail.kernel.graph import Graph
from handrail.kernel.limits import Limits
from handrail.kernel.team_rules import reached

MILESTONES_MAX = 10
SEARCH_MAX = 2_000_000
"""Handoffs times sets of milestones that are searched: about a third of a second."""


class Slack(Value):
    """What the shortest success needs of a limit, and what the limit allows."""

    limit: str
    way: str
    needed: int
    allowed: int

    @property
    def slack(self) -> int:
        return self.allowed - self.needed


def feasibility(of: Graph | Team, limits: Limits) -> tuple[Slack, ...]:
    return tuple(_of_graph(of, limits) if isinstance(of, Graph) else _of_team(of, limits))


def warnings(slacks: tuple[Slack, ...]) -> list[Problem]:
    """Slack 0 or less, in words."""
    out: list[Problem] = []
    for one in slacks:
        path = f"$.stop_rules.{one.limit}"
        if one.slack == 0:
            message = f"slack 0: {one.limit} is {one.allowed}, and {one.way} takes {one.needed}"
            hint = "one retry or detour fails the run; allow a few more"
            out.append(Problem(code="slack_0", path=path, message=message, hint=hint))
        elif one.slack < 0:
            message = f"{one.limit} is {one.allowed}, but {one.way} takes {one.needed}"
            hint = "no run can succeed that way; raise the limit"
            out.append(Problem(code="infeasible", path=path, message=message, hint=hint))
    return out


def _of_graph(graph: Graph, limits: Limits) -> Iterator[Slack]:
    for limit, allowed, weight in (
        ("max_steps", limits.max_steps, (NodeType.TASK,)),
        ("max_handoffs", limits.max_handoffs, tuple(t for t in NodeType if t is not NodeType.END)),
    ):
        needed = _shortest(graph, weight)
        if allowed is not None and needed < NEVER:
            yield Slack(
                limit=limit, way="the shortest way to success", needed=needed, allowed=allowed
            )


NEVER = 1 << 60


def _shortest(graph: Graph, counted: tuple[NodeType, ...]) -> int:
    """Fewest nodes of the counted types on a way from the start to an end that is no abort.

    Of a block that waits for all, the branches that are always begun are needed; NEVER if there is
    no such way.
    """
    rest: dict[int, int] = {}
    for i in reversed(graph.order):
        here = 1 if graph.nodes[i].type in counted else 0
        region = graph.region[i]
        out = graph.merge_of.get(region[0]) if region is not None else None
        if i in graph.heads:
            merge = graph.merge_of[i]
            first = graph.nodes[merge].config.wait == "any"
            begun = [link.node for link in graph.succ[i] if first or link.always]
            branches = [rest[head] for head in begun if head != merge]
            rest[i] = here + (min(branches) if first else sum(branches)) + rest[merge]
        elif graph.nodes[i].type is NodeType.END:
            aborts = graph.nodes[i].config.status is TerminalStatus.ABORTED_STUCK
            rest[i] = NEVER if aborts else here
        else:
            ways = [0 if link.node == out else rest[link.node] for link in graph.succ[i]]
            rest[i] = here + min(ways)
    return rest[graph.start]


def _of_team(team: Team, limits: Limits) -> Iterator[Slack]:
    for way, handoffs in (
        ("the shortest way to the end", _shortest_walk(team)),
        ("the shortest way through all milestones", _milestone_walk(team)),
    ):
        if handoffs is None:
            continue
        if limits.max_handoffs is not None:
            allowed = limits.max_handoffs
            yield Slack(limit="max_handoffs", way=way, needed=handoffs, allowed=allowed)
        if limits.max_steps is not None:
            steps = handoffs + 1 if team.review is None else handoffs
            yield Slack(limit="max_steps", way=way, needed=steps, allowed=limits.max_steps)


def _finishing(team: Team) -> dict[str, int]:
    """Agents whose result can end a run, with the handoffs that ending takes on top."""
    ending = dict.fromkeys(team.review.after, 1) if team.review is not None else {}
    asked = int(team.review is not None and team.review.required)
    return ending | ({team.terminator: asked} if team.terminator is not None else {})


def _shortest_walk(team: Team) -> int | None:
    steps = reached(team)
    ways = [steps[name] + more for name, more in _finishing(team).items() if name in steps]
    return min(ways, default=None)


def _milestone_walk(team: Team) -> int | None:
    """The fewest handoffs that pass every milestone and then end; None without, or with many."""
    names = sorted({t.milestone for agent in team.agents for t in agent.tasks if t.milestone})
    handoffs = sum(len(agent.hands_off_to) for agent in team.agents)
    if not names or len(names) > MILESTONES_MAX or handoffs << len(names) > SEARCH_MAX:
        return None
    bit = {name: 1 << i for i, name in enumerate(names)}
    gives = {a.id: sum({bit[t.milestone] for t in a.tasks if t.milestone}) for a in team.agents}
    hands = {a.id: [to for to in a.hands_off_to if to != REVIEW_SEAT] for a in team.agents}
    ending = _finishing(team)
    everything = (1 << len(names)) - 1
    first = (team.start, gives[team.start])
    seen = {first: 0}
    queue = [first]
    best: int | None = None
    for at in queue:  # grows while it is walked
        agent, had = at
        if had == everything and agent in ending:
            best = min(seen[at] + ending[agent], best if best is not None else 1 << 30)
        for to in hands[agent]:
            state = (to, had | gives.get(to, 0))
            if to in gives and state not in seen:
                seen[state] = seen[at] + 1
                queue.append(state)
    return best
