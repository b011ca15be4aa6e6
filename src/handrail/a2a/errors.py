"""How a call is refused: with the protocol's codes, and a message that says what to do."""

from typing import Any

from handrail.client.errors import (
    AccessDeniedError,
    ClientError,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    UnreachableError,
)
from handrail.kernel.decision import Value

RPC_CODES = {
    "TASK_NOT_FOUND": -32001,
    "TASK_NOT_CANCELABLE": -32002,
    "PUSH_NOTIFICATION_NOT_SUPPORTED": -32003,
    "UNSUPPORTED_OPERATION": -32004,
    "CONTENT_TYPE_NOT_SUPPORTED": -32005,
    "VERSION_NOT_SUPPORTED": -32009,
    "INVALID_REQUEST": -32600,
    "METHOD_NOT_FOUND": -32601,
    "INVALID_PARAMS": -32602,
    "INTERNAL_ERROR": -32603,
    "PARSE_ERROR": -32700,
}
"""Reason -> code of JSON-RPC."""
REASON_BY_ERROR: dict[type[ClientError], str] = {
    NotFoundError: "TASK_NOT_FOUND",
    ConflictError: "UNSUPPORTED_OPERATION",
    AccessDeniedError: "UNSUPPORTED_OPERATION",
    InvalidRequestError: "INVALID_PARAMS",
}
"""The reason for each refusal of the server."""
ERROR_INFO_TYPE = "type.googleapis.com/google.rpc.ErrorInfo"
ERROR_DOMAIN = "a2a-protocol.org"
FIELD_ERRORS_MAX = 3


class JsonRpcError(Exception):
    """The response to a refused call."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class HttpStatusError(Exception):
    """The response to a caller that is not admitted, or to an unknown path: `status` is that of
    HTTP.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class JsonRpcErrorResponse(Value):
    """A JSON-RPC error response."""

    id: str | int | None
    error: dict[str, Any]
    jsonrpc: str


def error_response(request_id: str | int | None, rpc_error: JsonRpcError) -> JsonRpcErrorResponse:
    detail = {"@type": ERROR_INFO_TYPE, "reason": rpc_error.reason, "domain": ERROR_DOMAIN}
    error = {"code": RPC_CODES[rpc_error.reason], "message": str(rpc_error), "data": [detail]}
    return JsonRpcErrorResponse(jsonrpc="2.0", id=request_id, error=error)


def translate_error(error: ClientError) -> JsonRpcError | HttpStatusError:
    """Translate the server's refusal for the caller."""
    if error.status == 401:
        return HttpStatusError(401, error.detail or str(error))
    if isinstance(error, UnreachableError) or error.status >= 500:
        return HttpStatusError(
            503, "no Handrail server answers at the moment; try again in a while"
        )
    if error.status == 429:
        return HttpStatusError(429, "too many calls; try again in some seconds")
    field_errors = [str(field_error) for field_error in error.errors[:FIELD_ERRORS_MAX]]
    message = "; ".join([error.detail or error.title, *field_errors])
    return JsonRpcError(REASON_BY_ERROR.get(type(error), "INTERNAL_ERROR"), message)
