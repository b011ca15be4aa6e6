"""What a call asks: whose it is, of which agent, and its parameters, which are hostile until they
have passed here."""

from typing import NamedTuple, TypeVar

import msgspec

from handrail.a2a.refusals import No
from handrail.client.clients import AsyncClient
from handrail.kernel.misfit import in_words

T = TypeVar("T")

NAME_MAX = 200


class Asking(NamedTuple):
    """Whose call it is, and of which agent: a definition, or "" for that of all of them."""

    client: AsyncClient
    definition: str
    url: str


def read(raw: bytes, shape: type[T]) -> T:
    """The parameters of a call, or what is wrong with them in words."""
    try:
        return msgspec.json.decode(raw, type=shape)
    except msgspec.ValidationError as error:
        told, _, place = str(error).partition(" - at `$")
        where = place.rstrip("`").lstrip(".") or "the parameters"
        raise No("INVALID_PARAMS", f"{where}: {in_words(told)}; see A2A 1.0") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise No("PARSE_ERROR", f"the request cannot be read: {error}; send JSON") from None


def task_id(given: str) -> str:
    """A task's id; one that cannot be is not asked for."""
    if not name(given, "id") or given in (".", ".."):
        raise No("TASK_NOT_FOUND", f"there is no task '{given}'; take an id that was given here")
    return given


def name(given: str, what: str) -> str:
    if len(given) > NAME_MAX or "\0" in given:
        raise No("INVALID_PARAMS", f"{what} has at most {NAME_MAX} characters; take a shorter one")
    return given
