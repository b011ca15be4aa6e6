"""The OpenAPI document of the API, from its declarations.

python -m handrail.api.openapi        print it

Generators make clients of it, so that names are those of a programming language (`claim_dispatch`,
`RunItemPage`), no two schemas of a union overlap, a default is a valid value, and fields that only
repeat who the token's owner is are left out.
"""

import re
import sys
from collections.abc import Iterator
from datetime import datetime
from http import HTTPStatus
from typing import Any, cast

import msgspec

from handrail.api.admin import ServerCalls
from handrail.api.approvals import LinkAnswer
from handrail.api.calls import CALL_GROUPS, OPERATIONS
from handrail.api.operation import ANY_MEDIA_TYPE, EventStream, Operation
from handrail.api.runs import LAST_EVENT_ID_HEADER, POSITION_CHARS_MAX, StreamEvent
from handrail.api.shared import JSON, PROBLEM, AuthoredBody, ProblemDocument

Schema = dict[str, Any]

COMMON_PROBLEMS = (400, 401, 403, 413, 422, 429, 503)
"""Statuses of the problem documents that every call may answer with."""
AUTHOR_FIELDS = {*AuthoredBody.__struct_fields__, "agent", "agent_id", "author"}
PROBE_PROBLEMS = (401, 429, 503)
FORM, UPLOAD_FORM = "application/x-www-form-urlencoded", "multipart/form-data"
BINARY: Schema = {"type": "string", "contentMediaType": ANY_MEDIA_TYPE}
LAST_EVENT_ID = {
    "name": LAST_EVENT_ID_HEADER,
    "in": "header",
    "description": "Go on after this event.",
    "schema": {"type": "string", "maxLength": POSITION_CHARS_MAX},
}
UNDOCUMENTED = (ServerCalls.get_openapi,)
OPEN_PROBES = (ServerCalls.get_health, ServerCalls.get_readiness)
OPERATION_IDS = {
    "channels.post": "post_channel_message",
    "runs.replay": "replay_runs",
    "events.follow": "follow_events",
    "sessions.create_sign_in": "create_sign_in",
    "sessions.get_me": "get_me",
    "sessions.sign_out": "sign_out",
}
"""Of operations that are not about one of their subject."""
PAGE_NAME = re.compile(r"^(.*/)?Page[\[_](?:dict.*|(\w+?)[\]_])$")
"""What msgspec calls a `Page[RunItem]`."""
DESCRIPTION = """\
Handrail runs teams of AI agents and people so that every run ends, with a reason.

Send a token as `Authorization: Bearer TOKEN`. Every POST takes an `Idempotency-Key`: the same key
and body again returns the first answer. Errors are RFC 9457 problem documents.
"""


