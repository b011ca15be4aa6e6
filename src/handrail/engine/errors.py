"""The engine's exceptions, beside the store's, and how errors read."""

from collections.abc import Sequence
from typing import NoReturn, TypeVar

from handrail.kernel.decision import Refusal
from handrail.kernel.definition.model import DocumentProblem
from handrail.store.rows import StoreError

T = TypeVar("T")


class RefusedError(Exception):
    """A command was refused. `refusal` says why and what to do."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"{refusal.message}; {refusal.hint}" if refusal.hint else refusal.message)
        self.refusal = refusal


def refuse(code: str, message: str, hint: str = "") -> NoReturn:
    raise RefusedError(Refusal(code=code, message=message, hint=hint))


def refuse_unknown(code: str, subject_id: str, hint: str = "") -> NoReturn:
    """Refuse an id that names nothing; `code` is `unknown_NOUN`."""
    noun = code.removeprefix("unknown_")
    refuse(code, f"there is no {noun} '{subject_id[:200]}'", hint or f"look at the list of {noun}s")


def require_known(subject: T | None, code: str, subject_id: str, hint: str = "") -> T:
    """Return the subject that was looked up by its id. Refused if there is none: `code`."""
    if subject is None:
        refuse_unknown(code, subject_id, hint)
    return subject


class InvalidDefinitionError(Exception):
    """A document is not a valid definition. `problems` are all of them, each with its place."""

    def __init__(self, problems: Sequence[DocumentProblem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


class UnknownDefinitionError(LookupError):
    """No definition has that id and version, or it is no longer valid."""


class DefinitionAlteredError(UnknownDefinitionError):
    """A version is not the one that was stored."""


class EngineBusyError(StoreError):
    """The engine's command queue is full."""


class EventsGoneError(StoreError):
    """Events are missing: their run was archived meanwhile, or they were removed."""


def install_hint(extra: str) -> str:
    """Return how to install the extra; Handrail is installed from its clone. The command line and
    the server are an extra, too, and installing the tool again takes away what is not named."""
    extras = extra if extra == "server" else f"server,{extra}"
    return (
        f"install it, in a clone of Handrail: uv tool install --force '.[{extras}]', "
        f"or into your own environment: uv pip install '/path/to/handrail[{extra}]'"
    )
