"""Tokens and one-time sign-in links: admins make them, and each is shown once."""

from typing import Any

import msgspec
from msgspec.structs import asdict

from handrail.api.admin import (
    MadeToken,
    NewSignIn,
    NewToken,
    SessionCalls,
    SignInLink,
    TokenCalls,
    TokenView,
)
from handrail.engine.engine import Engine
from handrail.kernel.decision import prepare_types
from handrail.kernel.definition.reader import parse_duration
from handrail.server.access import Caller
from handrail.server.authentication import CredentialCache
from handrail.server.binding import serves
from handrail.server.credentials import SIGN_IN_SECONDS, issue_credential
from handrail.server.problems import FieldError, HTTPProblemError
from handrail.store.credentials import CredentialRow
from handrail.store.rows import parse_iso
from handrail.views.event_view import ENGINE_ACTOR
from handrail.views.pages import Page

EXPIRES_SECONDS_MAX = 10 * 365 * 86_400
prepare_types(TokenView, MadeToken)


@serves(TokenCalls.create)
async def create_token(engine: Engine, caller: Caller, data: NewToken) -> MadeToken:
    secret, row = issue_token(data, by=caller.name, engine=engine)
    await engine.credentials.add(row)
    return msgspec.convert({**_view_fields(row), "token": secret}, MadeToken)


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


@serves(TokenCalls.list)
async def list_tokens(engine: Engine) -> Page[TokenView]:
    rows = await engine.credentials.list("token")
    return Page(items=tuple(msgspec.convert(_view_fields(row), TokenView) for row in rows))


@serves(TokenCalls.revoke)
async def revoke_token(engine: Engine, credentials: CredentialCache, token_id: str) -> None:
    if not await engine.credentials.revoke(token_id):
        message = f"there is no token '{token_id}' in use; look at the list of tokens"
        raise HTTPProblemError(404, "unknown_token", message)
    credentials.clear()


@serves(SessionCalls.create_sign_in)
async def create_sign_in(engine: Engine, caller: Caller, data: NewSignIn) -> SignInLink:
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
    await engine.credentials.add(row)
    assert row.expires_at is not None
    return SignInLink(path=f"/sign-in/{secret}", expires_at=parse_iso(row.expires_at))


def _view_fields(row: CredentialRow) -> dict[str, Any]:
    works_as = None if row.works_as is None else msgspec.json.decode(row.works_as)
    return {**asdict(row), "agent": row.agent or "", "works_as": works_as}
