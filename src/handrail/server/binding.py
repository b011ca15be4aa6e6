"""Binds operations of the API to what serves them: a handler, or a method of the engine.

A handler (`@serves(BeadCalls.create)`) is a coroutine function. By name it gets the arguments of
the path, `data` (the body) and `query`, decoded strictly into the types of the operation; the
`request`, the `caller`, the idempotency `key`, and any of SERVICES. What it returns is the
response's body, or the whole response. A handler that does not fit its operation fails at import.

An operation that is a method of the engine and nothing more needs no handler (`forward`).

No body is decoded before the caller is authenticated; one that names another author goes no
further.
"""

import inspect
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any, Generic, TypeVar, cast, get_origin

import msgspec
from litestar import Request, Response, route
from litestar.handlers import HTTPRouteHandler
from litestar.types import Empty

from handrail.api.operation import OPEN, Operation, Repeat
from handrail.api.shared import JSON, AuthoredBody, Document, FieldError
from handrail.engine.engine import Engine
from handrail.kernel.definition.reader import decode_document
from handrail.kernel.validation_messages import explain_validation_error
from handrail.server.access import OPT_ACCESS, SCOPE_SERVER, check_author
from handrail.server.problems import HTTPProblemError, field_errors
from handrail.views.view_types import Page

R = TypeVar("R")
HTTPRequest = Request[Any, Any, Any]
Handler = Callable[..., Awaitable[R | Response[Any]]]

SERVICES = (
    "engine",
    "long_polls",
    "credentials",
    "settings",
    "metrics",
    "audit_verifier",
    "webhook_sender",
    "web_app_files",
)
"""Attributes of `ServerApp` that handlers may take as arguments."""
REQUEST_ARGUMENTS = ("request", "caller", "key", "data", "query")
OPT_REPEAT = "repeat"
"""Key of a route's `opt`, for the middleware."""
KEY_HEADER = "idempotency-key"
_PATH_PATTERN = re.compile(r" - at `(?:key in )?(.+)`$")


class BoundHandler(Generic[R]):
    """A handler with its operation; a page of the web app has none."""

    def __init__(
        self,
        handle: Handler[R],
        method: str,
        paths: tuple[str, ...],
        operation: Operation[..., R] | None,
    ) -> None:
        self.handle, self.method, self.paths, self.operation = handle, method, paths, operation
        parameters = inspect.signature(handle).parameters
        self.names = tuple(parameters)
        path_names = {part for path in paths for part in re.findall(r"{(\w+)}", path)}
        unknown = {*parameters} - {*REQUEST_ARGUMENTS, *SERVICES, *path_names}
        types = {
            name: parameters[name].annotation for name in self.names if name in ("data", "query")
        }
        declared = {"data": operation.body, "query": operation.query} if operation else {}
        if unknown or any(types[name] != declared[name] for name in types):
            raise TypeError(f"{handle.__name__} does not fit {operation}: {unknown or types}")

    def route_handler(self) -> HTTPRouteHandler:
        """Return the handler for Litestar, which sees a request and a response only."""

        async def handle(request: HTTPRequest) -> Response[Any]:
            return await self._respond(request)

        operation = self.operation
        return route(
            [path.replace("}", ":str}") for path in self.paths],
            http_method=[cast("Any", self.method)],
            status_code=200,  # every response has its own
            opt={
                OPT_ACCESS: operation.access if operation is not None else OPEN,
                OPT_REPEAT: operation.repeat if operation is not None else Repeat.STORED,
            },
            request_max_body_size=(operation and operation.body_bytes_max) or Empty,
        )(handle)

    async def _respond(self, request: HTTPRequest) -> Response[Any]:
        server = cast("dict[str, Any]", request.scope)[SCOPE_SERVER]
        operation, caller = self.operation, request.scope["user"]
        arguments: dict[str, Any] = {
            **request.path_params,
            "request": request,
            "caller": caller,
            "key": request.headers.get(KEY_HEADER, ""),
        }
        if operation is not None and "query" in self.names:
            arguments["query"] = decode_query(request, operation)
        if operation is not None and "data" in self.names:
            arguments["data"] = data = _decode_data(await request.body(), operation)
            if isinstance(data, AuthoredBody):
                await check_author(server.engine, caller, data, request.path_params)
        result = await self.handle(
            **{
                name: arguments[name] if name in arguments else getattr(server, name)
                for name in self.names
            }
        )
        if isinstance(result, Response):
            return cast("Response[Any]", result)
        assert operation is not None, "a page returns a response"
        body = None if result is None else msgspec.json.encode(result)
        return Response(body, status_code=operation.status, media_type=JSON)


