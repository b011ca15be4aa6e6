"""The certificate: the most that any run of a definition can cost, known before it starts
(K23-K25).

A workflow is bounded by one backward pass per figure over the dominator tree, O(E log n), without
path enumeration. For a figure, leaving a node adds a weight that depends on how it is left: by
success, by its failure edge, by rework. `gain[x]` is what the reworks to x can add in total each
time x is entered anew, and `C(v)` the longest way from v's target to v: a rule of at most N reworks
adds N * C(v) to its target's gain. Reworks to one target add up; reworks to nested targets
multiply, because the inner gain is part of the outer way (K8). A union-find forest holds the
longest way between a node u and any x below it in the dominator tree: when u is done, its children
become children of u in the forest, with their distance, and `_find_root` returns root and distance
of any node in near-constant time. A fork adds its branches up (a round that is cut short by a
rework from one branch has paid for all of them, K11); for time the slowest branch counts.

Figures are exact in the sense of docs/requirements.md (K23) unless `tight` says otherwise. All are
integers, cut off at SUM_MAX: larger definitions are refused anyway (K24). Times are milliseconds
inside, and one integer packs the three parts of a time, so that the same pass finds the parts of
the slowest way.

A task's visit makes at most `max_attempts + max_waits` dispatches: a wait uses no attempt (K31).
The time of waits is part of the queue: an agent that waits is in nobody's hands.

A team is bounded by its hard limits, and perhaps more by its handoff graph. A visit to an agent
costs at most `protocol_error_limit` dispatches, so the visits bound the dispatches (K19, K20); a
stretch has `max_waits` more, as many as its running time has seconds for (K31). Where first visits
are free, each place adds a handoff. If the start reaches no cycle of the handoff graph, its longest
walk bounds the visits too; a guarded team's graph holds only the handoffs seen so far, and bounds
nothing. Once-only tasks and free first visits in a cycle make the exact figures a
longest-simple-path problem: flagged, not computed.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from handrail.kernel.decision import Value
from handrail.kernel.definition.graph import Graph, Link, handoff_distances
from handrail.kernel.definition.limits import ASKS_MAX, FREE_VISITS_MAX, Limits
from handrail.kernel.definition.model import REVIEW_STEP_ID, Agent, Node, NodeType, Settings, Team
from handrail.kernel.result import RETRY_SECONDS_MAX, RETRY_SECONDS_MIN

SUM_MAX = 2**60
"""Cut-off for sums; no limit above 2**53 - 1 is ever accepted."""


class ServiceTime(Value):
    """Seconds on the slowest way: in the queue, in work, waiting for people, agents' questions."""

    queue: float
    work: float
    people: float
    asks: float
    total: float


class Witness(Value):
    """A run with the most dispatches, as a program (K25): walk `before` back from `end`; on
    entering a node of `repeat`, first go to each of its nodes and back, as often as it says."""

    end: str
    before: dict[str, str]
    repeat: dict[str, tuple[tuple[str, int], ...]]
    """target -> (the node that sends back, how often)"""
    branches: dict[str, tuple[str, ...]] = {}
    """merge -> the last node of each branch"""


class Bound(Value):
    """The maximum of each figure per stretch, over all outcomes, interleavings and answers."""

    dispatches: int
    handoffs: int
    transitions: int
    questions: int
    asks: int
    time: ServiceTime
    tight: dict[str, bool]
    witness: Witness | None = None


WAITING_NODE_TYPES = (NodeType.TASK, NodeType.APPROVAL)


class Weights(NamedTuple):
    """What leaving a node adds to a figure, by the kind of exit."""

    success: list[int]
    failure: list[int]
    rework: list[int]
    is_parallel: bool = False
    """Whether branches count as their slowest, not as their sum."""
    single_arrival: bool = False
    """At an `any` merge only one branch counts in full, the others up to their last wait."""
    cap: int = SUM_MAX


class LongestPath(NamedTuple):
    """The result for one figure: the total, and the choices made, for the witness."""

    total: int
    before: dict[int, int]
    last: dict[tuple[int, int], int]
    end: int


