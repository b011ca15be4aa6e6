"""What a client raises: one line that says what was called, what came back, and what to do.

A server says no with a problem document (RFC 9457), and all of it is on the error. `Unreachable` is
the other kind: nobody answered.
"""

from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from handrail.kernel.decision import Value, prepare_types
from handrail.kernel.definition.model import DocumentProblem

DETAIL_CHARS_MAX = 500
"""Characters of an answer that is no problem document."""
ERRORS_SHOWN_MAX = 3

NO_TOKEN_CODE = "no_token"  # noqa: S105 - the code of the refusal
NO_TOKEN_DETAIL = (  # the next line holds no token
    "this needs a token; make one with `handrail token create`, and set HANDRAIL_TOKEN to it"  # noqa: S105
)
"""What a server says to whoever calls it by hand is another thing: how a token is sent."""
REMEDIES = {
    401: "set HANDRAIL_TOKEN to a token that is valid (handrail token create)",
    403: "use a token that may",
    404: "look at the list, or at the address of the server",
    500: "look at the server's log",
    502: "look whether the server is up",
    503: "try again in a while",
    504: "try again in a while",
}
"""What to do, where the server does not say so itself."""


class ProblemDocument(Value):
    """What a server says when it says no."""

    type: str = ""
    title: str = ""
    status: int = 0
    code: str = ""
    detail: str = ""
    errors: tuple[DocumentProblem, ...] = ()


class ClientError(Exception):
    """A call that came to nothing. The text is one line; the fields are the problem document's."""

    def __init__(self, call: str, problem: ProblemDocument) -> None:
        super().__init__(_format_error(call, problem))
        self.call, self.problem = call, problem
        self.status, self.title, self.detail = problem.status, problem.title, problem.detail
        self.code = problem.code or problem.type.rpartition(":")[2]
        self.errors = problem.errors


class UnreachableError(ClientError):
    """No server answered, at none of its addresses, as often as it was tried."""


class AccessDeniedError(ClientError):
    """The token is missing, wrong, or may not do this (401, 403)."""


class NotFoundError(ClientError):
    """There is no such thing (404)."""


class ConflictError(ClientError):
    """It does not fit how things stand: late, doubled, settled, busy (409)."""


class InvalidRequestError(ClientError):
    """What was sent cannot be used; `errors` has each place with a hint (400, 422)."""


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
    """The error that an answer means."""
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
    """An answer that says yes, in words that this client does not know."""
    message = f"the answer cannot be read ({cause}); is this a Handrail server of this version?"
    title = "Unreadable answer"
    return ClientError(call, ProblemDocument(title=title, status=status, detail=message))


def unreachable_error(
    call: str, addresses: tuple[str, ...], reason: str, tries: int
) -> UnreachableError:
    urls = " and ".join(addresses)
    times = "once" if tries == 1 else f"{tries} times"
    message = f"no server answers at {urls}, tried {times}: {reason}"
    hint = "start one with 'handrail serve', or name another with HANDRAIL_SERVER"
    return UnreachableError(call, ProblemDocument(title="Unreachable", detail=f"{message}; {hint}"))


def unreadable_file(file: str, problems: Sequence[DocumentProblem]) -> InvalidRequestError:
    """A definition that cannot even be read; nothing was sent."""
    message = f"the file {file} cannot be read as a definition"
    document = ProblemDocument(title="Unreadable file", detail=message, errors=tuple(problems))
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