def openapi_document() -> dict[str, Any]:
    """Return the document as JSON values."""
    operations = [item for item in OPERATIONS if item not in UNDOCUMENTED]
    types = {ProblemDocument, LinkAnswer} | {
        type_
        for item in operations
        for type_ in (item.body, item.query, item.response)
        if type_ not in (None, bytes, str, StreamEvent)
    }
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    _add_time_formats(components)
    for item in operations:
        _hide_authors(item, components)
    shapes = dict(zip(types, schemas, strict=True))
    queries = {item.query.__name__ for item in operations if item.query is not None}
    paths: dict[str, dict[str, Any]] = {}
    for item in operations:
        paths.setdefault(item.path, {})[item.method.lower()] = _describe(item, shapes, components)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Handrail",
            "version": "1",
            "description": DESCRIPTION,
            "contact": {"name": "Handrail"},
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "tags": [
            {"name": group.subject, "description": group.__doc__ or ""} for group in CALL_GROUPS
        ],
        "paths": paths,
        "components": {
            "schemas": {name: shape for name, shape in components.items() if name not in queries},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    return _simplify(document)


def _simplify(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value with plain names of schemas, unions without overlap, and valid defaults."""
    match value:
        case dict():
            items = cast("dict[str, Any]", value).items()
            schema = {_plain_name(key): _simplify(item) for key, item in items}
            if schema.get("type") == "array" and not schema.get("items"):
                schema["items"] = {}  # of a tuple, that there are no more says `maxItems`
            if schema.get("type") == "object" and "properties" not in schema:
                schema.setdefault("additionalProperties", True)
            return _without_invalid_default(_join_numbers(schema))
        case list():
            return [_simplify(item) for item in cast("list[Any]", value)]
        case str():
            return _plain_name(value)
        case _:
            return value


def _plain_name(name: str) -> str:
    """Return `RunItemPage` for what msgspec calls a `Page[RunItem]`, also in a reference."""
    return PAGE_NAME.sub(lambda found: f"{found[1] or ''}{found[2] or 'Object'}Page", name)


def _join_numbers(schema: Schema) -> Schema:
    """Take an integer or a number for a number, which it is."""
    parts: list[Schema] = schema.get("anyOf", [])
    numbers = [part for part in parts if part.get("type") == "number"]
    if not numbers:
        return schema
    parts = [part for part in parts if part.get("type") != "integer"]
    rest = {key: item for key, item in schema.items() if key != "anyOf"}
    return {**parts[0], **rest} if len(parts) == 1 else {**rest, "anyOf": parts}


def _without_invalid_default(schema: Schema) -> Schema:
    """Leave a default below the minimum out: it means that there is no value."""
    default, minimum = schema.get("default"), schema.get("minimum")
    if isinstance(default, int | float) and isinstance(minimum, int | float) and default < minimum:
        return {key: item for key, item in schema.items() if key != "default"}
    return schema


def _hide_authors(item: Operation[..., Any], components: dict[str, Schema]) -> None:
    """Leave out the fields that may only name the token's owner: no method has them."""
    body = components.get(getattr(item.body, "__name__", ""), {})
    for name in AUTHOR_FIELDS - set(item.signature.parameters):
        body.get("properties", {}).pop(name, None)


def _add_time_formats(components: dict[str, Schema]) -> None:
    """Add the format of times, which msgspec leaves out: a time without a zone has none."""
    for struct in _subclasses(msgspec.Struct):
        for field in msgspec.structs.fields(struct) if struct.__name__ in components else ():
            if field.type in (datetime, datetime | None):
                schema = components[struct.__name__]["properties"][field.encode_name]
                schema.get("anyOf", [schema])[0]["format"] = "date-time"


def _subclasses(struct: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for subclass in struct.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _describe(
    item: Operation[..., Any], shapes: dict[Any, Schema], components: dict[str, Schema]
) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation_id(item),
        "tags": [item.name.partition(".")[0]],
        "summary": item.summary,
        "description": item.doc,
        "parameters": _parameters(item, components),
        "responses": _responses(item, shapes),
    }
    if item.body is not None:
        content = {media_type: {"schema": schema} for media_type, schema in _bodies(item, shapes)}
        described["requestBody"] = {"required": not item.is_body_optional, "content": content}
    return described


def operation_id(item: Operation[..., Any]) -> str:
    """Return a name for the function of a generated client: `dispatches.claim` is
    `claim_dispatch`, `runs.list_steps` is `list_run_steps`."""
    subject, _, name = item.name.partition(".")
    verb, _, rest = name.partition("_")
    singular = re.sub("ie$", "y", re.sub("(?<=ch)es$|s$", "", subject))
    noun = subject if name == "list" else f"{singular}_{rest}".rstrip("_")
    return OPERATION_IDS.get(item.name, f"{verb}_{noun}")


def _bodies(item: Operation[..., Any], shapes: dict[Any, Schema]) -> list[tuple[str, Schema]]:
    if item.body is bytes:
        form = {"type": "object", "properties": {"file": BINARY}, "required": ["file"]}
        return [(UPLOAD_FORM, form), (ANY_MEDIA_TYPE, BINARY)]
    schema = shapes[item.body]
    return [(JSON, schema), *([(FORM, schema)] if item.body is LinkAnswer else [])]


def _parameters(item: Operation[..., Any], components: dict[str, Schema]) -> list[dict[str, Any]]:
    path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in item.path_arguments
    ]
    query: list[dict[str, Any]] = []
    if item.query is not None:
        shape = components[item.query.__name__]
        query = [
            {
                "name": name,
                "in": "query",
                "required": name in shape.get("required", ()),
                "description": _description(schema),
                "schema": schema,
            }
            for name, schema in shape["properties"].items()
        ]
    if isinstance(item, EventStream):
        query.append(LAST_EVENT_ID)
    return path + query


def _description(schema: Schema) -> str:
    """A description may be that of a part: the other part is null."""
    parts = [schema, *schema.get("anyOf", ())]
    return next((part["description"] for part in parts if "description" in part), "")


def _responses(item: Operation[..., Any], shapes: dict[Any, Schema]) -> dict[str, Any]:
    success: dict[str, Any] = {"description": HTTPStatus(item.status).description}
    if item.response is not None:
        success["content"] = {
            media_type: {"schema": _response_schema(item, media_type, shapes)}
            for media_type in item.media_types
        }
    responses: dict[str, Any] = {str(item.status): success}
    if item.empty:
        responses["204"] = {"description": item.empty}
    problem = {"content": {PROBLEM: {"schema": shapes[ProblemDocument]}}}
    common = PROBE_PROBLEMS if item in OPEN_PROBES else COMMON_PROBLEMS
    for status in sorted({*common, *item.problems}):
        phrase = HTTPStatus(status).description or HTTPStatus(status).phrase
        responses[str(status)] = {"description": phrase, **problem}
    if item is ServerCalls.get_readiness:  # it says why, in the same words
        responses["503"]["content"] = success["content"] | problem["content"]
    return responses


def _response_schema(
    item: Operation[..., Any], media_type: str, shapes: dict[Any, Schema]
) -> Schema:
    if item.response is bytes:
        return BINARY
    if media_type != JSON:
        return {"type": "string"}
    schema = shapes[item.response]
    if not item.empty:
        return schema
    (schema,) = (part for part in schema["anyOf"] if part != {"type": "null"})  # that is the 204
    return schema


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(openapi_document()))
