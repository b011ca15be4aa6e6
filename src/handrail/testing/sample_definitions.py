"""Definitions that the simulator plays besides random ones: shapes that people really use, and
shapes that once broke a bound (docs/requirements.md, K8, K10, K11).
"""

from typing import Any

DefinitionDocument = dict[str, Any]


def _task_node(
    name: str,
    role: str = "backend-engineer",
    attempts: int = 3,
    **config: Any,  # noqa: ANN401 - a node's own
) -> DefinitionDocument:
    return {"id": name, "type": "task", "role": role, "max_attempts": attempts, "config": config}


def _approval_node(name: str, **config: Any) -> DefinitionDocument:  # noqa: ANN401 - a node's config
    return {"id": name, "type": "approval", "role": "ceo", "config": config}


def _node(name: str, node_type: str, **config: Any) -> DefinitionDocument:  # noqa: ANN401 - a node's config
    return {"id": name, "type": node_type, "config": config}


def _workflow(name: str, nodes: list[DefinitionDocument], *edges: str) -> DefinitionDocument:
    """Build a workflow. Edges: "a > b" (success), "a ! b" (failure) or "a > b if condition"."""
    edge_documents: list[DefinitionDocument] = []
    for edge in edges:
        ends, _, condition = edge.partition(" if ")
        source, sign, target = ends.split()
        condition = "failure" if sign == "!" else condition
        edge_documents.append(
            {"from_node_id": source, "to_node_id": target, "condition": condition}
        )
    return {"kind": "workflow", "name": name, "nodes": nodes, "edges": edge_documents}


BUG = _workflow(
    "bug",
    [
        _node("start", "start"),
        _task_node("investigate", multi_dispatch=True, kind="investigation"),
        _approval_node("accept", revise_to="investigate"),
        _task_node("apply"),
        _task_node(
            "verify",
            "qa-engineer",
            kind="verification",
            on_failure={"rework": "apply", "max": 3},
        ),
        _task_node("security", on_failure={"rework": "apply", "max": 2}),
        _task_node("commit", "engineering-manager", attempts=2, kind="commit"),
        _node("done", "end"),
        _node("given_up", "end", status="aborted_stuck"),
    ],
    "start > investigate",
    "investigate > accept",
    "accept > apply",
    "accept ! given_up",
    "apply > verify",
    "verify > security",
    "security > commit",
    "commit > done",
)

TWINS = _workflow(
    "twins",
    [
        _node("start", "start"),
        _task_node("prepare", attempts=1),
        _node("split", "decision", parallel=True),
        _task_node("left", on_failure={"rework": "prepare", "max": 2}),
        _task_node("right", on_failure={"rework": "prepare", "max": 2}),
        _approval_node("look", quorum=2),
        _node("join", "merge", wait="all"),
        _node("end", "end"),
    ],
    "start > prepare",
    "prepare > split",
    "split > left",
    "split > right",
    "right > look",
    "look > join",
    "left > join",
    "join > end",
)

RACE = _workflow(
    "race",
    [
        _node("start", "start"),
        _node("split", "decision", parallel=True),
        _task_node("quick", attempts=1),
        _task_node("thorough", attempts=3, multi_dispatch=True),
        _approval_node("ask", quorum=3),
        _node("join", "merge", wait="any"),
        _task_node("after", on_failure={"rework": "split", "max": 2}),
        _node("end", "end"),
    ],
    "start > split",
    "split > quick",
    "split > thorough if severity > 3",
    "split > ask",
    "quick > join",
    "thorough > join",
    "ask > join",
    "join > after",
    "after > end",
)

NEST = _workflow(
    "nest",
    [
        _node("start", "start"),
        _task_node("outer", attempts=1),
        _task_node("inner", attempts=2),
        _task_node("check", attempts=1, on_failure={"rework": "inner", "max": 3}),
        _task_node("judge", attempts=1, on_failure={"rework": "outer", "max": 2}),
        _approval_node("sign", revise_to="inner"),
        _node("end", "end"),
    ],
    "start > outer",
    "outer > inner",
    "inner > check",
    "check > judge",
    "judge > sign",
    "sign > end",
)

RELEASE = _workflow(
    "release",
    [
        _node("start", "start"),
        _task_node("write", attempts=2),
        _task_node("commit", "engineering-manager", attempts=2, kind="commit"),
        _task_node(
            "verify",
            "qa-engineer",
            kind="verification",
            on_failure={"rework": "write", "max": 3},
        ),
        _approval_node("sign", revise_to="write", quorum=2, four_eyes=True),
        _node("end", "end"),
    ],
    "start > write",
    "write > commit",
    "commit > verify",
    "verify > sign",
    "sign > end",
)

HELPDESK: DefinitionDocument = {
    "kind": "team",
    "name": "helpdesk",
    "start": "orchestrator",
    "terminator": "ticketing",
    "initial_phase": "memory_check_pending",
    "agents": [
        {
            "id": "orchestrator",
            "hands_off_to": ["memory", "ticketing", "network", "summarization"],
        },
        {
            "id": "memory",
            "hands_off_to": ["orchestrator"],
            "tasks": [
                {"id": "find", "once": True, "milestone": "memory_checked"},
                {"id": "store", "once": True, "when": "phase == 'summary_complete'"},
            ],
        },
        {
            "id": "ticketing",
            "hands_off_to": ["orchestrator"],
            "tasks": [{"id": "analyse", "milestone": "ticket_analyzed"}],
        },
        {
            "id": "network",
            "hands_off_to": ["orchestrator", "network"],
            "tasks": [{"id": "resolve", "milestone": "resolution_obtained"}],
        },
        {
            "id": "summarization",
            "hands_off_to": ["orchestrator"],
            "marker": "WORKFLOW_COMPLETE",
            "tasks": [{"id": "sum", "once": True, "milestone": "summary_complete"}],
        },
    ],
}

ENGINEERS: DefinitionDocument = {
    "kind": "team",
    "name": "engineers",
    "start": "planner",
    "terminator": "closer",
    "agents": [
        {"id": "planner", "hands_off_to": ["researcher", "coder", "verifier", "closer"]},
        {"id": "researcher", "hands_off_to": ["planner"]},
        {"id": "coder", "hands_off_to": ["verifier", "planner"]},
        {"id": "verifier", "hands_off_to": ["planner", "coder"]},
        {"id": "closer", "hands_off_to": ["planner"]},
    ],
    "stop_rules": {"constraints": {"paths": ["secrets/*"], "commands": ["rm -rf"]}},
}

INVOICES: DefinitionDocument = {
    "kind": "team",
    "name": "invoices",
    "start": "planner",
    "agents": [
        {"id": "planner", "hands_off_to": ["invoice", "closing", "audit"]},
        {"id": "invoice", "hands_off_to": ["review"]},
        {"id": "closing", "hands_off_to": ["review", "planner"]},
        {"id": "audit", "hands_off_to": ["review"]},
    ],
    "review": {"after": ["invoice", "closing", "audit"], "back_to": "planner"},
}

SHAPES: dict[str, DefinitionDocument] = {
    document["name"]: document
    for document in (BUG, TWINS, RACE, NEST, RELEASE, HELPDESK, ENGINEERS, INVOICES)
}
REVISABLE_SHAPES = ("nest", "invoices")
"""Shapes in which a person may revise, short enough for a thousand revisions."""
