"""The certificate: what a run of this definition can cost at most, known before it starts
(K23-K25).

Here stands that of a workflow: one backward pass per figure over the dominator tree, O(E log n), no
path enumeration. What bounds a team stands in `team_certificate.py`.

For a figure, leaving a node adds a weight that depends on how it is left: by success, by its
failure edge, by rework. `gain[x]` is what the reworks to x can add in total each time x is entered
anew, and `C(v)` the longest way from v's target to v: a rule of at most N turns adds N * C(v) to
its target's gain. Reworks to one target add up; reworks to nested targets multiply, because the
inner gain is part of the outer way (K8). The longest way between a node u and any x below it in the
dominator tree is kept in a union-find forest: when u is done, its children are hung below it with
their distance, and `_find` gives root and distance of any node in near-constant time. A fork adds
its branches up (a round that is cut short by a rework from one branch has paid for all of them,
K11); for time the slowest branch counts.

Figures are exact in the sense of docs/requirements.md (K23) unless `tight` says otherwise. All of
it is integers, cut off at CAP: beyond, a definition is refused anyway (K24). Seconds are counted in
milliseconds inside, and the three parts of the time ride in one integer, so that the slowest way's
parts are found in the same pass.
"""

from collections.abc import Callable
from typing import NamedTuple

from handrail.kernel.decision import Value
from handrail.kernel.definition import Node, NodeType, Settings
from handrail.kernel.graph import Graph, Link
from handrail.kernel.limits import ASKS_MAX, Limits

CAP = 2**60
"""Sums are cut off here; nothing above 2**53 - 1 is ever accepted as a limit."""


class ServiceTime(Value):
    """Seconds on the slowest way: offered, worked on, waiting for people, and asked by agents."""

    queue: float
    work: float
    people: float
    asks: float
    total: float


class Witness(Value):
    """How the most dispatches come about, as a program (K25): walk `before` back from `end`; on
    entering a node of `repeat`, first go the way to each of its nodes and back, so many times."""

    end: str
    before: dict[str, str]
    repeat: dict[str, tuple[tuple[str, int], ...]]
    """target -> (the node that sends back, how often)"""
    branches: dict[str, tuple[str, ...]] = {}
    """merge -> the last node of each branch"""


class Bound(Value):
    """The most of each, over all outcomes, interleavings and answers; per stretch."""

    dispatches: int
    handoffs: int
    transitions: int
    questions: int
    asks: int
    time: ServiceTime
    tight: dict[str, bool]
    witness: Witness | None = None


RESTING = (NodeType.TASK, NodeType.APPROVAL)


class Weights(NamedTuple):
    """What leaving a node adds to a figure, by the way it is left."""

    success: list[int]
    failure: list[int]
    rework: list[int]
    side_by_side: bool = False
    """Branches count as the slowest of them, not as their sum."""
    arrivals: bool = False
    """At an `any` merge only one branch arrives: the others count only as far as they can rest."""
    cap: int = CAP


class Tables(NamedTuple):
    """One figure's result: the total, and for the witness the choices made."""

    total: int
    before: dict[int, int]
    last: dict[tuple[int, int], int]
    end: int


def longest(graph: Graph, weights: Weights) -> Tables:
    """The backward pass described above."""
    return _Pass(graph, weights).run()


