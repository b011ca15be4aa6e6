"""The context of a call: its credential, its agent, and its parameters, which are hostile until
they have passed here.
"""

from typing import NamedTuple, TypeVar

import msgspec

from handrail.a2a.errors import JsonRpcError
from handrail.client.clients import AsyncClient
from handrail.kernel.validation_messages import explain_validation_error

T = TypeVar("T")

NAME_CHARS_MAX = 200


class CallContext(NamedTuple):
    """The caller's client, and the called agent: a definition, or "" for that of all of them."""

    client: AsyncClient
    definition: str
    url: str


def decode_params(raw: bytes, params_type: type[T]) -> T:
    """Decode the parameters of a call, or raise what is wrong with them in words."""
    try:
        return msgspec.json.decode(raw, type=params_type)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        field = path.rstrip("`").lstrip(".") or "the parameters"
        raise JsonRpcError(
            "INVALID_PARAMS", f"{field}: {explain_validation_error(message)}; see A2A 1.0"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise JsonRpcError(
            "PARSE_ERROR", f"the request cannot be read: {error}; send JSON"
        ) from None


def check_task_id(value: str) -> str:
    """Check a task's id; an impossible one is not looked up."""
    if not check_name(value, "id") or value in (".", ".."):
        raise JsonRpcError(
            "TASK_NOT_FOUND", f"there is no task '{value}'; take an id that was given here"
        )
    return value


def check_name(value: str, field: str) -> str:
    if len(value) > NAME_CHARS_MAX or "\0" in value:
        raise JsonRpcError(
            "INVALID_PARAMS", f"{field} has at most {NAME_CHARS_MAX} characters; take a shorter one"
        )
    return value