def longest_path(graph: Graph, weights: Weights) -> LongestPath:
    """Run the backward pass that the module docstring describes."""
    return _LongestPathPass(graph, weights).run()


class _LongestPathPass:
    def __init__(self, graph: Graph, weights: Weights) -> None:
        self.graph, self.weights = graph, weights
        n = len(graph.nodes)
        self.parent, self.distance, self.gain = [-1] * n, [0] * n, [0] * n
        self.before: dict[int, int] = {}
        self.last: dict[tuple[int, int], int] = {}
        self.inner_max: dict[int, int] = {}
        """By fork: the most inside an inner block that is not complete."""
        self.nodes_by_region: dict[tuple[int, int], list[int]] = {}
        for i in graph.order:
            region = graph.region[i]
            if region is not None:
                self.nodes_by_region.setdefault(region, []).append(i)

    def run(self) -> LongestPath:
        graph, gain, rework, cap = self.graph, self.gain, self.weights.rework, self.weights.cap
        for u in reversed(graph.order):
            base = self._fork_distances(u) if u in graph.heads else self._plain_distances(u)
            for child, distance in base.items():
                self.parent[child], self.distance[child] = u, min(distance, cap)
            for v in graph.rework_sources.get(u, ()):
                rule = graph.nodes[v].config.on_failure
                assert rule is not None
                gain[u] = min(gain[u] + rule.max * (self._find_root(v)[1] + rework[v]), cap)
        end = max(
            [e for e in graph.ends if e in graph.reachable],
            key=lambda e: self._find_root(e)[1] + self.weights.success[e],
        )
        total = gain[graph.start] + self._find_root(end)[1] + self.weights.success[end]
        return LongestPath(min(total, cap), self.before, self.last, end)

    def _find_root(self, x: int) -> tuple[int, int]:
        """Return the root of x's tree and the longest way from it to x (x's own gain included)."""
        parent, distance = self.parent, self.distance
        path: list[int] = []
        while parent[x] >= 0:
            path.append(x)
            x = parent[x]
        total = 0
        for y in reversed(path):
            total += distance[y]
            distance[y], parent[y] = total, x
        return x, total

    def _exit_weight(self, link: Link) -> int:
        w = self.weights
        return w.failure[link.node] if link.is_failure else w.success[link.node]

    def _plain_distances(self, u: int) -> dict[int, int]:
        base: dict[int, int] = {}
        for child in self.graph.children[u]:
            best = -1
            for link in self.graph.pred[child]:
                if link.node == u:
                    value = self._exit_weight(link)
                else:
                    root, way = self._find_root(link.node)
                    value = base[root] + way + self._exit_weight(link)
                if value > best:
                    best, self.before[child] = value, link.node
            base[child] = best + self.gain[child]
        return base

    def _fork_distances(self, fork: int) -> dict[int, int]:
        """Distances of heads include all other branches; the merge's includes every branch."""
        graph, gain = self.graph, self.gain
        merge = graph.merge_of[fork]
        full_costs: dict[int, int] = dict.fromkeys(graph.heads[fork], 0)
        for link in graph.pred[merge]:
            if link.node == fork:
                continue  # an empty branch
            root, way = self._find_root(link.node)
            value = gain[root] + way + self._exit_weight(link)
            if value > full_costs[root] or (merge, root) not in self.last:
                full_costs[root], self.last[merge, root] = value, link.node
        full_costs.pop(merge, None)
        waiting_costs = (
            self._waiting_costs(fork, full_costs) if self.weights.single_arrival else full_costs
        )
        counted_costs = full_costs
        if graph.nodes[merge].config.wait == "any":
            counted_costs = waiting_costs
        total_cost = sum(counted_costs.values()) + max(
            full_costs[h] - counted_costs[h] for h in full_costs
        )
        if self.weights.is_parallel:
            counted_costs, total_cost = dict.fromkeys(full_costs, 0), max(full_costs.values())
        counted_sum = sum(counted_costs.values())
        base = {
            h: self.weights.success[fork] + counted_sum - counted_costs[h] + gain[h]
            for h in full_costs
        }
        base[merge] = self.weights.success[fork] + total_cost + gain[merge]
        self.before[merge] = fork
        return base

    def _waiting_costs(self, fork: int, full_costs: dict[int, int]) -> dict[int, int]:
        """By head: the most while the branch has not arrived. Positions wait only at tasks, at
        approvals and in inner blocks; nodes after the last of these pass at once."""
        graph, highest = self.graph, dict.fromkeys(full_costs, 0)
        for head in full_costs:
            for x in self.nodes_by_region[fork, head]:
                inner_block = self.inner_max.get(x)
                if inner_block is not None or graph.nodes[x].type in WAITING_NODE_TYPES:
                    highest[head] = max(
                        highest[head], self.gain[head] + self._find_root(x)[1] + (inner_block or 0)
                    )
        if graph.nodes[graph.merge_of[fork]].config.wait == "any":
            incomplete_max = sum(highest.values())
        else:
            incomplete_max = sum(full_costs.values()) - min(
                full_costs[h] - highest[h] for h in full_costs
            )
        self.inner_max[fork] = self.weights.success[fork] + incomplete_max
        return highest


