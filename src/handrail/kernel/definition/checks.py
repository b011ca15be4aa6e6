"""Validation of definitions. Every check reports all its problems; no check stops another.

A workflow: each node and edge by itself; the graph as a whole (one start, acyclic, everything
reachable, an end from everywhere); and the rules K4, K6, K9 and K10 for ways back and parallel
blocks. The last group needs dominators, so it runs only on an acyclic graph with a start. A team:
known targets, a reachable authority, hard limits, sound tasks.

Each problem's hint says what to do; docs/definitions.md documents the codes.
"""

from collections import Counter
from collections.abc import Iterator

from handrail.kernel.definition.certificate import may_finish, wait_seconds
from handrail.kernel.definition.condition import Condition
from handrail.kernel.definition.context_keys import check_context_keys, declared_names
from handrail.kernel.definition.graph import Graph, Link, handoff_distances
from handrail.kernel.definition.limits import Limits
from handrail.kernel.definition.model import (
    BUILTIN_ROLES,
    PERSON_LEVELS,
    REVIEW_STEP_ID,
    Agent,
    DocumentProblem,
    Node,
    NodeType,
    Settings,
    Team,
    TerminalStatus,
    Workflow,
    has_too_few_approvers,
)

ROLE_OF_KIND = {"commit": "engineering-manager", "verification": "qa-engineer"}
END_STATUSES = (
    TerminalStatus.DONE_SUCCESS,
    TerminalStatus.DONE_PARTIAL,
    TerminalStatus.ABORTED_STUCK,
)
CAN_FAIL = (NodeType.TASK, NodeType.APPROVAL)
NAMED_NODES_MAX = 20
"""Nodes that a message lists by name."""


def workflow_warnings(workflow: Workflow) -> list[DocumentProblem]:
    """Return warnings for what is allowed but hardly intended."""
    return [
        DocumentProblem(
            code="nobodys_task",
            path=f"$.nodes[{i}].role",
            message=f"task '{node.id}' is for the role 'ceo', which no agent may have",
            hint="no agent can claim this task, so it escalates; use a node of type approval",
        )
        for i, node in enumerate(workflow.nodes)
        if node.type is NodeType.TASK and node.role == "ceo"
    ]


def check_workflow(workflow: Workflow, settings: Settings) -> tuple[list[DocumentProblem], Graph]:
    """Return all problems and the graph (with its shape, if it has one)."""
    graph = Graph(workflow)
    problems = [
        *_check_ids(workflow),
        *_check_nodes(workflow, settings),
        *_check_edges(workflow),
        *check_context_keys(workflow.metadata),
        *_check_graph(graph),
    ]
    if graph.start >= 0 and not graph.cycle:
        graph.compute_shape()
        problems += [
            *_check_outcome_edges(graph),
            *_check_ways_back(graph),
            *_check_blocks(graph, workflow),
        ]
    return problems, graph


def _check_ids(workflow: Workflow) -> Iterator[DocumentProblem]:
    for noun, path, ids in (
        ("node", "nodes", [node.id for node in workflow.nodes]),
        ("edge", "edges", [edge.id for edge in workflow.edges if edge.id]),
    ):
        for duplicate, count in Counter(ids).items():
            if count > 1:
                yield DocumentProblem(
                    code=f"duplicate_{noun}",
                    path=f"$.{path}",
                    message=f"{count} {noun}s have the id '{duplicate}'",
                    hint="ids are unique: rename all but one",
                )


def _check_nodes(workflow: Workflow, settings: Settings) -> Iterator[DocumentProblem]:
    known_roles = {*BUILTIN_ROLES, *workflow.roles, *settings.roles}
    for i, node in enumerate(workflow.nodes):
        yield from _check_role(node, f"$.nodes[{i}]", known_roles)
        yield from _check_config(node, f"$.nodes[{i}].config")
        yield from _check_waits(node, f"$.nodes[{i}].config", settings)


