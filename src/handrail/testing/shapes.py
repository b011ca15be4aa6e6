"""Definitions that the simulator plays besides random ones: the shapes that people really use, and
the ones that once broke a bound (docs/requirements.md, K8, K10, K11).
"""

from typing import Any

Document = dict[str, Any]


def _task(name: str, role: str = "backend-engineer", attempts: int = 3, **config: Any) -> Document:  # noqa: ANN401 - a node's config
    return {"id": name, "type": "task", "role": role, "max_attempts": attempts, "config": config}


def _approval(name: str, **config: Any) -> Document:  # noqa: ANN401 - a node's config
    return {"id": name, "type": "approval", "role": "ceo", "config": config}


def _other(name: str, node_type: str, **config: Any) -> Document:  # noqa: ANN401 - a node's config
    return {"id": name, "type": node_type, "config": config}


def _workflow(name: str, nodes: list[Document], *edges: str) -> Document:
    """Edges as "a > b" (success), "a ! b" (failure) or "a > b if condition"."""
    read: list[Document] = []
    for edge in edges:
        way, _, condition = edge.partition(" if ")
        source, sign, target = way.split()
        condition = "failure" if sign == "!" else condition
        read.append({"from_node_id": source, "to_node_id": target, "condition": condition})
    return {"kind": "workflow", "name": name, "nodes": nodes, "edges": read}


BUG = _workflow(
    "bug",
    [
        _other("start", "start"),
        _task("investigate", multi_dispatch=True, kind="investigation"),
        _approval("accept", revise_to="investigate"),
        _task("apply"),
        _task(
            "verify",
            "qa-engineer",
            kind="verification",
            on_failure={"rework": "apply", "max": 3},
        ),
        _task("security", on_failure={"rework": "apply", "max": 2}),
        _task("commit", "engineering-manager", attempts=2, kind="commit"),
        _other("done", "end"),
        _other("given_up", "end", status="aborted_stuck"),
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
        _other("start", "start"),
        _task("prepare", attempts=1),
        _other("split", "decision", parallel=True),
        _task("left", on_failure={"rework": "prepare", "max": 2}),
        _task("right", on_failure={"rework": "prepare", "max": 2}),
        _approval("look", quorum=2),
        _other("join", "merge", wait="all"),
        _other("end", "end"),
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
        _other("start", "start"),
        _other("split", "decision", parallel=True),
        _task("quick", attempts=1),
        _task("thorough", attempts=3, multi_dispatch=True),
        _approval("ask", quorum=3),
        _other("join", "merge", wait="any"),
        _task("after", on_failure={"rework": "split", "max": 2}),
        _other("end", "end"),
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
        _other("start", "start"),
        _task("outer", attempts=1),
        _task("inner", attempts=2),
        _task("check", attempts=1, on_failure={"rework": "inner", "max": 3}),
        _task("judge", attempts=1, on_failure={"rework": "outer", "max": 2}),
        _approval("sign", revise_to="inner"),
        _other("end", "end"),
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
        _other("start", "start"),
        _task("write", attempts=2),
        _task("commit", "engineering-manager", attempts=2, kind="commit"),
        _task(
            "verify",
            "qa-engineer",
            kind="verification",
            on_failure={"rework": "write", "max": 3},
        ),
        _approval("sign", revise_to="write", quorum=2, four_eyes=True),
        _other("end", "end"),
    ],
    "start > write",
    "write > commit",
    "commit > verify",
    "verify > sign",
    "sign > end",
)

HELPDESK: Document = {
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

ENGINEERS: Document = {
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

INVOICES: Document = {
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

SHAPES: dict[str, Document] = {
    document["name"]: document
    for document in (BUG, TWINS, RACE, NEST, RELEASE, HELPDESK, ENGINEERS, INVOICES)
}
REVISED = ("nest", "invoices")
"""Shapes in which a person may revise, short enough for a thousand revisions."""