def bound_workflow(graph: Graph, limits: Limits, settings: Settings) -> Bound:
    """Compute the certificate of a valid workflow."""
    dispatch_path = longest_path(graph, _dispatch_weights(graph.nodes))
    dispatches, max_steps = dispatch_path.total, limits.max_steps
    transitions = longest_path(graph, _transition_weights(graph.nodes)).total
    is_cut = max_steps is not None and max_steps < dispatches
    handoffs_cut = limits.max_handoffs is not None and limits.max_handoffs < transitions
    asks = min(ASKS_MAX, longest_path(graph, _ask_weights(graph.nodes)).total)
    time = _service_time(graph, settings, asks)
    any_merge = any(graph.nodes[m].config.wait == "any" for m in graph.fork_of)
    safe_only = is_cut or handoffs_cut or not _may_begin(limits)
    return Bound(
        dispatches=max_steps if is_cut and max_steps is not None else dispatches,
        handoffs=0,
        transitions=transitions,
        questions=longest_path(graph, _approval_weights(graph.nodes)).total,
        asks=asks,
        time=time,
        tight={
            "dispatches": not handoffs_cut
            and _may_begin(limits)
            and _have_waits_time(graph, limits),
            "handoffs": True,
            "transitions": not safe_only,
            "questions": not safe_only,
            "asks": not safe_only,
            "time": not safe_only
            and not any_merge
            and limits.max_duration is None
            and not any(node.config.max_waits for node in graph.nodes),
        },
        witness=None if is_cut else _witness(graph, dispatch_path),
    )


def describe_nesting(graph: Graph) -> str:
    """List the reworks that make a figure large, outermost first, for the refusal (K24)."""
    rules = sorted(
        ((t, v) for t, nodes in graph.rework_sources.items() for v in nodes),
        key=lambda r: graph.enter_order[r[0]],
    )
    listed = [
        f"{graph.nodes[v].id} -> {graph.nodes[t].id} (max {rule.max})"
        for t, v in rules
        if (rule := graph.nodes[v].config.on_failure) is not None
    ]
    if not listed:
        return "the sum of all max_attempts"
    more = f" and {len(listed) - 12} more" if len(listed) > 12 else ""
    return "nested reworks multiply: " + ", ".join(listed[:12]) + more


def _node_weights(
    nodes: tuple[Node, ...], weigh: Callable[[Node], tuple[int, int, int]]
) -> Weights:
    rows = [weigh(node) for node in nodes]
    return Weights([r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows])


def _dispatch_weights(nodes: tuple[Node, ...]) -> Weights:
    def of(node: Node) -> tuple[int, int, int]:
        n = visit_dispatches(node) if node.type is NodeType.TASK else 0
        return n, n, n

    return _node_weights(nodes, of)


