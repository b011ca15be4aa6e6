"""What goes wrong, as an RFC 9457 problem document: the one form in which the API says no.

`code` names the problem for programs, `detail` tells a person what is wrong and where, and `errors`
lists every place of the input that has to change, each with a hint. What the database says of
itself names hosts and paths: it is for the log.
"""

import logging
from http import HTTPStatus
from typing import Any, cast

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException
from litestar.openapi.datastructures import ResponseSpec

from handrail.engine.engine import InvalidDefinition
from handrail.engine.refused import Refused
from handrail.engine.vocabulary import tell
from handrail.kernel.decision import Refusal
from handrail.kernel.definition import Problem as Placed
from handrail.store.port import StoreError

log = logging.getLogger("handrail.http")

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1


class Place(msgspec.Struct, frozen=True):
    """One place of the input that is wrong."""

    code: str
    path: str
    message: str
    hint: str = ""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is no."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    errors: tuple[Place, ...] = ()


class Wrong(Exception):  # noqa: N818 - an answer, not a mistake of the program
    """Raised by whoever handles a request; becomes the answer."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: tuple[Place, ...] = (),
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail, self.errors = status, code, detail, errors
        self.headers = headers or {}

    def problem(self) -> Problem:
        return Problem(
            type=f"urn:handrail:problem:{self.code}",
            title=HTTPStatus(self.status).phrase,
            status=self.status,
            code=self.code,
            detail=self.detail,
            errors=self.errors,
        )

    def body(self) -> bytes:
        return msgspec.json.encode(self.problem())


STATUS = {
    **dict.fromkeys(
        ("not_allowed", "author", "commit_unapproved", "foreign_definition", "not_receiving"), 403
    ),
    **dict.fromkeys(
        (
            "ambiguous_answer",
            "bad_agent",
            "bad_ask",
            "bad_capacity",
            "bad_channel",
            "bad_config",
            "bad_content_type",
            "bad_cursor",
            "bad_file",
            "bad_key",
            "bad_limit",
            "bad_name",
            "bad_outcome",
            "bad_priority",
            "bad_query",
            "bad_seconds",
            "bad_status",
            "bad_target",
            "bad_type",
            "empty_message",
            "engine_keys",
            "key_reused",
            "long_message",
            "no_reason",
            "no_review",
            "no_roles",
            "no_text",
            "no_way_back",
            "no_workflow",
            "not_multi_dispatch",
            "unknown_place",
            "unusable",
        ),
        422,
    ),
    **dict.fromkeys(("file_too_large", "result_too_large", "context_too_large"), 413),
}
"""Refusals that are not simply a conflict with how things stand (409). Whatever else is
unknown is not found (404)."""


def wrong_of(error: Exception) -> Wrong | None:
    """The answer to what a handler raised; None if it is nobody's mistake but ours."""
    match error:
        case Wrong():
            return error
        case Refused():
            return _refused(error.refusal)
        case InvalidDefinition():
            return _invalid(error)
        case StoreError():
            told = "the database cannot be used now; try again; the server's log says why"
            again = {"Retry-After": str(RETRY_SECONDS)}
            return Wrong(503, "unavailable", told, headers=again)
        case ValidationException():
            return _not_valid(error)
        case HTTPException():
            headers = dict(error.headers or {})
            return Wrong(error.status_code, _code(error.status_code), error.detail, headers=headers)
        case _:
            return None


def answer(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """For Litestar's `exception_handlers`. What is our own mistake raises again, to be logged and
    answered as 500 without a word about its inside."""
    wrong = wrong_of(error)
    if wrong is None:
        raise error
    if isinstance(error, StoreError):
        tell(log, "database_away", reason=str(error))
    return Response(
        wrong.body(), status_code=wrong.status, media_type=MEDIA_TYPE, headers=wrong.headers
    )


def _refused(refusal: Refusal) -> Wrong:
    told = f"{refusal.message}; {refusal.hint}" if refusal.hint else refusal.message
    missing = refusal.code.startswith("unknown_")
    status = STATUS.get(refusal.code, 404 if missing else 409)
    return Wrong(status, refusal.code, told)


def misnamed(refused: Refused, **fields: str) -> Exception:
    """A refusal because of a name in the body, as the place where it stands: code -> field. Any
    other refusal stays what it is."""
    refusal = refused.refusal
    if refusal.code not in fields:
        return refused
    place = Place(refusal.code, fields[refusal.code], refusal.message, refusal.hint)
    return Wrong(422, refusal.code, str(refused), errors=(place,))


def places(problems: tuple[Placed, ...]) -> tuple[Place, ...]:
    return tuple(Place(p.code, p.path, p.message, p.hint) for p in problems)


def _invalid(error: InvalidDefinition) -> Wrong:
    count = len(error.problems)
    told = f"the definition has {count} error{'s' if count > 1 else ''}; nothing was stored"
    return Wrong(422, "invalid_definition", told, errors=places(error.problems))


def _not_valid(error: ValidationException) -> Wrong:
    """A parameter of the query or the path that cannot be read."""
    found: list[Place] = []
    extra = cast("list[dict[str, str]]", error.extra or [])
    for one in extra:
        where, told = one.get("key", ""), one.get("message", "")
        if where == "data":  # Litestar's name for the body
            where, told = "$", "the body is missing"
        found.append(Place("bad_parameter", where, told))
    named = "; ".join(f"{one.path}: {one.message}" for one in found if one.path)
    told = f"the request cannot be read: {named or error.detail}"
    return Wrong(422, "bad_parameter", told, errors=tuple(found))


def _code(status: int) -> str:
    return HTTPStatus(status).phrase.lower().replace(" ", "_")


def documented(*statuses: int) -> dict[int, ResponseSpec]:
    """For a handler's `responses`: these problems beside those that every call may have."""
    always = (400, 401, 403, 413, 422, 429, 503)
    return {
        status: ResponseSpec(
            data_container=Problem,
            generate_examples=False,
            description=HTTPStatus(status).description or HTTPStatus(status).phrase,
            media_type=MEDIA_TYPE,
        )
        for status in sorted({*always, *statuses})
    }