def _check_role(node: Node, path: str, known_roles: set[str]) -> Iterator[DocumentProblem]:
    path = f"{path}.role"
    if node.type not in (NodeType.TASK, NodeType.APPROVAL):
        return
    required_role = ROLE_OF_KIND.get(node.config.kind or "")
    if required_role and (node.role != required_role or node.config.role_from):
        yield DocumentProblem(
            code="wrong_role",
            path=path,
            message=f"'{node.id}' has kind '{node.config.kind}' and the role '{node.role}'; "
            f"that kind needs the role '{required_role}'",
            hint=f"set role: {required_role}, without role_from",
        )
    elif not node.role:
        yield DocumentProblem(
            code="missing_role",
            path=path,
            message=f"{node.type} '{node.id}' has no role",
            hint="add a role; with role_from, it is the fallback",
        )
    elif node.role and node.role not in known_roles:
        message = f"'{node.id}' has the role '{node.role}', which is not defined"
        examples = ", ".join(sorted(known_roles)[:NAMED_NODES_MAX])
        yield DocumentProblem(
            code="undefined_role",
            path=path,
            message=message,
            hint=f"use one of {examples}; or add the role to the definition's roles",
        )


def _check_config(node: Node, path: str) -> Iterator[DocumentProblem]:
    """Report keys that have no effect on this type of node instead of ignoring them silently."""
    config = node.config
    for key, is_set, types in (
        ("on_failure", config.on_failure is not None, (NodeType.TASK,)),
        ("multi_dispatch", config.multi_dispatch, (NodeType.TASK,)),
        ("kind", config.kind is not None, (NodeType.TASK,)),
        ("max_waits", config.max_waits > 0, (NodeType.TASK,)),
        ("waits_within", config.waits_within is not None, (NodeType.TASK,)),
        ("parallel", config.parallel, (NodeType.DECISION,)),
        ("revise_to", config.revise_to is not None, (NodeType.APPROVAL,)),
    ):
        if is_set and node.type not in types:
            yield DocumentProblem(
                code="misplaced_config",
                path=f"{path}.{key}",
                message=f"'{key}' has no effect on '{node.id}', a node of type {node.type}",
                hint=f"remove it; it is for nodes of type {', '.join(types)}",
            )
    for name in config.approvers if node.type is NodeType.APPROVAL else ():
        if name in BUILTIN_ROLES and name not in PERSON_LEVELS:
            yield DocumentProblem(
                code="bad_approver",
                path=f"{path}.approvers",
                message=f"'{node.id}' names the approver '{name}', which is a role of agents",
                hint=f"name people, or a role of people: {', '.join(PERSON_LEVELS)}",
            )
    if node.type is NodeType.APPROVAL and has_too_few_approvers(config.approvers, config.quorum):
        yield DocumentProblem(
            code="too_few_approvers",
            path=f"{path}.quorum",
            message=f"'{node.id}' needs {config.quorum} approvals and names "
            f"{len(set(config.approvers))} approvers",
            hint="lower the quorum, or name more approvers",
        )
    if node.type is NodeType.END and config.status not in END_STATUSES:
        yield DocumentProblem(
            code="bad_end_status",
            path=f"{path}.status",
            message=f"end '{node.id}' cannot end a run as '{config.status}'",
            hint=f"set config.status to one of {', '.join(END_STATUSES)}",
        )


def _check_waits(node: Node, path: str, settings: Settings) -> Iterator[DocumentProblem]:
    """Check that every allowed wait fits before the deadline: a wait takes a second at least."""
    config, seconds = node.config, wait_seconds(node, settings)
    if config.max_waits and config.kind == "commit":
        yield _problem(
            "bad_waits",
            f"{path}.max_waits",
            f"'{node.id}' is a commit node, which holds the commit lock and may not wait",
            "wait at a node before it",
        )
    if config.max_waits > seconds:
        yield _problem(
            "bad_waits",
            f"{path}.max_waits",
            f"'{node.id}' may wait {config.max_waits:,} times within {seconds:g} s",
            "a wait takes at least one second: lower max_waits, or raise waits_within",
        )
    if config.waits_within is not None and not config.max_waits:
        yield _problem(
            "bad_waits",
            f"{path}.waits_within",
            f"'{node.id}' says how long its agents may wait, and max_waits lets them never wait",
            "set max_waits too",
        )


