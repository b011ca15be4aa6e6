"""Every call that a test makes is checked against the OpenAPI document: what the server took has to
be valid by it, query parameters too, and so has what it answered.
"""

import json
import re
import sys
from functools import cache
from typing import Any

import httpx
from jsonschema_rs import Draft202012Validator

from handrail.api.openapi import openapi_document
from handrail.api.shared import EVENT_STREAM, JSON, PROBLEM

UNDECLARED = {404, 405, 500}
"""Statuses of paths that lead nowhere, and of faults that tests cause."""


async def check_against_document(response: httpx.Response) -> None:
    """A hook of httpx: raise AssertionError if the document says otherwise."""
    request = response.request
    described = _find_operation(request.method, request.url.path)
    if described is None:
        return
    call, where = described, f"{request.method} {request.url} {response.status_code}"
    if response.status_code not in UNDECLARED:
        assert str(response.status_code) in call["responses"], f"{where}: an unknown status"
    if response.is_success:
        _check_query(call, request, where)
        _check_request_body(call, request, where)
    await _check_response_body(call, response, where)


@cache
def _document() -> dict[str, Any]:
    return openapi_document()


@cache
def _paths() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    """The most exact first: `/executions/summaries` is no id."""
    paths = sorted(_document()["paths"].items(), key=lambda item: item[0].count("{"))
    return [(re.compile(re.sub(r"\\?\{[^}]*\}", "[^/]+", path)), calls) for path, calls in paths]


def _find_operation(method: str, path: str) -> dict[str, Any] | None:
    found = next((calls for pattern, calls in _paths() if pattern.fullmatch(path)), {})
    return found.get(method.lower())


@cache
def _validator(schema: str) -> Draft202012Validator:
    components = {"components": _document()["components"]}
    return Draft202012Validator({**json.loads(schema), **components}, validate_formats=True)


def _check(schema: dict[str, Any], value: object, where: str) -> None:
    for error in _validator(json.dumps(schema)).iter_errors(value):
        raise AssertionError(f"{where}: by the document {error.message[:400]}")


def _check_query(call: dict[str, Any], request: httpx.Request, where: str) -> None:
    declared = {one["name"]: one["schema"] for one in call["parameters"] if one["in"] == "query"}
    for name, text in request.url.params.multi_items():
        assert name in declared, f"{where}: the query parameter {name} is not declared"
        validator = _validator(json.dumps(declared[name]))
        readings = (text, *_other_readings(text))
        assert any(map(validator.is_valid, readings)), f"{where}: {name} is not valid"


def _other_readings(text: str) -> list[object]:
    """The server takes more than it says: a time without a zone is in UTC, infinity a number."""
    if text == "inf":
        return [sys.float_info.max]
    try:
        return [json.loads(text)]
    except ValueError:
        return [f"{text}Z"]


def _check_request_body(call: dict[str, Any], request: httpx.Request, where: str) -> None:
    content = call.get("requestBody", {}).get("content", {})
    media_type = request.headers.get("content-type", JSON).partition(";")[0]
    if media_type == JSON and JSON in content and request.content:
        _check(content[JSON]["schema"], json.loads(request.content), f"{where}: the request")


async def _check_response_body(call: dict[str, Any], response: httpx.Response, where: str) -> None:
    media_type = response.headers.get("content-type", "").partition(";")[0]
    described = call["responses"].get(str(response.status_code), {}).get("content", {})
    if media_type == EVENT_STREAM or media_type not in (JSON, PROBLEM):
        return
    body = json.loads(await response.aread())
    assert media_type in described or not response.is_success, f"{where}: {media_type}"
    if media_type in described:
        _check(described[media_type]["schema"], body, f"{where}: the answer")
