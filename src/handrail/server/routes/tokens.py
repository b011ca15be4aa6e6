"""Tokens and one-time sign-in links: admins make them, and each is shown once."""

from typing import Annotated

import msgspec
from litestar import delete, get, post

from handrail.engine.engine import Engine
from handrail.kernel.decision import Value, prepare_types
from handrail.kernel.definition.reader import parse_duration
from handrail.server.access import Caller, PersonRole, Role
from handrail.server.authentication import CredentialCache
from handrail.server.credentials import NAME_CHARS_MAX, SIGN_IN_SECONDS, issue_credential
from handrail.server.idempotency import SHOWN_ONCE
from handrail.server.problems import FieldError, HTTPProblemError, problem_responses
from handrail.store.store import CredentialRow
from handrail.views.event_view import ENGINE_ACTOR
from handrail.views.pages import Page

Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX, pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)")]
EXPIRES_SECONDS_MAX = 10 * 365 * 86_400


class NewToken(Value):
    """`name` for a person, `agent` for an agent. `expires` such as "30d"; without it, never."""

    role: Role
    name: Name = ""
    agent: Name = ""
    works_as: tuple[Name, ...] | None = None
    expires: str | None = None


class TokenView(Value, omit_defaults=False):
    id: str
    role: str
    name: str
    agent: str
    works_as: tuple[str, ...] | None
    created_by: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class MadeToken(TokenView, frozen=True, kw_only=True):
    token: str
    """Shown only once; the server stores only its digest."""


prepare_types(MadeToken)


class NewSignIn(Value):
    name: Annotated[Name, msgspec.Meta(min_length=1)]
    role: PersonRole = "viewer"


class SignInLink(Value):
    path: str
    """A path on this server, to be opened in a browser, once."""
    expires_at: str


@post("/tokens", responses=problem_responses(409), opt={SHOWN_ONCE: True})
async def make_token(engine: Engine, caller: Caller, data: NewToken) -> MadeToken:
    """A new token; it is shown this once."""
    secret, row = issue_token(data, by=caller.name, engine=engine)
    await engine.add_credential(row)
    return msgspec.convert({**msgspec.to_builtins(_to_view(row)), "token": secret}, MadeToken)


def issue_token(request: NewToken, *, by: str, engine: Engine) -> tuple[str, CredentialRow]:
    field = "agent" if request.role == "agent" else "name"
    name = request.agent if request.role == "agent" else request.name
    if not name.strip():
        raise _bad_token_request(field, f"a token of the role {request.role} needs `{field}`")
    _check_name(field, name)
    if request.works_as is not None and request.role != "agent":
        raise _bad_token_request("works_as", "only an agent's token works as something")
    if "ceo" in (request.works_as or ()):
        raise _bad_token_request("works_as", "no agent works as ceo: that is a person")
    seconds_valid = parse_duration(request.expires) if request.expires is not None else None
    if request.expires is not None and not 0 < (seconds_valid or 0) <= EXPIRES_SECONDS_MAX:
        message = f"'{request.expires[:40]}' is no duration, or longer than ten years"
        raise _bad_token_request("expires", f"{message}; say 30d or 12h")
    return issue_credential(
        "token",
        name=name,
        role=request.role,
        by=by,
        now=engine.clock(),
        seconds=seconds_valid,
        works_as=request.works_as,
    )


def _check_name(field: str, name: str) -> None:
    """Check a name: the record identifies actors by name, and URLs contain agent ids."""
    if name == ENGINE_ACTOR:
        raise _bad_token_request(
            field, f"'{ENGINE_ACTOR}' is how the engine itself signs; take another name"
        )
    if field == "agent" and ("/" in name or name in (".", "..")):
        raise _bad_token_request(
            field, f"'{name}' cannot be part of an address; take an id without a slash"
        )


def _bad_token_request(path: str, message: str) -> HTTPProblemError:
    return HTTPProblemError(
        422, "bad_token_request", message, errors=(FieldError("bad_value", path, message),)
    )


@get("/tokens", responses=problem_responses())
async def tokens(engine: Engine) -> Page[TokenView]:
    """All tokens, without their secrets."""
    return Page(items=tuple(_to_view(row) for row in await engine.credentials("token")))


@delete("/tokens/{token_id:str}", responses=problem_responses(404))
async def revoke_token(engine: Engine, credentials: CredentialCache, token_id: str) -> None:
    """Nobody gets in with it any more."""
    if not await engine.revoke_credential(token_id):
        message = f"there is no token '{token_id}' in use; look at the list of tokens"
        raise HTTPProblemError(404, "unknown_token", message)
    credentials.clear()


@post("/sign-ins", responses=problem_responses(409), opt={SHOWN_ONCE: True})
async def make_sign_in(engine: Engine, caller: Caller, data: NewSignIn) -> SignInLink:
    """A one-time link to the page for a person."""
    return await issue_sign_in(engine, data, by=caller.name)


async def issue_sign_in(engine: Engine, request: NewSignIn, *, by: str) -> SignInLink:
    _check_name("name", request.name)
    secret, row = issue_credential(
        "sign_in",
        name=request.name,
        role=request.role,
        by=by,
        now=engine.clock(),
        seconds=SIGN_IN_SECONDS,
    )
    await engine.add_credential(row)
    assert row.expires_at is not None
    return SignInLink(path=f"/sign-in/{secret}", expires_at=row.expires_at)


def _to_view(row: CredentialRow) -> TokenView:
    works_as = (
        None if row.works_as is None else msgspec.json.decode(row.works_as, type=tuple[str, ...])
    )
    return TokenView(
        id=row.id,
        role=row.role,
        name=row.name,
        agent=row.agent or "",
        works_as=works_as,
        created_by=row.created_by,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )


HANDLERS = [make_token, tokens, revoke_token, make_sign_in]