def _check_edges(workflow: Workflow) -> Iterator[DocumentProblem]:
    ids = {node.id for node in workflow.nodes}
    keys = declared_names(workflow.metadata)
    for i, edge in enumerate(workflow.edges):
        for end in ("from_node_id", "to_node_id"):
            if getattr(edge, end) not in ids:
                yield DocumentProblem(
                    code="dangling_edge",
                    path=f"$.edges[{i}].{end}",
                    message=f"no node has the id '{getattr(edge, end)}'",
                    hint="add the node or correct the id",
                )
        if edge.expression:
            yield from check_expression(edge.expression, f"$.edges[{i}].condition", keys)


def check_expression(
    source: str, path: str, keys: frozenset[str] | None
) -> Iterator[DocumentProblem]:
    """Check that the expression compiles and names only keys in `keys` (if declared)."""
    try:
        condition = Condition(source)
    except ValueError as error:
        yield DocumentProblem(
            code="bad_condition",
            path=path,
            message=f"the condition does not compile: {error}",
            hint="write an expression over the bead's context, such as severity >= 3",
        )
        return
    for name in sorted(condition.names - keys) if keys is not None else ():
        yield DocumentProblem(
            code="unknown_name",
            path=path,
            message=f"the condition names '{name}', which metadata.context does not list",
            hint=f"add '{name}' to metadata.context",
        )


def _check_graph(graph: Graph) -> Iterator[DocumentProblem]:
    nodes = graph.nodes
    starts = [node.id for node in nodes if node.type is NodeType.START]
    if len(starts) != 1:
        yield DocumentProblem(
            code="many_starts" if starts else "no_start",
            path="$.nodes",
            message=f"there are {len(starts)} start nodes" if starts else "there is no start node",
            hint="keep exactly one node of type start",
        )
    if not graph.ends:
        yield DocumentProblem(
            code="no_end",
            path="$.nodes",
            message="there is no end node",
            hint="add a node of type end",
        )
    if graph.cycle:
        around = " -> ".join(
            nodes[i].id for i in [*graph.cycle, graph.cycle[0]][: NAMED_NODES_MAX + 1]
        )
        yield DocumentProblem(
            code="cycle",
            path="$.edges",
            message=f"the edges form a cycle: {around}",
            hint="edges lead forward only; to go back, use config.on_failure or config.revise_to",
        )
    if starts:
        yield from _check_covered(
            graph, graph.reachable, "unreachable", "cannot be reached from the start"
        )
    if graph.ends:
        yield from _check_covered(
            graph, graph.leads_to_end, "no_way_to_end", "leads to no end node"
        )


def _check_covered(
    graph: Graph, covered: set[int], code: str, complaint: str
) -> Iterator[DocumentProblem]:
    for i, node in enumerate(graph.nodes):
        if i not in covered:
            yield DocumentProblem(
                code=code,
                path=f"$.nodes[{i}]",
                message=f"'{node.id}' {complaint}",
                hint="add an edge",
            )


