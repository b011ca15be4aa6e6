"""How a call is refused: with the protocol's codes, and words that say what to do."""

from typing import Any

from handrail.client.errors import ClientError, Conflict, Denied, Invalid, NotFound, Unreachable
from handrail.kernel.decision import Value

REASONS = {
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
BY_ERROR: dict[type[ClientError], str] = {
    NotFound: "TASK_NOT_FOUND",
    Conflict: "UNSUPPORTED_OPERATION",
    Denied: "UNSUPPORTED_OPERATION",
    Invalid: "INVALID_PARAMS",
}
"""What a refusal of the server is called here."""
DETAIL = "type.googleapis.com/google.rpc.ErrorInfo"
DOMAIN = "a2a-protocol.org"
ERRORS_TOLD = 3


class No(Exception):  # noqa: N818 - an answer, not a mistake of the program
    """The answer to a call that is refused."""

    def __init__(self, reason: str, told: str) -> None:
        super().__init__(told)
        self.reason = reason


class Outside(Exception):  # noqa: N818 - as above
    """The answer to whoever is not let in, or comes to nobody: `status` is that of HTTP."""

    def __init__(self, status: int, told: str) -> None:
        super().__init__(told)
        self.status = status


class Answer(Value):
    """A JSON-RPC answer that says no."""

    id: str | int | None
    error: dict[str, Any]
    jsonrpc: str


def answer(call: str | int | None, no: No) -> Answer:
    detail = {"@type": DETAIL, "reason": no.reason, "domain": DOMAIN}
    error = {"code": REASONS[no.reason], "message": str(no), "data": [detail]}
    return Answer(jsonrpc="2.0", id=call, error=error)


def refused(error: ClientError) -> No | Outside:
    """What the server said no to, for whoever called here."""
    if error.status == 401:
        return Outside(401, error.detail or str(error))
    if isinstance(error, Unreachable) or error.status >= 500:
        return Outside(503, "no Handrail server answers at the moment; try again in a while")
    if error.status == 429:
        return Outside(429, "too many calls; try again in some seconds")
    places = [str(one) for one in error.errors[:ERRORS_TOLD]]
    told = "; ".join([error.detail or error.title, *places])
    return No(BY_ERROR.get(type(error), "INTERNAL_ERROR"), told)
