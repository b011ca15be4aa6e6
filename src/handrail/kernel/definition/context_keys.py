"""The keys of a bead's context that a definition declares, and who may write them.

    metadata:
      context:
        severity: {type: integer, writable_by: ceo}

A list of names says nothing more of them. A key that decides whether a person is asked should not
be writable by those who would rather not ask: of an agent's data a reserved key is left out, and a
person below the level may neither file nor change it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, cast

import msgspec

from handrail.kernel.decision import Refusal, Value, prepare_types, refuse
from handrail.kernel.definition.graph import Graph
from handrail.kernel.definition.model import PERSON_LEVELS, DocumentProblem, NodeType, Text

APPROVALS_EXAMINED_MAX = 50
"""Approvals of a workflow of which the conditions before them are examined."""
Writer = Literal["agent", "operator", "ceo"]


class ContextKey(Value, forbid_unknown_fields=True):
    """What a definition says of a key; only `writable_by` has an effect on runs."""

    type: Literal["string", "number", "integer", "boolean", "object", "array"] | None = None
    title: Text = ""
    description: Text = ""
    required: bool = False
    default: Any = None
    examples: tuple[Any, ...] = ()
    enum: tuple[Any, ...] = ()
    writable_by: Writer = "agent"


prepare_types(ContextKey)


def declared_names(metadata: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the keys that conditions may name; None where the definition declares none."""
    declared: object = metadata.get("context")
    if not isinstance(declared, list | dict):
        return None
    return frozenset(str(name) for name in cast("Iterable[object]", declared))


def reserved_keys(metadata: Mapping[str, Any]) -> dict[str, Writer]:
    """Return the keys that agents may not write, each with the least level of people who may."""
    keys = {name: _read_key(described) for name, described in _described_keys(metadata)}
    return {
        name: key.writable_by
        for name, key in keys.items()
        if isinstance(key, ContextKey) and key.writable_by != "agent"
    }


def check_context_keys(metadata: Mapping[str, Any]) -> Iterator[DocumentProblem]:
    """Check what the definition says of each key."""
    for name, description in _described_keys(metadata):
        key = _read_key(description)
        if isinstance(key, str):
            yield DocumentProblem(
                code="bad_context_key",
                path=f"$.metadata.context.{name}",
                message=f"the context key '{name}' is described wrongly: {key}",
                hint="say for example {type: integer, writable_by: ceo}",
            )


def _described_keys(metadata: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    declared: object = metadata.get("context")
    if isinstance(declared, dict):
        for name, description in cast("dict[object, object]", declared).items():
            if isinstance(description, dict):
                yield str(name), description


def _read_key(description: object) -> ContextKey | str:
    """Return the key, or what is wrong with its description."""
    try:
        return msgspec.convert(description, ContextKey)
    except msgspec.ValidationError as error:
        return str(error)


def refuse_reserved(
    reserved: Mapping[str, Writer], names: Iterable[str], by: str, role: str
) -> Refusal | None:
    """Refuse a person's write to keys that are reserved for a higher level."""
    level = PERSON_LEVELS.get(role, -1)
    above = [name for name in names if level < PERSON_LEVELS.get(reserved.get(name, ""), -1)]
    if not above:
        return None
    name = above[0]
    return refuse(
        "key_reserved",
        f"{by} ({role}) may not write '{name}' of the bead's context",
        f"leave it out; the definition reserves it for the role {reserved[name]} or above",
    )


def steering_warnings(
    graph: Graph, metadata: Mapping[str, Any], names_at: Callable[[str], Iterable[str]]
) -> Iterator[DocumentProblem]:
    """Warn where agents may write what decides whether a person is asked. `names_at`: what the
    conditions behind a node name.
    """
    reserved = reserved_keys(metadata)
    approvals = [i for i in graph.order if graph.nodes[i].type is NodeType.APPROVAL]
    for approval in approvals[:APPROVALS_EXAMINED_MAX]:
        steering: dict[str, None] = {}
        for i in _choices_about(graph, approval):
            steering |= dict.fromkeys(n for n in names_at(graph.nodes[i].id) if n not in reserved)
        if steering:
            node, keys = graph.nodes[approval], ", ".join(f"'{name}'" for name in sorted(steering))
            yield DocumentProblem(
                code="steerable_approval",
                path=f"$.nodes[{approval}]",
                message=f"whether '{node.id}' is asked depends on {keys}, which agents may write",
                hint="reserve what decides: metadata.context: {KEY: {writable_by: ceo}}",
            )


def _choices_about(graph: Graph, approval: int) -> Iterator[int]:
    """Yield the nodes whose outgoing edges decide whether the run comes to the approval."""
    leading = graph.nodes_before(approval)
    for i in sorted(leading):
        if any(link.node != approval and link.node not in leading for link in graph.succ[i]):
            yield i
