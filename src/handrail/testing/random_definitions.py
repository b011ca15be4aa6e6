"""Random valid definitions for tests. Every definition passes `plan.check`.

A workflow is drawn as a line of items from the start to the ends. An item is a node or a whole
parallel block, and the branches of a block are lines themselves (K9). Edges lead forward only: the
default edge mostly to the next item, conditional and failure edges anywhere later, and an item
without an incoming edge gets one. Back edges are drawn last, over the dominators that the project's
own `Graph` finds (K6). A team is a tree of handoffs from the start agent with more handoffs on top.

Each condition reads its own key (`k1 > 0`, `k2 > 0`, ...), so simulated agents can make it true or
false at will; with `shared_keys` a few keys serve all conditions.

The same random generator in the same state gives the same definition.
"""

from random import Random
from typing import Any, NamedTuple

import msgspec

from handrail.kernel.definition.graph import Graph
from handrail.kernel.definition.model import REVIEW_STEP_ID, NodeType, Workflow

WORKERS = ("backend-engineer", "web-designer", "project-manager")
ROLE_OF_KIND = {"commit": "engineering-manager", "verification": "qa-engineer"}
SHARED_KEYS = ("severity", "area", "tested")
SHARED_CONDITIONS = (
    "severity > 3",
    "severity < 2",
    "area == 'web'",
    "tested",
    "!tested && severity >= 1",
)
END_STATUSES = ("done_success", "done_success", "done_partial", "aborted_stuck")
BLOCK_DEPTH_MAX = 2
NARROW_CHANCE = 0.15
EXTRA_EDGE_CHANCE = 0.3
"""Chance that a node has one more conditional edge, an agent one more handoff."""
REDIRECT_CHANCE = 0.7
LADDER_CHANCES = {"nudge": 0.8, "ask": 0.9, "conclude": 0.85}
"""Chance of each rung before a stop."""
EDGE_REACH_ITEMS = 4
"""How far ahead edges lead, so that larger workflows have longer paths."""


class _Segment(NamedTuple):
    """The entry and exit of a node or block (the same for a node)."""

    entry: str
    exit: str