def _check_outcome_edges(graph: Graph) -> Iterator[DocumentProblem]:
    for i in graph.order:
        node = graph.nodes[i]
        path = f"$.nodes[{i}]"
        default_edges, failing = _split_edges(graph.succ[i])
        if node.type is NodeType.END:
            if graph.succ[i]:
                yield _problem("edge_from_end", path, f"end '{node.id}' has edges", "remove them")
            continue
        if len(default_edges) != 1 and not (graph.is_fork(i) and default_edges):
            count = len(default_edges) or "no"
            yield _problem(
                "default_edge",
                path,
                f"'{node.id}' has {count} success edges without a condition",
                "keep exactly one: it is followed when no condition holds",
            )
        if len(failing) > 1:
            yield _problem(
                "many_failure_edges",
                path,
                f"'{node.id}' has {len(failing)} failure edges",
                "keep at most one",
            )
        if failing and node.type not in CAN_FAIL:
            yield _problem(
                "misplaced_failure_edge",
                path,
                f"{node.type} '{node.id}' has a failure edge but cannot fail",
                "remove it",
            )
        if failing and node.config.on_failure is not None:
            yield _problem(
                "failure_and_rework",
                path,
                f"'{node.id}' has a failure edge and a rework",
                "keep one of the two (K4)",
            )


def _split_edges(links: list[Link]) -> tuple[list[Link], list[Link]]:
    """(success edges without condition, failure edges)"""
    return [link for link in links if link.is_unconditional], [
        link for link in links if link.is_failure
    ]


def _check_ways_back(graph: Graph) -> Iterator[DocumentProblem]:
    for i in graph.order:
        config = graph.nodes[i].config
        if config.on_failure is not None:
            yield from _check_way_back(
                graph,
                i,
                config.on_failure.rework,
                "reworks",
                f"$.nodes[{i}].config.on_failure.rework",
            )
        if config.revise_to is not None:
            yield from _check_way_back(
                graph, i, config.revise_to, "revises", f"$.nodes[{i}].config.revise_to"
            )


def _check_way_back(
    graph: Graph, i: int, target: str, verb: str, path: str
) -> Iterator[DocumentProblem]:
    name, t = graph.nodes[i].id, graph.index.get(target)
    if t is None:
        yield _problem(
            "unknown_way_back",
            path,
            f"'{name}' {verb} '{target}', but no node has that id",
            "name a node that comes before it",
        )
    elif t == i:
        yield _problem(
            "way_back_to_itself",
            path,
            f"'{name}' {verb} itself",
            "to try the same node again, use max_attempts",
        )
    elif graph.nodes[t].type is NodeType.MERGE:
        yield _problem(
            "way_back_to_merge",
            path,
            f"'{name}' {verb} '{target}', a merge",
            "go back to or before the fork (K6)",
        )
    elif t not in graph.reachable or not graph.dominates(t, i):
        yield _problem(
            "way_back_not_passed",
            path,
            f"'{name}' {verb} '{target}', but not every path to '{name}' passes it",
            f"go back to a node that lies on every path to '{name}' (K6)",
        )


def _check_blocks(graph: Graph, workflow: Workflow) -> Iterator[DocumentProblem]:
    instant = _instant_branches(graph)
    for fork in graph.heads:
        yield from _check_fork(graph, fork, instant[fork])
    for i in graph.order:
        node, region = graph.nodes[i], graph.region[i]
        if node.type is NodeType.END and region is not None:
            yield _problem(
                "end_in_block",
                f"$.nodes[{i}]",
                f"end '{node.id}' lies inside the block of '{graph.nodes[region[0]].id}'",
                "lead the branch to the block's merge instead (K9)",
            )
        for link in graph.succ[i]:
            if not _stays_in_block(graph, i, link.node):
                edge = workflow.edges[link.edge]
                yield _problem(
                    "edge_crosses_block",
                    f"$.edges[{link.edge}]",
                    f"'{edge.from_node_id}' -> '{edge.to_node_id}' crosses a parallel block",
                    "enter a block at its fork and leave it at its merge (K9)",
                )