def _have_waits_time(graph: Graph, limits: Limits) -> bool:
    """Whether the running time has room for every wait of a run, one after the other."""
    if limits.max_duration is None:
        return True
    waits = [node.config.max_waits for node in graph.nodes]
    seconds = RETRY_SECONDS_MIN * longest_path(graph, Weights(waits, waits, waits)).total
    return seconds < round(limits.max_duration, 6)


def visit_dispatches(task: Node) -> int:
    """Return the most dispatches of one visit to a task."""
    return task.max_attempts + task.config.max_waits


def _transition_weights(nodes: tuple[Node, ...]) -> Weights:
    def of(node: Node) -> tuple[int, int, int]:
        n = 0 if node.type is NodeType.END else 1
        return n, n, n

    return _node_weights(nodes, of)._replace(single_arrival=True)


def _approval_weights(nodes: tuple[Node, ...]) -> Weights:
    """An approval asks once however it is left; a task asks only on its way to success (K3)."""

    def of(node: Node) -> tuple[int, int, int]:
        if node.type is NodeType.APPROVAL:
            return 1, 1, 0
        return (1, 0, 0) if node.type is NodeType.TASK else (0, 0, 0)

    return _node_weights(nodes, of)


def _ask_weights(nodes: tuple[Node, ...]) -> Weights:
    """An agent may ask on each attempt but the last: there the question becomes an escalation."""

    def of(node: Node) -> tuple[int, int, int]:
        n = node.max_attempts - 1 if node.type is NodeType.TASK else 0
        return n, n, n

    return _node_weights(nodes, of)


_PART_BITS = 112
"""Bits for each part of a time: one integer packs total, queue, work and people.

A definition within the dispatch bound (2**53 at the most) has at most as many rounds of PARTS_MAX
nodes of ten years each, which fits; a definition that overflows is refused."""


def _pack_times(queue: float, work: float, people: float) -> int:
    q, w, p = round(queue * 1000), round(work * 1000), round(people * 1000)
    return ((q + w + p) << 3 * _PART_BITS) | (q << 2 * _PART_BITS) | (w << _PART_BITS) | p


def _service_time(graph: Graph, settings: Settings, asks: int) -> ServiceTime:
    def of(node: Node) -> tuple[int, int, int]:
        wait = settings.human_deadline
        if node.type is NodeType.APPROVAL:
            approval_time = _pack_times(
                0, 0, wait if node.config.deadline is None else node.config.deadline
            )
            return approval_time, approval_time, approval_time
        if node.type is not NodeType.TASK:
            return 0, 0, 0
        dispatches = visit_dispatches(node)
        waiting = longest_wait(node.config.max_waits, wait_seconds(node, settings))
        task_time = _pack_times(
            dispatches * queue_seconds(node, settings) + waiting,
            dispatches * work_seconds(node, settings),
            0,
        )
        return task_time + _pack_times(0, 0, wait), task_time, task_time

    weights = _node_weights(graph.nodes, of)._replace(is_parallel=True, cap=1 << 4 * _PART_BITS)
    packed = longest_path(graph, weights).total
    mask = (1 << _PART_BITS) - 1
    queue, work, people = (packed >> shift & mask for shift in (2 * _PART_BITS, _PART_BITS, 0))
    ask_seconds = asks * settings.human_deadline
    return ServiceTime(
        queue=queue / 1000,
        work=work / 1000,
        people=people / 1000,
        asks=ask_seconds,
        total=(packed >> 3 * _PART_BITS) / 1000 + ask_seconds,
    )


def queue_seconds(node: Node, settings: Settings) -> float:
    timeout = node.config.queue_timeout
    return settings.queue_timeout if timeout is None else timeout


def work_seconds(node: Node, settings: Settings) -> float:
    return settings.node_timeout if node.timeout is None else node.timeout


