"""Errors of a client: each is one line with the call, the server's answer, and what to do.

A server refuses with a problem document (RFC 9457); the error carries all of its fields.
`UnreachableError` is the other kind: no server answered.
"""

from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from handrail.api.shared import FieldError, ProblemDocument
from handrail.kernel.decision import prepare_types
from handrail.kernel.definition.model import DocumentProblem

DETAIL_CHARS_MAX = 500
"""Limits an answer that is not a problem document."""
ERRORS_SHOWN_MAX = 3

NO_TOKEN_CODE = "no_token"  # noqa: S105 - the code of the refusal
NO_TOKEN_DETAIL = (
    "the request has no API token; create one with `handrail token create` and set "  # noqa: S105 - a text
    "HANDRAIL_TOKEN to it"
)
"""The server's own text differs: it tells callers by hand how to send a token."""
REMEDIES = {
    401: "set HANDRAIL_TOKEN to a token that is valid (handrail token create)",
    403: "use a token of a role that may do this",
    404: "check the id, and the URL of the server",
    500: "look at the server's log",
    502: "check that the server is running",
    503: "try again in a while",
    504: "try again in a while",
}
"""Next steps by status, where the server's answer has none."""


class ClientError(Exception):
    """A call failed. The text is one line; the fields are those of the problem document."""

    def __init__(self, call: str, problem: ProblemDocument) -> None:
        super().__init__(_format_error(call, problem))
        self.call, self.problem = call, problem
        self.status, self.title, self.detail = problem.status, problem.title, problem.detail
        self.code = problem.code or problem.type.rpartition(":")[2]
        self.errors = problem.errors


class UnreachableError(ClientError):
    """No server answered at any of the addresses, after all tries."""


class AccessDeniedError(ClientError):
    """The token is missing, wrong, or may not do this (401, 403)."""


class NotFoundError(ClientError):
    """The server does not have the object or path (404)."""


class ConflictError(ClientError):
    """The request conflicts with the current state: late, doubled, settled, busy (409)."""


class InvalidRequestError(ClientError):
    """The request is invalid; `errors` has each wrong field with a hint (400, 422)."""


ERROR_BY_STATUS: dict[int, type[ClientError]] = {
    400: InvalidRequestError,
    401: AccessDeniedError,
    403: AccessDeniedError,
    404: NotFoundError,
    409: ConflictError,
    422: InvalidRequestError,
}
prepare_types(ProblemDocument)


def error_from_response(call: str, status: int, body: bytes) -> ClientError:
    """Return the error for a response."""
    try:
        problem = msgspec.json.decode(body, type=ProblemDocument)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = " ".join(body[: 4 * DETAIL_CHARS_MAX].decode(errors="replace").split())
        problem = ProblemDocument(detail=text[:DETAIL_CHARS_MAX])
    detail = NO_TOKEN_DETAIL if problem.code == NO_TOKEN_CODE else problem.detail
    problem = msgspec.structs.replace(
        problem, status=status, title=problem.title or _status_phrase(status), detail=detail
    )
    return ERROR_BY_STATUS.get(status, ClientError)(call, problem)


def unreadable_response(call: str, status: int, cause: object) -> ClientError:
    """Return the error for a successful response that this client cannot decode."""
    message = f"the answer cannot be read ({cause}); is this a Handrail server of this version?"
    title = "Unreadable answer"
    return ClientError(call, ProblemDocument(title=title, status=status, detail=message))


def unreachable_error(
    call: str, addresses: tuple[str, ...], reason: str, tries: int
) -> UnreachableError:
    urls = " and ".join(addresses)
    times = "once" if tries == 1 else f"{tries} times"
    return UnreachableError(
        call,
        ProblemDocument(
            title="Unreachable",
            detail=f"no server answers at {urls}, tried {times}: {reason}; "
            "start one with 'handrail serve', or name another with HANDRAIL_SERVER",
        ),
    )


def unreadable_file(file: str, problems: Sequence[DocumentProblem]) -> InvalidRequestError:
    """Return the error for a definition file that cannot be parsed; nothing was sent."""
    message = f"the file {file} cannot be read as a definition"
    errors = tuple(FieldError(*msgspec.structs.astuple(problem)) for problem in problems)
    document = ProblemDocument(title="Unreadable file", detail=message, errors=errors)
    return InvalidRequestError("nothing was sent", document)


def _format_error(call: str, problem: ProblemDocument) -> str:
    summary = problem.detail or problem.title
    field_errors = [str(error) for error in problem.errors[:ERRORS_SHOWN_MAX]]
    if len(problem.errors) > ERRORS_SHOWN_MAX:
        field_errors.append(f"and {len(problem.errors) - ERRORS_SHOWN_MAX} more")
    remedy = REMEDIES.get(problem.status, "")
    parts = [summary, *field_errors, *([remedy] if remedy and ";" not in summary else [])]
    status = f" ({problem.status})" if problem.status else ""
    return " ".join(f"{call}{status}: {'; '.join(parts)}".split())


def _status_phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"Status {status}"
