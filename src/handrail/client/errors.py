"""What a client raises: one line that says what was called, what came back, and what to do.

A server says no with a problem document (RFC 9457), and all of it is on the error. `Unreachable` is
the other kind: nobody answered.
"""

from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from handrail.kernel.decision import Value, learn
from handrail.kernel.definition import Problem

DETAIL_MAX = 500
"""Characters of an answer that is no problem document."""
ERRORS_TOLD = 3

NO_TOKEN = "no_token"  # noqa: S105 - the code of the refusal
MAKE_ONE = "this needs a token; make one with `handrail token create`, and set HANDRAIL_TOKEN to it"
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
    errors: tuple[Problem, ...] = ()


class ClientError(Exception):
    """A call that came to nothing. The text is one line; the fields are the problem document's."""

    def __init__(self, call: str, problem: ProblemDocument) -> None:
        super().__init__(_line(call, problem))
        self.call, self.problem = call, problem
        self.status, self.title, self.detail = problem.status, problem.title, problem.detail
        self.code = problem.code or problem.type.rpartition(":")[2]
        self.errors = problem.errors


class Unreachable(ClientError):  # noqa: N818 - an answer, not a mistake of the program
    """No server answered, at none of its addresses, as often as it was tried."""


class Denied(ClientError):  # noqa: N818 - an answer, not a mistake of the program
    """The token is missing, wrong, or may not do this (401, 403)."""


class NotFound(ClientError):  # noqa: N818 - an answer, not a mistake of the program
    """There is no such thing (404)."""


class Conflict(ClientError):  # noqa: N818 - an answer, not a mistake of the program
    """It does not fit how things stand: late, doubled, settled, busy (409)."""


class Invalid(ClientError):  # noqa: N818 - an answer, not a mistake of the program
    """What was sent cannot be used; `errors` has each place with a hint (400, 422)."""


KINDS: dict[int, type[ClientError]] = {
    400: Invalid,
    401: Denied,
    403: Denied,
    404: NotFound,
    409: Conflict,
    422: Invalid,
}
learn(ProblemDocument)


def error_of(call: str, status: int, body: bytes) -> ClientError:
    """The error that an answer means."""
    try:
        problem = msgspec.json.decode(body, type=ProblemDocument)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = " ".join(body[: 4 * DETAIL_MAX].decode(errors="replace").split())
        problem = ProblemDocument(detail=text[:DETAIL_MAX])
    detail = MAKE_ONE if problem.code == NO_TOKEN else problem.detail
    problem = msgspec.structs.replace(
        problem, status=status, title=problem.title or _phrase(status), detail=detail
    )
    return KINDS.get(status, ClientError)(call, problem)


def unreadable(call: str, status: int, wrong: object) -> ClientError:
    """An answer that says yes, in words that this client does not know."""
    told = f"the answer cannot be read ({wrong}); is this a Handrail server of this version?"
    title = "Unreadable answer"
    return ClientError(call, ProblemDocument(title=title, status=status, detail=told))


def unreachable(call: str, addresses: tuple[str, ...], reason: str, tries: int) -> Unreachable:
    where = " and ".join(addresses)
    times = "once" if tries == 1 else f"{tries} times"
    told = f"no server answers at {where}, tried {times}: {reason}"
    hint = "start one with 'handrail serve', or name another with HANDRAIL_SERVER"
    return Unreachable(call, ProblemDocument(title="Unreachable", detail=f"{told}; {hint}"))


def wrong_file(file: str, problems: Sequence[Problem]) -> Invalid:
    """A definition that cannot even be read; nothing was sent."""
    told = f"the file {file} cannot be read as a definition"
    document = ProblemDocument(title="Unreadable file", detail=told, errors=tuple(problems))
    return Invalid("nothing was sent", document)


def _line(call: str, problem: ProblemDocument) -> str:
    said = problem.detail or problem.title
    places = [str(one) for one in problem.errors[:ERRORS_TOLD]]
    if len(problem.errors) > ERRORS_TOLD:
        places.append(f"and {len(problem.errors) - ERRORS_TOLD} more")
    remedy = REMEDIES.get(problem.status, "")
    parts = [said, *places, *([remedy] if remedy and ";" not in said else [])]
    number = f" ({problem.status})" if problem.status else ""
    return " ".join(f"{call}{number}: {'; '.join(parts)}".split())


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"Status {status}"