def wait_seconds(node: Node, settings: Settings) -> float:
    """Return how long agents may wait at the node, from the first wait of a visit on."""
    within = node.config.waits_within
    return settings.wait_deadline if within is None else within


def longest_wait(waits: int, deadline: float) -> float:
    """Return the most seconds that so many waits take until their common deadline."""
    return min(waits * RETRY_SECONDS_MAX, deadline)


def _witness(graph: Graph, path: LongestPath) -> Witness:
    name = [node.id for node in graph.nodes]
    repeat = {
        name[target]: tuple(
            (name[v], rule.max)
            for v in nodes
            if (rule := graph.nodes[v].config.on_failure) is not None
        )
        for target, nodes in graph.rework_sources.items()
    }
    branches = {
        name[merge]: tuple(
            name[path.last[merge, head]] for head in graph.heads[fork] if head != merge
        )
        for merge, fork in graph.fork_of.items()
    }
    return Witness(
        end=name[path.end],
        before={name[a]: name[b] for a, b in path.before.items()},
        repeat=repeat,
        branches=branches,
    )


def handoffs_max(team: Team, limits: Limits) -> int | None:
    """Return the most handoffs of a stretch by `max_handoffs`, None if it is off. Where it leaves
    out first visits, each agent and the review step adds one."""
    if limits.max_handoffs is None or not limits.frees_visits:
        return limits.max_handoffs
    is_open = bool(team.metadata.get("guarded"))
    places = FREE_VISITS_MAX if is_open else len(team.agents) + (team.review is not None)
    return limits.max_handoffs + min(places, FREE_VISITS_MAX)


def _waits_max(limits: Limits) -> int:
    """Return the most waits of a team's stretch that another dispatch follows: each takes a second
    at least, and counts to the running time."""
    if limits.max_duration is None:
        return limits.max_waits
    in_time = math.ceil(round(limits.max_duration, 6) / RETRY_SECONDS_MIN) - 1
    return max(0, min(limits.max_waits, in_time))


def _may_begin(limits: Limits) -> bool:
    """Whether the limits leave room for a first step, and for handoffs after it. If not, the
    figures are safe only."""
    is_timeless = limits.max_duration is not None and round(limits.max_duration, 6) == 0
    return not (is_timeless or limits.max_tokens == 0 or limits.max_cost == 0) and (
        limits.max_edge != 0
    )


def longest_walk(team: Team, *, to_review: bool) -> int | None:
    """Return the most handoffs that the graph alone allows from the start agent; None if endless.

    The review step ends a walk; `to_review` says whether the handoff to it counts.
    """
    if team.metadata.get("guarded"):
        return None
    targets = {
        agent.id: {
            *allowed_targets(team, agent, to_review=to_review),
            *_redirects_beyond_handoffs(agent),
        }
        for agent in team.agents
    }
    depth: dict[str, int] = {REVIEW_STEP_ID: 0} if team.review else {}
    on_path: set[str] = set()
    stack = [(team.start, False)]
    while stack:
        agent_id, done = stack.pop()
        if done:
            on_path.discard(agent_id)
            depth[agent_id] = max((1 + depth[to] for to in targets[agent_id]), default=0)
        elif agent_id in on_path:
            return None
        elif agent_id not in depth:
            on_path.add(agent_id)
            stack.append((agent_id, True))
            stack.extend((to, False) for to in targets[agent_id] if to not in depth)
    return depth[team.start]


def allowed_targets(team: Team, agent: Agent, *, to_review: bool) -> tuple[str, ...]:
    """Return the agent's handoff targets; an agent that may finish also has the review step."""
    agents = tuple(to for to in agent.hands_off_to if team.review is None or to != REVIEW_STEP_ID)
    reviewed = team.review is not None and agent.id in (*team.review.after, team.terminator)
    return (*agents, REVIEW_STEP_ID) if reviewed and to_review else agents


def may_finish(team: Team, agent: Agent) -> bool:
    """Whether the agent is the terminator, or reviewed: then a person has the last word."""
    review = team.review
    return agent.id == team.terminator or (review is not None and agent.id in review.after)


