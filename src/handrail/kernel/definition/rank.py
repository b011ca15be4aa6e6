"""Ranks: the tables behind `measure`, one backward pass per workflow (K26).

`rest[n]` is the most events from entering node n to the end of the run (inside a block: to its
merge), without reworks already granted. Each rework pays for what it adds: a rework by the rule at
v with target t may lift the rank from "v is being left" to "t is entered", so it costs the
difference `rework_cost[v] = max(0, rest[t] - leaving_value(v) + 1)`. Entering t forward grants its
rules all their reworks: `gain[t]`.

The sum over a run's state (positions, open blocks, reworks left of open scopes) then falls with
every accepted event, is 0 exactly at the end, and never rises above its value at the start when a
person moves the run (docs/adr/0002 explains why a rework costs the difference and not `rest[t]`, as
in K26's sketch: with k targets in a row the sketch grows like 2^k, this like k).

Events of a visit: each attempt and each wait is offered, claimed and ended; then perhaps a question
and its answer; then the transition. A result pays for the answers of siblings that it voids
(`attempt_events`, K16).
"""

from handrail.kernel.definition.certificate import visit_dispatches
from handrail.kernel.definition.graph import Graph
from handrail.kernel.definition.model import Node, NodeType

EVENTS_PER_ATTEMPT = 3
"""Offered, claimed, ended."""
EVENTS_PER_APPROVAL = 2
"""A question and its answer."""
EVENTS_PER_TRANSITION = 1


class Ranks:
    """`rest`, `gain` and `rework_cost` by node number; `attempt_events` per dispatch."""

    def __init__(self, graph: Graph) -> None:
        n = len(graph.nodes)
        self.attempt_events = EVENTS_PER_ATTEMPT + sum(
            node.config.quorum - 1
            for i, node in enumerate(graph.nodes)
            if node.type is NodeType.APPROVAL
            and i in graph.reachable
            and graph.region[i] is not None
        )
        self.visit_events = [self._visit_events(node) for node in graph.nodes]
        self.rest, self.gain, self.rework_cost = [0] * n, [0] * n, [0] * n
        for u in reversed(graph.order):
            self.rest[u] = self.visit_events[u] + self.after(graph, u)
            for v in graph.rework_sources.get(u, ()):
                rule = graph.nodes[v].config.on_failure
                assert rule is not None
                self.rework_cost[v] = max(0, self.rest[u] - self._leaving_value(graph, v, u) + 1)
                self.gain[u] += rule.max * self.rework_cost[v]

    def entry_value(self, i: int) -> int:
        """The rank that entering i anew adds."""
        return self.rest[i] + self.gain[i]

    def after(self, graph: Graph, u: int) -> int:
        """The most events after u is left; 0 at a branch's last node: the block counts the rest."""
        if u in graph.heads:
            merge = graph.merge_of[u]
            branches = sum(self.entry_value(head) for head in graph.heads[u] if head != merge)
            return branches + self.entry_value(merge)
        region = graph.region[u]
        out = graph.merge_of[region[0]] if region is not None else -1
        return max(
            (0 if x.node == out else self.entry_value(x.node) for x in graph.succ[u]), default=0
        )

    def _leaving_value(self, graph: Graph, v: int, target: int) -> int:
        """The rank of a position that leaves v, with the ways after merges that a rework skips."""
        here = self.rest[v] - self.visit_events[v] + EVENTS_PER_TRANSITION
        around = graph.blocks_around(v)
        inner = [fork for fork, _ in around if graph.dominates(target, fork)]
        return here + sum(self.entry_value(graph.merge_of[fork]) for fork in inner)

    def _visit_events(self, node: Node) -> int:
        if node.type is NodeType.TASK:
            return (
                self.attempt_events * visit_dispatches(node)
                + EVENTS_PER_APPROVAL
                + EVENTS_PER_TRANSITION
            )
        if node.type is NodeType.APPROVAL:
            return 1 + node.config.quorum + EVENTS_PER_TRANSITION
        return EVENTS_PER_TRANSITION