class _Pass:
    def __init__(self, graph: Graph, weights: Weights) -> None:
        self.graph, self.weights = graph, weights
        n = len(graph.nodes)
        self.up, self.off, self.gain = [-1] * n, [0] * n, [0] * n
        self.before: dict[int, int] = {}
        self.last: dict[tuple[int, int], int] = {}
        self.held: dict[int, int] = {}
        """The most inside an inner block that is not complete, by its fork."""
        self.inside: dict[tuple[int, int], list[int]] = {}
        for i in graph.order:
            region = graph.region[i]
            if region is not None:
                self.inside.setdefault(region, []).append(i)

    def run(self) -> Tables:
        graph, gain, rework, cap = self.graph, self.gain, self.weights.rework, self.weights.cap
        for u in reversed(graph.order):
            base = self._fork(u) if u in graph.heads else self._plain(u)
            for kid, distance in base.items():
                self.up[kid], self.off[kid] = u, min(distance, cap)
            for v in graph.rules.get(u, ()):
                rule = graph.nodes[v].config.on_failure
                assert rule is not None
                gain[u] = min(gain[u] + rule.max * (self._find(v)[1] + rework[v]), cap)
        ends = [e for e in graph.ends if e in graph.reachable]
        end = max(ends, key=lambda e: self._find(e)[1] + self.weights.success[e])
        total = gain[graph.start] + self._find(end)[1] + self.weights.success[end]
        return Tables(min(total, cap), self.before, self.last, end)

    def _find(self, x: int) -> tuple[int, int]:
        """Root of x's tree, and the longest way from that root to x (x's own gain included)."""
        up, off = self.up, self.off
        path: list[int] = []
        while up[x] >= 0:
            path.append(x)
            x = up[x]
        total = 0
        for y in reversed(path):
            total += off[y]
            off[y], up[y] = total, x
        return x, total

    def _left(self, link: Link) -> int:
        w = self.weights
        return w.failure[link.node] if link.on_failure else w.success[link.node]

    def _plain(self, u: int) -> dict[int, int]:
        base: dict[int, int] = {}
        for kid in self.graph.kids[u]:
            best = -1
            for link in self.graph.pred[kid]:
                if link.node == u:
                    value = self._left(link)
                else:
                    root, way = self._find(link.node)
                    value = base[root] + way + self._left(link)
                if value > best:
                    best, self.before[kid] = value, link.node
            base[kid] = best + self.gain[kid]
        return base

    def _fork(self, fork: int) -> dict[int, int]:
        """Heads are entered with all other branches paid for; the merge with every branch."""
        graph, gain = self.graph, self.gain
        merge = graph.merge_of[fork]
        whole: dict[int, int] = dict.fromkeys(graph.heads[fork], 0)
        for link in graph.pred[merge]:
            if link.node == fork:
                continue  # an empty branch
            root, way = self._find(link.node)
            value = gain[root] + way + self._left(link)
            if value > whole[root] or (merge, root) not in self.last:
                whole[root], self.last[merge, root] = value, link.node
        whole.pop(merge, None)
        resting = self._resting(fork, whole) if self.weights.arrivals else whole
        beside = whole
        if graph.nodes[merge].config.wait == "any":
            beside = resting
        everything = sum(beside.values()) + max(whole[h] - beside[h] for h in whole)
        if self.weights.side_by_side:
            beside, everything = dict.fromkeys(whole, 0), max(whole.values())
        others = sum(beside.values())
        base = {h: self.weights.success[fork] + others - beside[h] + gain[h] for h in whole}
        base[merge] = self.weights.success[fork] + everything + gain[merge]
        self.before[merge] = fork
        return base

    def _resting(self, fork: int, whole: dict[int, int]) -> dict[int, int]:
        """By head: the most while the branch has not arrived. Tokens rest only at tasks, at
        approvals and in inner blocks; what comes after the last of these is passed at once."""
        graph, most = self.graph, dict.fromkeys(whole, 0)
        for head in whole:
            for x in self.inside[fork, head]:
                held = self.held.get(x)
                if held is not None or graph.nodes[x].type in RESTING:
                    here = self.gain[head] + self._find(x)[1] + (held or 0)
                    most[head] = max(most[head], here)
        if graph.nodes[graph.merge_of[fork]].config.wait == "any":
            inner = sum(most.values())
        else:
            inner = sum(whole.values()) - min(whole[h] - most[h] for h in whole)
        self.held[fork] = self.weights.success[fork] + inner
        return most


def bound_workflow(graph: Graph, limits: Limits, settings: Settings) -> Bound:
    """The certificate of a valid workflow."""
    found = longest(graph, _dispatches(graph.nodes))
    dispatches, cut = found.total, limits.max_steps
    transitions = longest(graph, _transitions(graph.nodes)).total
    limited = cut is not None and cut < dispatches
    walked = limits.max_handoffs is not None and limits.max_handoffs < transitions
    asks = min(ASKS_MAX, longest(graph, _asks(graph.nodes)).total)
    time = _service_time(graph, settings, asks)
    any_merge = any(graph.nodes[m].config.wait == "any" for m in graph.fork_of)
    safe_only = limited or walked
    return Bound(
        dispatches=cut if limited and cut is not None else dispatches,
        handoffs=0,
        transitions=transitions,
        questions=longest(graph, _questions(graph.nodes)).total,
        asks=asks,
        time=time,
        tight={
            "dispatches": not walked,
            "handoffs": True,
            "transitions": not safe_only,
            "questions": not safe_only,
            "asks": not safe_only,
            "time": not safe_only and not any_merge and limits.max_duration is None,
        },
        witness=None if limited else _witness(graph, found),
    )


