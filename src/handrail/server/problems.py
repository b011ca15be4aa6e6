"""Errors as RFC 9457 problem documents: the one form in which the API refuses.

`code` names the problem for programs, `detail` tells a person what is wrong and where, and `errors`
lists every wrong field of the input, each with a hint. Error texts of the database name hosts and
paths: they go to the log only.
"""

import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException

from handrail.api.shared import PROBLEM, FieldError, ProblemDocument
from handrail.engine.errors import InvalidDefinitionError, RefusedError
from handrail.engine.log_events import log_event
from handrail.kernel.decision import Refusal
from handrail.kernel.definition.model import DocumentProblem
from handrail.store.rows import StoreError

log = logging.getLogger("handrail.http")

RETRY_HEADERS = {"Retry-After": "1"}
"""Of a refusal that is over in a moment."""


class HTTPProblemError(Exception):
    """Raised while handling a request; becomes the response. `hint` says what to do about it;
    `field` is the wrong field of the input, if it is one."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        hint: str = "",
        *,
        field: str = "",
        field_code: str = "",
        errors: tuple[FieldError, ...] = (),
        headers: dict[str, str] | None = None,
    ) -> None:
        self.detail = f"{message}; {hint}" if hint else message
        super().__init__(self.detail)
        self.status, self.code, self.headers = status, code, headers or {}
        self.errors = (FieldError(field_code or code, field, message, hint),) if field else errors

    def document(self) -> ProblemDocument:
        return ProblemDocument(
            type=f"urn:handrail:problem:{self.code}",
            title=HTTPStatus(self.status).phrase,
            status=self.status,
            code=self.code,
            detail=self.detail,
            errors=self.errors,
        )

    def body(self) -> bytes:
        return msgspec.json.encode(self.document())


STATUS_BY_REFUSAL_CODE = {
    **dict.fromkeys(
        (
            "author",
            "behind_approval",
            "commit_unapproved",
            "foreign_definition",
            "key_reserved",
            "not_allowed",
            "not_receiving",
        ),
        403,
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
            "bad_wait",
            "empty_message",
            "engine_keys",
            "key_reused",
            "long_message",
            "no_reason",
            "no_review",
            "no_roles",
            "no_text",
            "no_words",
            "no_waits",
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
"""Refusals that are not a conflict with the current state (409); other `unknown_…` are 404."""


def problem_from(error: Exception) -> HTTPProblemError | None:
    """Return the problem for an exception of a handler; None for an internal error."""
    match error:
        case HTTPProblemError():
            return error
        case RefusedError():
            return _problem_from_refusal(error.refusal)
        case InvalidDefinitionError():
            return _problem_from_definition(error)
        case StoreError():
            return HTTPProblemError(
                503,
                "unavailable",
                "the database cannot be used now; try again; the server's log says why",
                headers=RETRY_HEADERS,
            )
        case HTTPException():
            code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
            return HTTPProblemError(
                error.status_code, code, error.detail, headers=dict(error.headers or {})
            )
        case _:
            return None


def handle_exception(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Litestar's exception handler. An internal error is raised again, to be logged and answered
    as 500 without details."""
    problem = problem_from(error)
    if problem is None:
        raise error
    if isinstance(error, StoreError):
        log_event(log, "database_away", reason=str(error))
    return Response(
        problem.body(), status_code=problem.status, media_type=PROBLEM, headers=problem.headers
    )


def _problem_from_refusal(refusal: Refusal) -> HTTPProblemError:
    is_unknown = refusal.code.startswith("unknown_")
    status = STATUS_BY_REFUSAL_CODE.get(refusal.code, 404 if is_unknown else 409)
    return HTTPProblemError(status, refusal.code, refusal.message, refusal.hint)


def refusal_at_field(refused: RefusedError, **fields: str) -> Exception:
    """Return a refusal of a name in the body as an error of its field (`fields`: code -> field).
    Any other refusal is returned unchanged."""
    refusal = refused.refusal
    if refusal.code not in fields:
        return refused
    field = fields[refusal.code]
    return HTTPProblemError(422, refusal.code, refusal.message, refusal.hint, field=field)


def missing_field(field: str, hint: str) -> HTTPProblemError:
    """Return the problem of a field that what the body says requires."""
    return HTTPProblemError(
        422, "bad_body", f"the action needs `{field}`", hint, field=field, field_code="missing"
    )


def field_errors(problems: Sequence[DocumentProblem]) -> tuple[FieldError, ...]:
    return tuple(FieldError(*msgspec.structs.astuple(problem)) for problem in problems)


def _problem_from_definition(error: InvalidDefinitionError) -> HTTPProblemError:
    count = len(error.problems)
    return HTTPProblemError(
        422,
        "invalid_definition",
        f"the definition has {count} error{'s' if count > 1 else ''}; nothing was stored",
        errors=field_errors(error.problems),
    )