def _check_fork(graph: Graph, fork: int, instant: list[Link]) -> Iterator[DocumentProblem]:
    name, path = graph.nodes[fork].id, f"$.nodes[{fork}]"
    heads, meeting = graph.heads[fork], graph.meeting_points[fork]
    if len(heads) < 2:
        yield _problem(
            "one_branch",
            path,
            f"parallel decision '{name}' has fewer than two branches",
            "add a branch, or remove config.parallel",
        )
    if len(set(heads)) < len(heads):
        yield _problem(
            "shared_branch",
            path,
            f"two branches of '{name}' begin at the same node",
            "let each branch begin at a node of its own (K9)",
        )
    if len(meeting) != 1:
        meeting_text = (
            ", ".join(f"'{graph.nodes[k].id}'" for k in meeting[:NAMED_NODES_MAX]) or "nowhere"
        )
        yield _problem(
            "no_single_merge",
            path,
            f"the branches of '{name}' meet at {meeting_text}",
            "lead all branches to one merge node (K9)",
        )
        return
    merge = graph.nodes[meeting[0]]
    if merge.type is not NodeType.MERGE:
        yield _problem(
            "no_single_merge",
            path,
            f"the branches of '{name}' meet at '{merge.id}', a {merge.type}",
            "let a merge node close the block (K9)",
        )
    if merge.config.wait == "any" and instant:
        yield _problem(
            "empty_branch",
            path,
            f"'{merge.id}' waits for any branch, and a branch of '{name}' has no work",
            "that branch would cancel the rest at once: put a task or an approval into it (K10)",
        )


def _instant_branches(graph: Graph) -> dict[int, list[Link]]:
    """By fork: the edges to branches that reach their merge without waiting.

    Inner blocks come first: a block passes at once if every branch it always starts does.
    """
    instant: dict[int, list[Link]] = {}
    for fork in reversed(graph.heads):
        merge = graph.merge_of.get(fork)
        links = graph.succ[fork]
        instant[fork] = [x for x in links if _reaches_merge(graph, x.node, merge, instant)]
    return instant


def _reaches_merge(
    graph: Graph, head: int, merge: int | None, instant: dict[int, list[Link]]
) -> bool:
    seen, stack = {head}, [head]
    for i in stack:  # grows while it is walked
        if i == merge:
            return True
        ways = [] if graph.nodes[i].type in CAN_FAIL else [link.node for link in graph.succ[i]]
        if i in instant:
            always = _split_edges(graph.succ[i])[0]
            passed = all(link in instant[i] for link in always)
            ways = [graph.merge_of[i]] if passed and i in graph.merge_of else []
        for to in ways:
            if to not in seen:
                seen.add(to)
                stack.append(to)
    return False


def _stays_in_block(graph: Graph, a: int, b: int) -> bool:
    """Whether the edge a -> b stays in its branch, opens a branch, or closes it at its merge."""
    if graph.is_fork(a):
        return graph.region[b] == (a, b) or graph.merge_of.get(a) == b
    region = graph.region[a]
    if region is not None and graph.merge_of.get(region[0]) == b:
        return True
    return graph.region[b] == region


def check_team(team: Team, limits: Limits) -> list[DocumentProblem]:
    return [
        *_check_names(team),
        *_check_agents(team),
        *_check_reachability(team),
        *_check_review(team),
        *check_context_keys(team.metadata),
        *_check_hard_limits(limits),
    ]


def team_warnings(limits: Limits) -> list[DocumentProblem]:
    """Return warnings for what is allowed but hardly intended."""
    if not limits.max_waits or limits.max_duration is None:
        return []
    if limits.max_duration > limits.wait_deadline:
        return []
    return [
        _problem(
            "short_duration",
            "$.stop_rules.max_duration",
            f"max_duration ({limits.max_duration:g} s) counts waits too, and ends a run before "
            f"wait_deadline ({limits.wait_deadline:g} s) does",
            "raise max_duration above wait_deadline",
        )
    ]


