"""What every declared call has to keep: its arguments are its wire, and its document names it."""

from typing import Any, get_origin

import msgspec
import pytest

from handrail.api.calls import OPERATIONS
from handrail.api.openapi import UNDOCUMENTED, openapi_document
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


def test_the_openapi_document_names_every_operation():
    paths = openapi_document()["paths"]
    named = {call["operationId"] for methods in paths.values() for call in methods.values()}
    assert named == {one.name for one in OPERATIONS if one not in UNDOCUMENTED}
