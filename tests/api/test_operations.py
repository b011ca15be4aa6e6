"""What every declared call has to keep: its arguments are its wire, and its document names it."""

import re
from collections.abc import Iterator
from typing import Any, get_origin

import msgspec
import pytest

from handrail.api.calls import OPERATIONS
from handrail.api.openapi import UNDOCUMENTED, openapi_document, operation_id
from handrail.api.operation import Operation
from handrail.api.shared import AuthoredBody, Document

AUTHORS = {*AuthoredBody.__struct_fields__, "agent", "author"}
"""Names of authors, which come from the token: no argument of a client."""
NOT_ARGUMENTS = {
    "channels.post": {"agent_id"},
    "dispatches.heartbeat": {"agent_id", "reason", "usage"},
    "dispatches.release": {"agent_id"},
}
"""Fields that an operation shares with others, or that name an author."""
SPECIAL = {"key", "content_type"}


def fields(operation: Operation[..., Any]) -> set[str]:
    """The fields of the query and the body that a client can set."""
    types = [operation.query, None if operation.whole else operation.body]
    names = {name for one in types if one is not None for name in one.__struct_fields__}
    unset = AUTHORS - set(operation.signature.parameters)
    return names - unset - NOT_ARGUMENTS.get(operation.name, set())


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_every_argument_has_its_place_and_every_field_its_argument(operation: Operation[..., Any]):
    arguments = set(operation.signature.parameters) - SPECIAL
    assert set(operation.path_arguments) <= arguments
    rest = arguments - set(operation.path_arguments) - {operation.whole}
    body = operation.body if isinstance(operation.body, type) else None
    added = set(getattr(body, "__struct_fields__", ())) if operation.whole else set[str]()
    assert fields(operation) <= rest <= fields(operation) | added


def test_names_calls_and_structs_occur_once():
    assert len({one.name for one in OPERATIONS}) == len(OPERATIONS)
    assert len({(one.method, one.path) for one in OPERATIONS}) == len(OPERATIONS)


def test_only_a_post_may_be_kept_from_repetition_and_only_a_get_is_without_a_body():
    for one in OPERATIONS:
        assert one.method == "POST" or one.repeat.value == "stored", one.name
        assert one.body is None or one.method in ("POST", "PUT", "PATCH"), one.name
        assert (
            one.body in (None, bytes)
            or get_origin(one.body)
            or issubclass(one.body, msgspec.Struct)
        ), one.name


def test_a_document_is_sent_as_it_is():
    document: Document = {"name": "x", "nodes": []}
    create = next(one for one in OPERATIONS if one.name == "definitions.create")
    assert create.call(document).body == msgspec.json.encode(document)


# What generators make clients of


DOCUMENT = openapi_document()
CALLS = [call for methods in DOCUMENT["paths"].values() for call in methods.values()]
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]


def values(value: Any) -> Iterator[Any]:
    """The value and all in it."""
    yield value
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from values(inner)


def test_the_document_names_every_operation_as_a_function_under_a_tag():
    names = [call["operationId"] for call in CALLS]
    assert sorted(names) == sorted(
        {operation_id(one) for one in OPERATIONS if one not in UNDOCUMENTED}
    )
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)+", name) for name in names)
    assert {"claim_dispatch", "list_beads", "list_run_steps", "get_me", "add_bead_file"} <= {*names}
    tags = {tag["name"]: tag["description"] for tag in DOCUMENT["tags"]}
    assert all(tags.values())
    assert {tag for call in CALLS for tag in call["tags"]} == set(tags)


def test_every_schema_of_the_document_has_one_name_that_is_an_identifier():
    for name, schema in SCHEMAS.items():
        assert name.isidentifier()
        assert schema.get("title", name) == name
    used = {value["$ref"].rpartition("/")[2] for value in values(DOCUMENT) if is_reference(value)}
    assert used == set(SCHEMAS)


def is_reference(value: Any) -> bool:
    return isinstance(value, dict) and "$ref" in value


def test_no_two_parts_of_a_union_overlap():
    for union in [value["anyOf"] for value in values(DOCUMENT) if has(value, "anyOf")]:
        kinds = [part.get("type", part.get("$ref")) for part in union]
        assert len(kinds) == len(set(kinds)), union
        assert not {"integer", "number"} <= {*kinds}, union
    assert not [value for value in values(DOCUMENT) if has(value, "oneOf")]


def has(value: Any, key: str) -> bool:
    return isinstance(value, dict) and key in value


def test_no_default_is_below_its_minimum():
    for value in values(DOCUMENT):
        if has(value, "default") and has(value, "minimum"):
            assert value["default"] >= value["minimum"], value


def test_no_request_has_a_field_that_could_only_name_the_tokens_owner():
    for operation in OPERATIONS:
        authors = set(AuthoredBody.__struct_fields__) | {"author"}
        if isinstance(operation.body, type) and operation.body.__name__ in SCHEMAS:
            assert not authors & set(SCHEMAS[operation.body.__name__]["properties"]), operation
    for name in ("DispatchResult", "HeldDispatch", "NewMessage"):
        assert "agent_id" not in SCHEMAS[name]["properties"]
    for name in ("ClaimRequest", "TurnControl"):
        assert "agent_id" in SCHEMAS[name]["properties"]
