"""Binds handlers to the operations of the API: `@serves(BeadCalls.create)`.

A handler is a coroutine function. By name it gets the arguments of the path, `data` (the body) and
`query`, decoded strictly into the types of the operation; the `request`, the `caller`, and any of
SERVICES. What it returns is the response's body, or the whole response. A handler that does not
fit its operation fails at import.

No body is decoded before the caller is authenticated.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast

import msgspec
from litestar import Request, Response, route
from litestar.handlers import HTTPRouteHandler
from litestar.types import Empty

from handrail.api.access import OPEN
from handrail.api.operation import Operation, Repeat
from handrail.api.shared import JSON, Document, FieldError
from handrail.kernel.definition.reader import decode_document
from handrail.kernel.validation_messages import explain_validation_error
from handrail.server.problems import HTTPProblemError, field_errors

R = TypeVar("R")
Handler = Callable[..., Awaitable[R | Response[Any]]]

SCOPE_SERVER = "handrail.server"
"""Scope key of the `ServerApp` that handles the request."""
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
OPT_ACCESS, OPT_REPEAT = "access", "repeat"
"""Keys of a route's `opt`, for the middleware."""
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
        self.names = frozenset(parameters)
        self.services = tuple(name for name in SERVICES if name in self.names)
        path_names = {part for path in paths for part in re.findall(r"{(\w+)}", path)}
        self.path_arguments = tuple(name for name in path_names if name in self.names)
        unknown = self.names - {"request", "caller", "data", "query", *SERVICES, *path_names}
        types = {
            name: parameters[name].annotation for name in ("data", "query") if name in self.names
        }
        declared = {"data": operation.body, "query": operation.query} if operation else {}
        if unknown or any(types[name] != declared[name] for name in types):
            raise TypeError(f"{handle.__name__} does not fit {operation}: {unknown or types}")
        if operation is not None and operation.query is not None and "query" not in self.names:
            raise TypeError(f"{handle.__name__} takes no query, and {operation} has one")

    def route_handler(self) -> HTTPRouteHandler:
        """Return the handler for Litestar, which sees a request and a response only."""

        async def handle(request: Request[Any, Any, Any]) -> Response[Any]:
            return await self._respond(request)

        operation = self.operation
        body_bytes_max = operation.body_bytes_max if operation is not None else None
        return route(
            [path.replace("}", ":str}") for path in self.paths],
            http_method=[cast("Any", self.method)],
            status_code=200,  # every response has its own
            opt={
                OPT_ACCESS: operation.access if operation is not None else OPEN,
                OPT_REPEAT: operation.repeat if operation is not None else Repeat.STORED,
            },
            request_max_body_size=body_bytes_max or Empty,
        )(handle)

    async def _respond(self, request: Request[Any, Any, Any]) -> Response[Any]:
        server = cast("dict[str, Any]", request.scope)[SCOPE_SERVER]
        arguments = {name: getattr(server, name) for name in self.services}
        for name in self.path_arguments:
            arguments[name] = request.path_params[name]
        if "request" in self.names:
            arguments["request"] = request
        if "caller" in self.names:
            arguments["caller"] = request.scope["user"]
        operation = self.operation
        if operation is not None and "query" in self.names:
            arguments["query"] = _decode_query(request.query_params, operation.query)
        if operation is not None and "data" in self.names:
            arguments["data"] = _decode_data(await request.body(), operation)
        result = await self.handle(**arguments)
        if isinstance(result, Response):
            return cast("Response[Any]", result)
        assert operation is not None, "a page returns a response"
        body = None if result is None else msgspec.json.encode(result)
        return Response(body, status_code=operation.status, media_type=JSON)


def serves(operation: Operation[..., R]) -> Callable[[Handler[R]], BoundHandler[R]]:
    """Bind a handler to its operation."""
    return lambda handle: BoundHandler(handle, operation.method, (operation.path,), operation)


def serves_page(
    method: str, *paths: str
) -> Callable[[Handler[Response[Any]]], BoundHandler[Response[Any]]]:
    """Bind a handler to pages that are open to everybody, and no part of the API."""
    return lambda handle: BoundHandler(handle, method, paths, None)


def _decode_query(parameters: Mapping[str, str], query_type: Any) -> Any:  # noqa: ANN401 - of that type
    names = query_type.__struct_fields__
    values = {name: parameters[name] for name in names if name in parameters}
    try:
        return msgspec.convert(values, query_type, strict=False)
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
    detail = f"the request cannot be read: {path}: {message}"
    return HTTPProblemError(
        422, "bad_parameter", detail, errors=(FieldError("bad_parameter", path, message),)
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
                400, "bad_json", problems[0].message, errors=field_errors(tuple(problems))
            )
        if not isinstance(document, dict):
            raise _bad_body(f"Expected `object`, got `{type(document).__name__}`")
        return cast("Document", document)
    try:
        return _decoder(body_type).decode(raw)
    except msgspec.ValidationError as error:
        raise _bad_body(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"the body is no JSON: {error}; send one JSON object"
        raise HTTPProblemError(400, "bad_json", message) from error


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