def _check_names(team: Team) -> Iterator[DocumentProblem]:
    ids = [agent.id for agent in team.agents]
    for duplicate, count in Counter(ids).items():
        if count > 1:
            yield _problem(
                "duplicate_agent",
                "$.agents",
                f"{count} agents have the id '{duplicate}'",
                "ids are unique: rename all but one",
            )
    for key in ("start", "terminator"):
        name = getattr(team, key)
        if name is not None and name not in ids:
            yield _problem(
                f"unknown_{key}",
                f"$.{key}",
                f"the {key} is '{name}', but no agent of this team has that id",
                _one_of_hint(ids),
            )
    if team.review is not None and team.start == REVIEW_STEP_ID:
        yield _problem(
            "unknown_start",
            "$.start",
            f"the start is '{REVIEW_STEP_ID}', which stands for the person who reviews",
            "name an agent as the start",
        )
    if team.terminator is None and team.review is None:
        yield _problem(
            "no_terminator",
            "$.terminator",
            "no agent may end a run: the team has neither a terminator nor a review",
            "set terminator to the agent that ends a run",
        )


def _check_agents(team: Team) -> Iterator[DocumentProblem]:
    ids = {agent.id for agent in team.agents}
    allowed = ids | {REVIEW_STEP_ID} if team.review is not None else ids
    declared = declared_names(team.metadata)
    keys = None if declared is None else declared | {"phase"}
    for i, agent in enumerate(team.agents):
        for j, to in enumerate(agent.hands_off_to):
            if to not in allowed:
                yield _problem(
                    "unknown_target",
                    f"$.agents[{i}].hands_off_to[{j}]",
                    f"'{agent.id}' hands off to '{to}', but no agent of this team has that id",
                    _one_of_hint(sorted(ids)),
                )
        yield from _check_redirects(team, agent, f"$.agents[{i}].when_exhausted")
        yield from _check_tasks(agent, i, keys)
        yield from _check_narrow_tasks(team, agent, i)


def _check_redirects(team: Team, agent: Agent, path: str) -> Iterator[DocumentProblem]:
    """A redirect leads from an agent of `hands_off_to` to another, or to the terminator (K30)."""
    # Without the review: a loop must not become a finished result.
    redirects, targets = agent.when_exhausted, _handoff_agents(team, agent)
    for target, other in redirects.items():
        for name in {target} - targets | {other} - targets - {team.terminator}:
            yield _problem(
                "bad_redirect",
                f"{path}.{target}",
                f"a redirect of '{agent.id}' names '{name}', which is no agent it hands off to",
                _one_of_hint(sorted(targets)),
            )
        follower, visited = other, {target}
        while follower in redirects and follower not in visited:
            visited.add(follower)
            follower = redirects[follower]
        if follower == target:
            yield _problem(
                "redirect_cycle",
                f"{path}.{target}",
                f"the redirects of '{agent.id}' lead from '{target}' back to it",
                "leave one of them out",
            )


def _check_tasks(agent: Agent, i: int, keys: frozenset[str] | None) -> Iterator[DocumentProblem]:
    for duplicate, count in Counter(task.id for task in agent.tasks).items():
        if count > 1:
            yield _problem(
                "duplicate_task",
                f"$.agents[{i}].tasks",
                f"'{agent.id}' has {count} tasks with the id '{duplicate}'",
                "ids are unique: rename all but one",
            )
    for j, task in enumerate(agent.tasks):
        if task.when.strip():
            yield from check_expression(task.when, f"$.agents[{i}].tasks[{j}].when", keys)