def _redirects_beyond_handoffs(agent: Agent) -> set[str]:
    """Return the terminator if the agent reaches it by a redirect only (K30)."""
    return {*agent.when_exhausted.values()}.difference(agent.hands_off_to)


def bound_team(team: Team, limits: Limits, settings: Settings) -> Bound:
    """Compute the certificate of a valid team from hard limits and handoff graph (K19, K20).

    Each visit takes at most `protocol_error_limit` dispatches, and each question and each wait of
    an agent one more. The handoff out of the last step that max_steps allows still happens. A
    conclusion takes one dispatch more, the last of max_steps (K29); a walk that the graph ends is
    not ended by a limit, so that only a soft rule can bring a conclusion after it.
    """
    steps, walk = limits.ordinary_steps, longest_walk(team, to_review=False)
    limit = handoffs_max(team, limits)
    handoffs = _smallest(limit, longest_walk(team, to_review=True), steps)
    turns = _smallest(limit, walk, steps) + 1
    structural = turns * limits.protocol_error_limit + ASKS_MAX + _waits_max(limits)
    dispatches = _smallest(structural, steps)
    asks = min(ASKS_MAX, dispatches)
    is_exact = (
        _may_begin(limits)
        and not (limits.frees_visits and walk is None)
        and not any(
            any(task.once or task.is_narrow for task in agent.tasks)
            or _redirects_beyond_handoffs(agent)
            for agent in team.agents
        )
    )
    walk_ends = walk is not None and dispatches == structural
    concludes = limits.ladder.conclude and (steps is None or steps != limits.max_steps)
    dispatches += concludes
    return Bound(
        dispatches=dispatches,
        handoffs=handoffs,
        transitions=handoffs,
        questions=int(team.review is not None or limits.ladder.ask),
        asks=asks,
        time=_service_time_of_team(team, limits, settings, dispatches, asks),
        tight={
            "dispatches": is_exact and not (concludes and walk_ends),
            "handoffs": is_exact,
            "transitions": is_exact,
            "questions": not limits.ladder.ask
            if team.review is None
            else _may_begin(limits) and _is_review_reachable(team, limits),
            "asks": is_exact,
            "time": False,
        },
    )


def _is_review_reachable(team: Team, limits: Limits) -> bool:
    """Whether the limits allow a walk from the start to a reviewed agent, and its handoff.

    If not, a person may still move the run there: the figure is safe, not tight. So it is where a
    task narrows what its holder may answer.
    """
    if any(task.is_narrow for agent in team.agents for task in agent.tasks):
        return False
    steps = handoff_distances(team)
    finishing = (*team.review.after, team.terminator) if team.review is not None else ()
    needed = min([steps[name] for name in finishing if name in steps], default=None)
    hard = [limit for limit in (limits.max_handoffs, limits.ordinary_steps) if limit is not None]
    return needed is not None and all(needed < limit for limit in hard)


def _smallest(*limits: int | None) -> int:
    return min(limit for limit in limits if limit is not None)


def _service_time_of_team(
    team: Team, limits: Limits, settings: Settings, dispatches: int, asks: int
) -> ServiceTime:
    max_seconds = limits.max_duration
    waiting = longest_wait(limits.max_waits, limits.wait_deadline)
    queue, work = dispatches * settings.queue_timeout + waiting, dispatches * settings.node_timeout
    running = queue + work
    if max_seconds is not None:
        queue, work, running = (
            min(queue, max_seconds),
            min(work, max_seconds),
            min(running, max_seconds),
        )
    review = team.review
    people = settings.human_deadline if limits.ladder.ask else 0.0
    if review is not None:
        deadline = settings.human_deadline if review.deadline is None else review.deadline
        people = max(people, deadline)
    ask_seconds = asks * settings.human_deadline
    return ServiceTime(
        queue=queue,
        work=work,
        people=people,
        asks=ask_seconds,
        total=running + people + ask_seconds,
    )
