"""The graph of a workflow: order, dominators, branches. Computed once, queried often.

Nodes are numbered 0..n-1 as written. Only nodes reachable from the start take part. One pass over
the topological order builds the dominator tree: a node's immediate dominator is the lowest common
ancestor of its predecessors, found with skew-binary jump pointers, so the whole costs O(E log n).
`dominates` is then two comparisons (intervals of a walk over that tree).

A *block* is a parallel decision (the fork), its branches and the merge that closes them (K9). In
the dominator tree a fork's children are the heads of its branches and, once, the merge. A node's
`region` is the innermost branch it lies in: (fork, head), or None outside all blocks.

A team's handoffs form a graph too; `handoff_distances` walks it.

This module finds the structure; `checks.py` decides whether it is allowed.
"""

from collections.abc import Iterable
from typing import NamedTuple

from handrail.kernel.definition.model import Node, NodeType, Team, Workflow

Region = tuple[int, int] | None


class Link(NamedTuple):
    """One end of an edge: the node at the other end, whether it is the failure edge, which edge.

    `is_unconditional`: a success edge without a condition.
    """

    node: int
    is_failure: bool
    edge: int
    is_unconditional: bool


class Graph:
    """A workflow's graph. Accepts invalid workflows: drops dangling edges, reports cycles."""

    def __init__(self, workflow: Workflow) -> None:
        self.nodes: tuple[Node, ...] = workflow.nodes
        self.index = {node.id: i for i, node in reversed(list(enumerate(workflow.nodes)))}
        n = len(self.nodes)
        self.succ: list[list[Link]] = [[] for _ in range(n)]
        self.pred: list[list[Link]] = [[] for _ in range(n)]
        for edge_index, edge in enumerate(workflow.edges):
            a, b = self.index.get(edge.from_node_id), self.index.get(edge.to_node_id)
            if a is not None and b is not None:
                always = not edge.is_failure and not edge.expression
                self.succ[a].append(Link(b, edge.is_failure, edge_index, always))
                self.pred[b].append(Link(a, edge.is_failure, edge_index, always))
        starts = [i for i, node in enumerate(self.nodes) if node.type is NodeType.START]
        self.start = starts[0] if starts else -1
        self.ends = [i for i, node in enumerate(self.nodes) if node.type is NodeType.END]
        self.reachable = self._reach(starts[:1], self.succ)
        self.leads_to_end = self._reach(self.ends, self.pred)
        self.order, self.cycle = self._sort(self.reachable)
        if not self.cycle and len(self.reachable) < n:  # tell a cycle that no start leads to, too
            self.cycle = self._sort(set(range(n)))[1]

    def compute_shape(self) -> None:
        """Compute dominators, blocks and regions of a graph with a start and without cycles."""
        assert self.start >= 0, "shape() is for graphs with a start"
        assert not self.cycle, "shape() is for acyclic graphs"
        self._compute_dominators()
        self._compute_blocks()
        self.rework_sources: dict[int, list[int]] = {}
        for i in self.order:
            rework = self.nodes[i].config.on_failure
            if rework is not None and rework.rework in self.index:
                self.rework_sources.setdefault(self.index[rework.rework], []).append(i)

    def dominates(self, a: int, b: int) -> bool:
        """Whether every way from the start to b leads through a (a itself included)."""
        return (
            self.enter_order[a] <= self.enter_order[b]
            and self.leave_order[b] <= self.leave_order[a]
        )

    def nodes_before(self, i: int) -> set[int]:
        """Return the nodes from which i can be reached."""
        return self._reach({link.node for link in self.pred[i]}, self.pred)

    def is_fork(self, i: int) -> bool:
        node = self.nodes[i]
        return node.type is NodeType.DECISION and node.config.parallel

    def blocks_around(self, i: int) -> list[tuple[int, int]]:
        """Return the branches around i, innermost first, each as (fork, head)."""
        regions: list[tuple[int, int]] = []
        region = self.region[i]
        while region is not None:
            regions.append(region)
            region = self.region[region[0]]
        return regions

    @staticmethod
    def _reach(roots: Iterable[int], links: list[list[Link]]) -> set[int]:
        seen = set(roots)
        stack = list(seen)
        while stack:
            for link in links[stack.pop()]:
                if link.node not in seen:
                    seen.add(link.node)
                    stack.append(link.node)
        return seen

    def _sort(self, nodes: set[int]) -> tuple[list[int], list[int]]:
        """Return a topological order of the nodes, and one cycle if there is any. Every successor
        of a node is among them."""
        degree = dict.fromkeys(sorted(nodes), 0)
        for i in degree:
            for link in self.succ[i]:
                degree[link.node] += 1
        ready = [i for i, d in degree.items() if d == 0]
        order: list[int] = []
        for i in ready:  # grows during the loop
            order.append(i)
            for link in self.succ[i]:
                degree[link.node] -= 1
                if degree[link.node] == 0:
                    ready.append(link.node)
        left = [i for i, d in degree.items() if d > 0]
        return order, self._find_cycle(left) if left else []

    def _find_cycle(self, left: list[int]) -> list[int]:
        """Walk backwards among the unsorted nodes: each has a predecessor among them."""
        among = set(left)
        i = left[0]
        seen: dict[int, int] = {}
        path: list[int] = []
        while i not in seen:
            seen[i] = len(path)
            path.append(i)
            i = next(link.node for link in self.pred[i] if link.node in among)
        return path[seen[i] :][::-1]

    def _compute_dominators(self) -> None:  # noqa: C901 - one pass, its helper inside
        n = len(self.nodes)
        idom, depth, jump = [-1] * n, [0] * n, [0] * n
        start = self.start
        idom[start] = jump[start] = start

        def common(a: int, b: int) -> int:
            if depth[a] < depth[b]:
                a, b = b, a
            while depth[a] > depth[b]:
                a = jump[a] if depth[jump[a]] >= depth[b] else idom[a]
            while a != b:
                a, b = (jump[a], jump[b]) if jump[a] != jump[b] else (idom[a], idom[b])
            return a

        for i in self.order:
            if i == start:
                continue
            d = -1
            for link in self.pred[i]:
                if link.node in self.reachable:
                    d = link.node if d < 0 else common(d, link.node)
            idom[i], depth[i] = d, depth[d] + 1
            j = jump[d]
            jump[i] = jump[j] if depth[d] - depth[j] == depth[j] - depth[jump[j]] else d
        self.idom = idom
        self.children: list[list[int]] = [[] for _ in range(n)]
        for i in self.order:
            if i != start:
                self.children[idom[i]].append(i)
        self.enter_order, self.leave_order = [0] * n, [0] * n
        self._number_tree()

    def _number_tree(self) -> None:
        clock, stack = 0, [(self.start, False)]
        while stack:
            i, done = stack.pop()
            clock += 1
            if done:
                self.leave_order[i] = clock
                continue
            self.enter_order[i] = clock
            stack.append((i, True))
            stack.extend((child, False) for child in self.children[i])

    def _compute_blocks(self) -> None:
        """Compute merges of forks and regions of nodes. A fork without a single merge has none."""
        self.heads = {
            i: [link.node for link in self.succ[i]] for i in self.order if self.is_fork(i)
        }
        self.merge_of: dict[int, int] = {}
        self.meeting_points: dict[int, list[int]] = {}
        for fork, heads in self.heads.items():
            among = set(heads)
            meeting = [
                k for k in self.children[fork] if k not in among or self._is_meeting_point(k, fork)
            ]
            self.meeting_points[fork] = meeting
            if len(meeting) == 1:
                self.merge_of[fork] = meeting[0]
        self.fork_of = {merge: fork for fork, merge in self.merge_of.items()}
        self.region: list[Region] = [None] * len(self.nodes)
        for i in self.order:
            if i == self.start:
                continue
            above = self.idom[i]
            if i in self.fork_of:
                self.region[i] = self.region[above]
            elif above in self.heads:
                self.region[i] = (above, i)
            else:
                self.region[i] = self.region[above]

    def _is_meeting_point(self, node: int, fork: int) -> bool:
        """Whether a head has a predecessor besides the fork: branches meet there (empty branch)."""
        return any(link.node != fork for link in self.pred[node] if link.node in self.reachable)


def handoff_distances(team: Team) -> dict[str, int]:
    """Return every agent reachable from the start agent, with the fewest handoffs to it."""
    targets = {agent.id: agent.hands_off_to for agent in team.agents}
    steps = {team.start: 0} if team.start in targets else {}
    queue = list(steps)
    for agent_id in queue:  # grows during the loop
        for to in targets[agent_id]:
            if to in targets and to not in steps:
                steps[to] = steps[agent_id] + 1
                queue.append(to)
    return steps