def nest(graph: Graph) -> str:
    """The reworks that make a figure large, outermost first, for the refusal (K24)."""
    rules = sorted(
        ((t, v) for t, nodes in graph.rules.items() for v in nodes), key=lambda r: graph.enter[r[0]]
    )
    named = [
        f"{graph.nodes[v].id} -> {graph.nodes[t].id} (max {rule.max})"
        for t, v in rules
        if (rule := graph.nodes[v].config.on_failure) is not None
    ]
    if not named:
        return "the sum of all max_attempts"
    more = f" and {len(named) - 12} more" if len(named) > 12 else ""
    return "nested reworks multiply: " + ", ".join(named[:12]) + more


def _weights(nodes: tuple[Node, ...], of: Callable[[Node], tuple[int, int, int]]) -> Weights:
    rows = [of(node) for node in nodes]
    return Weights([r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows])


def _dispatches(nodes: tuple[Node, ...]) -> Weights:
    def of(node: Node) -> tuple[int, int, int]:
        n = node.max_attempts if node.type is NodeType.TASK else 0
        return n, n, n

    return _weights(nodes, of)


def _transitions(nodes: tuple[Node, ...]) -> Weights:
    def of(node: Node) -> tuple[int, int, int]:
        n = 0 if node.type is NodeType.END else 1
        return n, n, n

    return _weights(nodes, of)._replace(arrivals=True)


def _questions(nodes: tuple[Node, ...]) -> Weights:
    """An approval asks once however it is left; a task asks only on its way to success (K3)."""

    def of(node: Node) -> tuple[int, int, int]:
        if node.type is NodeType.APPROVAL:
            return 1, 1, 0
        return (1, 0, 0) if node.type is NodeType.TASK else (0, 0, 0)

    return _weights(nodes, of)


def _asks(nodes: tuple[Node, ...]) -> Weights:
    """An agent may ask on each attempt but the last: there the question becomes an escalation."""

    def of(node: Node) -> tuple[int, int, int]:
        n = node.max_attempts - 1 if node.type is NodeType.TASK else 0
        return n, n, n

    return _weights(nodes, of)


_PART = 112
"""Bits for each part of a time: total, queue, work and people ride side by side in one integer.

A definition within the dispatch bound (2**53 at the most) has at most so many rounds of PARTS_MAX
nodes of ten years each, which is less; what runs over belongs to one that is refused."""


def _packed(queue: float, work: float, people: float) -> int:
    q, w, p = round(queue * 1000), round(work * 1000), round(people * 1000)
    return ((q + w + p) << 3 * _PART) | (q << 2 * _PART) | (w << _PART) | p


def _service_time(graph: Graph, settings: Settings, asks: int) -> ServiceTime:
    def of(node: Node) -> tuple[int, int, int]:
        wait = settings.human_deadline
        if node.type is NodeType.APPROVAL:
            one = _packed(0, 0, wait if node.config.deadline is None else node.config.deadline)
            return one, one, one
        if node.type is not NodeType.TASK:
            return 0, 0, 0
        queue = node.max_attempts * queue_seconds(node, settings)
        work = node.max_attempts * work_seconds(node, settings)
        plain = _packed(queue, work, 0)
        return plain + _packed(0, 0, wait), plain, plain

    weights = _weights(graph.nodes, of)._replace(side_by_side=True, cap=1 << 4 * _PART)
    packed = longest(graph, weights).total
    mask = (1 << _PART) - 1
    queue, work, people = (packed >> shift & mask for shift in (2 * _PART, _PART, 0))
    asked = asks * settings.human_deadline
    total = (packed >> 3 * _PART) / 1000 + asked
    return ServiceTime(
        queue=queue / 1000, work=work / 1000, people=people / 1000, asks=asked, total=total
    )


def queue_seconds(node: Node, settings: Settings) -> float:
    given = node.config.queue_timeout
    return settings.queue_timeout if given is None else given


def work_seconds(node: Node, settings: Settings) -> float:
    return settings.node_timeout if node.timeout is None else node.timeout


def _witness(graph: Graph, found: Tables) -> Witness:
    name = [node.id for node in graph.nodes]
    repeat = {
        name[target]: tuple(
            (name[v], rule.max)
            for v in nodes
            if (rule := graph.nodes[v].config.on_failure) is not None
        )
        for target, nodes in graph.rules.items()
    }
    branches = {
        name[merge]: tuple(
            name[found.last[merge, head]] for head in graph.heads[fork] if head != merge
        )
        for merge, fork in graph.fork_of.items()
    }
    return Witness(
        end=name[found.end],
        before={name[a]: name[b] for a, b in found.before.items()},
        repeat=repeat,
        branches=branches,
    )