class _WorkflowBuilder:
    """Builds a workflow."""

    def __init__(
        self, rng: Random, *, forks: bool, attempts_max: int, kinds: bool, shared_keys: bool
    ) -> None:
        self.rng, self.forks, self.kinds = rng, forks, kinds
        self.attempts_max, self.shared_keys = attempts_max, shared_keys
        self.nodes: list[dict[str, Any]] = []
        self.edges: list[dict[str, Any]] = []
        self.types: dict[str, str] = {}
        self.key_count = 0

    def add_node(self, node_type: str, **rest: Any) -> str:  # noqa: ANN401 - a node's fields
        name = f"{node_type[0]}{len(self.nodes)}"
        self.nodes.append({"id": name, "type": node_type, **rest})
        self.types[name] = node_type
        return name

    def add_edge(self, source: str, target: str, condition: str = "") -> None:
        self.edges.append({"from_node_id": source, "to_node_id": target, "condition": condition})

    def new_condition(self) -> str:
        if self.shared_keys:
            return self.rng.choice(SHARED_CONDITIONS)
        self.key_count += 1
        return f"k{self.key_count} > 0"

    def add_line(self, size: int, depth: int, *, starts_with_work: bool = False) -> list[_Segment]:
        """Add items with about `size` nodes in all, at least one; with `starts_with_work` a work
        node comes first."""
        items: list[_Segment] = []
        if starts_with_work:
            name = self.add_work_node()
            items.append(_Segment(name, name))
            size -= 1
        while size > 0 or not items:
            may_fork = self.forks and depth < BLOCK_DEPTH_MAX and size >= 4
            if may_fork and self.rng.random() < (0.6 if depth == 0 else 0.35):
                block_size = self.rng.randint(4, size)
                items.append(self.add_block(block_size, depth))
                size -= block_size
            else:
                name = self.add_plain_node()
                items.append(_Segment(name, name))
                size -= 1
        return items

    def add_plain_node(self) -> str:
        kind = self.rng.random()
        if kind < 0.8:
            return self.add_work_node()
        return self.add_node("decision") if kind < 0.95 else self.add_node("merge")

    def add_work_node(self) -> str:
        if self.rng.random() < 0.77:
            return self.add_task()
        return self.add_node("approval", role="ceo", config=self.draw_approval_config())

    def add_task(self) -> str:
        rng = self.rng
        config: dict[str, Any] = {}
        role = rng.choice(WORKERS)
        if rng.random() < 0.2:
            config["multi_dispatch"] = True
        if self.kinds and rng.random() < 0.2:
            config["kind"] = kind = rng.choice(("commit", "verification", "investigation"))
            role = ROLE_OF_KIND.get(kind, role)
        attempts = rng.randint(1, self.attempts_max)
        return self.add_node("task", role=role, max_attempts=attempts, config=config)

    def draw_approval_config(self) -> dict[str, Any]:
        config: dict[str, Any] = {}
        if self.rng.random() < 0.25:
            config["quorum"] = self.rng.randint(2, 3)
        if self.rng.random() < 0.1:
            config["four_eyes"] = True
        if self.rng.random() < 0.1:
            people = ["ana", "ben", "vic"][: config.get("quorum", 1)]
            config["approvers"] = self.rng.choice((people, ["admin"], ["ceo", "vic"]))
        return config

    def add_block(self, size: int, depth: int) -> _Segment:
        """Add a fork, its branches and their merge. If the merge waits for any branch, each branch
        begins with work (K10)."""
        rng = self.rng
        fork = self.add_node("decision", config={"parallel": True})
        wait = rng.choice(("all", "all", "any"))
        merge = self.add_node("merge", config={"wait": wait})
        count = 2 if size < 5 or rng.random() < 0.7 else 3
        empty = wait == "all" and rng.random() < 0.15
        branch_count = count - 1 if empty else count
        branch_entries = [merge] if empty else []
        for left in range(branch_count, 0, -1):
            branch_size = max(1, (size - 2) // left) if left > 1 else max(1, size - 2)
            branch_size = rng.randint(1, branch_size)
            size -= branch_size
            branch = self.add_line(branch_size, depth + 1, starts_with_work=wait == "any")
            self.connect(branch, [merge])
            branch_entries.append(branch[0].entry)
        rng.shuffle(branch_entries)
        unconditional = rng.choice(branch_entries)
        for entry in branch_entries:
            conditional = entry != unconditional and rng.random() < EXTRA_EDGE_CHANCE
            self.add_edge(fork, entry, self.new_condition() if conditional else "")
        return _Segment(fork, merge)

    def connect(self, items: list[_Segment], outs: list[str]) -> None:
        """Add forward edges: every item but the first is reachable, and every item has an exit."""
        rng = self.rng
        reached = {items[0].entry}
        for i, item in enumerate(items):
            later = [other.entry for other in items[i + 1 :]] + outs
            default = later[0] if rng.random() < 0.75 else rng.choice(later[:EDGE_REACH_ITEMS])
            for target, condition in self._draw_edges(item.exit, later, default):
                self.add_edge(item.exit, target, condition)
                reached.add(target)
        entries = [item.entry for item in items] + outs
        for i, target in enumerate(entries):
            if target not in reached:
                source = rng.choice(items[: min(i, len(items))])
                self.add_edge(source.exit, target, self.new_condition())

    def _draw_edges(self, source: str, later: list[str], default: str) -> list[tuple[str, str]]:
        rng, kind = self.rng, self.types[source]
        edges = [(default, "")]
        chance = {"decision": 0.9, "start": 0.1}.get(kind, EXTRA_EDGE_CHANCE / 2)
        while rng.random() < chance and len(edges) < 4:
            edges.append((rng.choice(later[:EDGE_REACH_ITEMS]), self.new_condition()))
            chance = EXTRA_EDGE_CHANCE
        if kind in ("task", "approval") and rng.random() < 0.25:
            edges.append((rng.choice(later[:EDGE_REACH_ITEMS]), "failure"))
        rng.shuffle(edges)
        return edges


def random_workflow(
    rng: Random,
    *,
    size: int = 5,
    forks: bool = True,
    attempts_max: int = 3,
    reworks_max: int = 3,
    kinds: bool = True,
    limits: bool = False,
    clocks: bool = False,
    shared_keys: bool = False,
) -> dict[str, Any]:
    """Return a valid workflow with about `size` nodes besides start and ends.

    `forks`: with parallel blocks. `reworks_max`: most back edges by rework. `kinds`: commit and
    verification nodes among the tasks. `limits`: sometimes low stop rules. `clocks`: sometimes its
    own timeouts and deadlines.
    """
    builder = _WorkflowBuilder(
        rng, forks=forks, attempts_max=attempts_max, kinds=kinds, shared_keys=shared_keys
    )
    start = builder.add_node("start")
    items = [_Segment(start, start), *builder.add_line(max(1, size), 0)]
    ends = [
        builder.add_node("end", config={"status": rng.choice(END_STATUSES)} if i else {})
        for i in range(1 if rng.random() < 0.6 else 2)
    ]
    builder.connect(items, ends)
    document: dict[str, Any] = {
        "kind": "workflow",
        "name": "random workflow",
        "nodes": builder.nodes,
        "edges": builder.edges,
        "metadata": {"context": _context_keys(builder)},
    }
    _add_back_edges(rng, document, reworks_max)
    if clocks:
        _add_clocks(rng, builder.nodes)
    _add_waits(rng, builder.nodes)
    if limits:
        document["stop_rules"] = _draw_workflow_limits(rng) | _draw_ladder(rng)
    return document


def _context_keys(builder: _WorkflowBuilder) -> list[str]:
    if builder.shared_keys:
        return list(SHARED_KEYS)
    return [f"k{i}" for i in range(1, builder.key_count + 1)]


def _add_back_edges(rng: Random, document: dict[str, Any], reworks_max: int) -> None:
    """Add reworks for tasks without a failure edge, and revisions for approvals, to dominators
    only."""
    graph = Graph(msgspec.convert(document, Workflow))
    graph.compute_shape()
    reworks = 0
    for i in rng.sample(graph.order, len(graph.order)):
        node = document["nodes"][i]
        targets = _dominators(graph, i)
        fails = any(link.is_failure for link in graph.succ[i])
        if not targets or node["type"] not in ("task", "approval"):
            continue
        config = node.setdefault("config", {})
        if node["type"] == "approval" and rng.random() < 0.6:
            config["revise_to"] = rng.choice(targets)
        elif node["type"] == "task" and not fails and reworks < reworks_max and rng.random() < 0.5:
            config["on_failure"] = {"rework": rng.choice(targets), "max": rng.randint(1, 3)}
            reworks += 1


def _dominators(graph: Graph, i: int) -> list[str]:
    """Return the nodes on every path to `i` to which `i` may go back."""
    dominators: list[str] = []
    while i != graph.start:
        i = graph.idom[i]
        if graph.nodes[i].type is not NodeType.MERGE:
            dominators.append(graph.nodes[i].id)
    return dominators


def _add_clocks(rng: Random, nodes: list[dict[str, Any]]) -> None:
    for node in nodes:
        config = node.setdefault("config", {})
        if node["type"] == "task" and rng.random() < 0.4:
            node["timeout"] = rng.choice((1, 30, 600, 0.1, 90.0000004))
        if node["type"] == "task" and rng.random() < 0.4:
            config["queue_timeout"] = rng.choice((1, 60, 3600))
        if node["type"] == "approval" and rng.random() < 0.4:
            config["deadline"] = rng.choice((10, 3600, 86400))


def _add_waits(rng: Random, nodes: list[dict[str, Any]]) -> None:
    """Let agents wait at some tasks of most definitions; never while they hold a lock."""
    if rng.random() < 0.35:
        return
    for node in [node for node in nodes if node["type"] == "task"]:
        config = node["config"]
        if config.get("kind") != "commit" and rng.random() < 0.85:
            config["max_waits"] = rng.choice((1, 1, 2))
            if rng.random() < 0.5:
                config["waits_within"] = rng.choice((config["max_waits"], 100, 3600))


def _draw_workflow_limits(rng: Random) -> dict[str, Any]:
    drawn = {
        "max_steps": rng.randint(1, 12),
        "max_handoffs": rng.randint(1, 15),
        "max_duration": rng.choice((1, 60, 3600, 100.0000003)),
        "repeat_limit": rng.randint(2, 3),
        "max_edge": rng.randint(1, 3),
        **_draw_soft_limits(rng),
    }
    return {key: value for key, value in drawn.items() if rng.random() < 0.35}


def _draw_soft_limits(rng: Random) -> dict[str, Any]:
    return {
        "same_error_limit": rng.randint(1, 4),
        "no_change_limit": rng.randint(1, 4),
        "oscillation_limit": rng.randint(1, 3),
        "research_limit": rng.randint(1, 4),
        "max_tokens": rng.choice((0, 100, 1000, 1000)),
        "max_cost": rng.choice((0.5, 10.0)),
        "constraints": {"paths": ["secrets/*"], "commands": ["rm -rf"]},
        "profile": rng.choice(("strict", "yolo")),
    }


def _draw_ladder(rng: Random) -> dict[str, Any]:
    return {"ladder": {rung: rng.random() < chance for rung, chance in LADDER_CHANCES.items()}}


def random_team(
    rng: Random,
    *,
    agents: int = 4,
    review: bool | None = None,
    once: bool = True,
    limits: bool = True,
    soft_limits: bool = False,
    redirects: bool = True,
) -> dict[str, Any]:
    """Return a valid team with this number of agents.

    `review`: with a reviewing person, without, or (None) at random. `once`: with tasks that are
    done once per run. `limits`: low hard limits, else the defaults. `soft_limits`: sometimes low
    soft limits too. `redirects`: mostly with handoffs that lead elsewhere when they are exhausted.
    """
    names = [f"a{i}" for i in range(max(1, agents))]
    handoffs: dict[str, list[str]] = {name: [] for name in names}
    for i, name in enumerate(names[1:], start=1):
        handoffs[names[rng.randrange(i)]].append(name)
    for name in names:
        chance = 0.8
        while rng.random() < chance:
            target = rng.choice(names)  # itself included
            if target not in handoffs[name]:
                handoffs[name].append(target)
            chance = EXTRA_EDGE_CHANCE
    document: dict[str, Any] = {"kind": "team", "name": "random team", "start": names[0]}
    reviewed = rng.random() < 0.4 if review is None else review
    if reviewed:
        document["review"] = _draw_review(rng, names)
        if rng.random() < EXTRA_EDGE_CHANCE:
            handoffs[rng.choice(names)].append(REVIEW_STEP_ID)
    if not reviewed or rng.random() < 0.5:
        document["terminator"] = rng.choice(names)
    document["agents"] = [_draw_agent(rng, name, handoffs[name], once=once) for name in names]
    if redirects:
        _add_redirects(rng, document)
    _narrow_tasks(document)
    document["initial_phase"] = "begun" if rng.random() < 0.5 else ""
    document["stop_rules"] = _draw_team_limits(rng, hard=limits, soft=soft_limits)
    _hasten_soft_rules(rng, document)
    return document


def _hasten_soft_rules(rng: Random, document: dict[str, Any]) -> None:
    """Mostly lower the limits of soft rules where they do more than end the run."""
    rules = document["stop_rules"]
    redirects = any("when_exhausted" in agent for agent in document["agents"])
    bends = redirects or rules["ladder"]["ask"] or rules["ladder"]["conclude"]
    if bends and rng.random() < 0.85:
        rules |= {"max_edge": rng.choice((1, 1, 2)), "repeat_limit": 2}
    if bends and rng.random() < 0.3:
        rules["same_error_limit"] = 1


def _narrow_tasks(document: dict[str, Any]) -> None:
    """Let some tasks leave their holder fewer answers (K33). The draw is the document's own, so
    that what else a seed draws does not depend on it."""
    rng = Random(repr(document))
    review = document.get("review", {"after": []})
    for agent in document["agents"]:
        targets = [to for to in agent["hands_off_to"] if to != REVIEW_STEP_ID]
        may_end = agent["id"] in (document.get("terminator"), *review["after"])
        for task in agent.get("tasks", []):
            draw = rng.random()
            if draw < NARROW_CHANCE and may_end:
                task["ends"] = True
            elif draw < 2 * NARROW_CHANCE and targets:
                task["then"] = rng.choice(targets)


def _add_redirects(rng: Random, document: dict[str, Any]) -> None:
    """Let the targets of an agent lead to later ones of its list, or to the terminator (K30)."""
    for agent in document["agents"]:
        targets = [to for to in agent["hands_off_to"] if to != REVIEW_STEP_ID]
        terminator = document.get("terminator", "")
        others = [*targets, terminator] if terminator not in (*targets, "") else targets
        redirects = {
            target: rng.choice(others[i + 1 :])
            for i, target in enumerate(targets)
            if others[i + 1 :] and rng.random() < REDIRECT_CHANCE
        }
        if redirects:
            agent["when_exhausted"] = redirects


def _draw_review(rng: Random, names: list[str]) -> dict[str, Any]:
    after = rng.sample(names, rng.randint(1, min(2, len(names))))
    if rng.random() < 0.7:
        after = list(dict.fromkeys([names[0], *after]))
    review: dict[str, Any] = {"after": after, "back_to": rng.choice(names)}
    if rng.random() < 0.2:
        review["required"] = False
    if rng.random() < 0.3:
        review["quorum"] = rng.randint(2, 3)
    if rng.random() < 0.3:
        review["deadline"] = rng.choice((60, 86400))
    return review


def _draw_agent(rng: Random, name: str, hands_off_to: list[str], *, once: bool) -> dict[str, Any]:
    agent: dict[str, Any] = {"id": name, "hands_off_to": hands_off_to}
    if rng.random() < 0.3:
        agent["role"] = rng.choice(WORKERS)
    if rng.random() < 0.2:
        agent["marker"] = f"{name.upper()}_DONE"
    tasks: list[dict[str, Any]] = []
    for i in range(rng.choice((0, 0, 1, 2))):
        task: dict[str, Any] = {"id": f"t{i}"}
        if once and rng.random() < 0.4:
            task["once"] = True
        if rng.random() < 0.4:
            task["milestone"] = f"{name}-{i}"
        if rng.random() < 0.3:
            task["when"] = rng.choice(("severity > 3", "phase == 'begun'", "tested"))
        tasks.append(task)
    if tasks:
        agent["tasks"] = tasks
    return agent


def _draw_team_limits(rng: Random, *, hard: bool, soft: bool) -> dict[str, Any]:
    rules: dict[str, Any] = {}
    if hard:
        rules["max_handoffs"] = rng.choice((0, 1, 2, 3, 5, None))
        rules["max_steps"] = rng.randint(1, 8) if rng.random() < 0.6 else None
        if rules["max_handoffs"] is None and rules["max_steps"] is None:
            rules["max_steps"] = 6
        rules["protocol_error_limit"] = rng.randint(1, 3)
    if soft:
        drawn = {
            "repeat_limit": rng.choice((2, 3, None)),
            "max_edge": rng.choice((1, 3, None)),
            "max_duration": rng.choice((60, 3600, None, 100.0000003)),
            **_draw_soft_limits(rng),
        }
        rules |= {key: value for key, value in drawn.items() if rng.random() < 0.4}
    if rng.random() < 0.5:
        waits = rng.choice((1, 2, 3))
        rules |= {"max_waits": waits, "wait_deadline": rng.choice((waits, 100, 3600))}
        if hard and rng.random() < 0.2:
            rules["max_duration"] = rng.choice((1, 2, 2.5))  # has no room for every wait
    return rules | _draw_ladder(rng)