def serves(operation: Operation[..., R]) -> Callable[[Handler[R]], BoundHandler[R]]:
    """Bind a handler to its operation."""

    def bind(handle: Handler[R]) -> BoundHandler[R]:
        bound = BoundHandler(handle, operation.method, (operation.path,), operation)
        if operation.query is not None and "query" not in bound.names:
            raise TypeError(f"{handle.__name__} takes no query, and {operation} has one")
        return bound

    return bind


def serves_page(
    method: str, *paths: str
) -> Callable[[Handler[Response[Any]]], BoundHandler[Response[Any]]]:
    """Bind a handler to pages that are open to everybody, and no part of the API."""
    return lambda handle: BoundHandler(handle, method, paths, None)


def forward(operation: Operation[..., Any], method: str) -> BoundHandler[Any]:
    """Bind an operation to a method of the engine (`"beads.get"`), which takes the arguments of
    the path in order and the fields of the query by name. If it returns all items of a list, they
    are one page."""
    find_method = attrgetter(method)

    async def call_engine(request: HTTPRequest, engine: Engine) -> Any:  # noqa: ANN401 - its response
        path = (request.path_params[name] for name in operation.path_arguments)
        query = decode_query(request, operation)
        fields = msgspec.structs.asdict(query) if query is not None else {}
        result: Any = await find_method(engine)(*path, **fields)
        if get_origin(operation.response) is Page and isinstance(result, list | tuple):
            return Page(items=tuple(cast("list[object]", result)))
        return cast("object", result)

    return BoundHandler(call_engine, operation.method, (operation.path,), operation)


def decode_query(request: HTTPRequest, operation: Operation[..., Any]) -> Any:  # noqa: ANN401 - of its type
    if operation.query is None:
        return None
    parameters = request.query_params
    values = {
        name: parameters[name] for name in operation.query.__struct_fields__ if name in parameters
    }
    try:
        return msgspec.convert(values, operation.query, strict=False)
    except msgspec.ValidationError as error:
        path, message = _split_error(str(error))
        raise _bad_parameter(path.removeprefix("$."), message) from error


def _decode_data(raw: bytes, operation: Operation[..., Any]) -> Any:  # noqa: ANN401 - of its type
    if raw:
        return decode_body(raw, operation.body)
    if operation.is_body_optional:
        return operation.body()
    raise _bad_parameter("$", "the body is missing")


def _bad_parameter(path: str, message: str) -> HTTPProblemError:
    return HTTPProblemError(
        422,
        "bad_parameter",
        f"the request cannot be read: {path}: {message}",
        errors=(FieldError("bad_parameter", path, message),),
    )


@lru_cache(maxsize=200)  # one per body type of a handler
def _decoder(body_type: Any) -> "msgspec.json.Decoder[Any]":  # noqa: ANN401 - a type
    return msgspec.json.Decoder(body_type)


def decode_body(raw: bytes, body_type: Any) -> Any:  # noqa: ANN401 - of the wanted type
    """Decode a body to its type: "5" is not 5. A `Document` is decoded like a definition's."""
    if body_type == Document:
        document, problems = decode_document(raw)
        if problems:
            raise HTTPProblemError(
                400, "bad_json", problems[0].message, errors=field_errors(problems)
            )
        if not isinstance(document, dict):
            raise _bad_body(f"Expected `object`, got `{type(document).__name__}`")
        return cast("Document", document)
    try:
        return _decoder(body_type).decode(raw)
    except msgspec.ValidationError as error:
        raise _bad_body(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPProblemError(
            400, "bad_json", f"the request body is not valid JSON: {error}", "send one JSON object"
        ) from error


def _bad_body(reason: str) -> HTTPProblemError:
    path, message = _split_error(reason)
    message = explain_validation_error(message)
    field_error = FieldError(
        "bad_value", path, message, "see /api/v1/openapi.json for what it takes"
    )
    return HTTPProblemError(
        422, "bad_body", f"the body cannot be used: {path}: {message}", errors=(field_error,)
    )


def _split_error(reason: str) -> tuple[str, str]:
    """Return the path and the message of msgspec's error."""
    match = _PATH_PATTERN.search(reason)
    return (match.group(1) if match else "$"), _PATH_PATTERN.sub("", reason)


def parse_time(name: str, text: str | None) -> datetime | None:
    """Parse a time of the query; without a zone it is in UTC."""
    if text is None:
        return None
    try:
        time = msgspec.convert(text, datetime)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (msgspec.ValidationError, OverflowError) as error:
        raise HTTPProblemError(
            422,
            "bad_parameter",
            f"{name} is '{text[:40]}', which is not a point in time",
            "write it as 2026-01-31T12:00:00Z",
            field=name,
        ) from error