def _check_narrow_tasks(team: Team, agent: Agent, i: int) -> Iterator[DocumentProblem]:
    """A task that leaves its holder no answer could only end the run as `protocol` (K33)."""
    for j, task in enumerate(agent.tasks):
        path = f"$.agents[{i}].tasks[{j}]"
        if task.ends and task.then:
            yield _problem(
                "bad_task_end",
                f"{path}.then",
                f"task '{task.id}' of '{agent.id}' ends the run and hands off to '{task.then}' too",
                "leave one of the two out",
            )
        elif task.ends and not may_finish(team, agent):
            yield _problem(
                "bad_task_end",
                f"{path}.ends",
                f"task '{task.id}' ends the run, and '{agent.id}' may not: it is neither the "
                "terminator nor in review.after",
                "give the task to an agent that may end the run",
            )
        elif task.then and task.then not in _handoff_agents(team, agent):
            yield _problem(
                "bad_task_then",
                f"{path}.then",
                f"after task '{task.id}' '{agent.id}' hands off to '{task.then}', which is not in "
                "its hands_off_to",
                _one_of_hint(sorted(_handoff_agents(team, agent))),
            )


def _handoff_agents(team: Team, agent: Agent) -> set[str]:
    targets = {*agent.hands_off_to}
    return targets - {REVIEW_STEP_ID} if team.review is not None else targets


def _check_reachability(team: Team) -> Iterator[DocumentProblem]:
    steps = handoff_distances(team)
    if not steps:
        return  # `_check_names` reports an unknown start
    if team.terminator is not None and team.terminator not in steps:
        yield _problem(
            "unreachable_terminator",
            "$.terminator",
            f"the terminator '{team.terminator}' cannot be reached from '{team.start}'",
            f"add it to hands_off_to of an agent that '{team.start}' reaches",
        )
    for i, agent in enumerate(team.agents):
        is_review_step = team.review is not None and agent.id == REVIEW_STEP_ID
        if agent.id not in steps and not is_review_step and agent.id != team.terminator:
            yield _problem(
                "unreachable",
                f"$.agents[{i}]",
                f"'{agent.id}' cannot be reached from '{team.start}'",
                "add it to hands_off_to of an agent that can be reached, or remove it",
            )


def _check_review(team: Team) -> Iterator[DocumentProblem]:
    review = team.review
    if review is None:
        return
    ids = [agent.id for agent in team.agents if agent.id != REVIEW_STEP_ID]
    for i, name in enumerate(review.after):
        if name not in ids:
            yield _problem(
                "unknown_target",
                f"$.review.after[{i}]",
                f"review comes after '{name}', but no agent of this team has that id",
                _one_of_hint(ids),
            )
    if has_too_few_approvers(review.approvers, review.quorum):
        yield _problem(
            "too_few_approvers",
            "$.review.quorum",
            f"review needs {review.quorum} approvals and names "
            f"{len(set(review.approvers))} approvers",
            "lower the quorum, or name more approvers",
        )
    if review.back_to not in ids:
        yield _problem(
            "unknown_target",
            "$.review.back_to",
            f"a revision goes back to '{review.back_to}', but no agent of this team has that id",
            _one_of_hint(ids),
        )
    if team.terminator is None and not set(review.after) & set(handoff_distances(team)):
        yield _problem(
            "unreachable_terminator",
            "$.review.after",
            "no agent in review.after can be reached, and there is no terminator",
            "add an agent that can be reached to review.after, or set a terminator",
        )


def _check_hard_limits(limits: Limits) -> Iterator[DocumentProblem]:
    if limits.max_handoffs is None and limits.max_steps is None:
        yield _problem(
            "unbounded",
            "$.stop_rules",
            "max_handoffs and max_steps are both off, so a run has no bound",
            "set at least one of them",
        )
    if limits.max_waits > limits.wait_deadline:
        yield _problem(
            "bad_waits",
            "$.stop_rules.max_waits",
            f"agents may wait {limits.max_waits:,} times within {limits.wait_deadline:g} s",
            "a wait takes at least one second: lower max_waits, or raise wait_deadline",
        )


def _one_of_hint(names: list[str]) -> str:
    return f"use one of {', '.join(names[:20])}" if names else "add agents"


def _problem(code: str, path: str, message: str, hint: str) -> DocumentProblem:
    return DocumentProblem(code=code, path=path, message=message, hint=hint)
