"""Tokens and one-time sign-in links: made by admins, shown once."""

from typing import Annotated

import msgspec
from litestar import delete, get, post

from handrail.engine.engine import Engine
from handrail.engine.pages import Page
from handrail.kernel.decision import Value, learn
from handrail.kernel.event_shown import ENGINE
from handrail.kernel.reading import seconds
from handrail.server.access import Caller, PersonRole, Role
from handrail.server.authenticate import Credentials
from handrail.server.idempotency import SHOWN_ONCE
from handrail.server.problems import Place, Wrong, documented
from handrail.server.secrets import NAME_MAX, SIGN_IN_SECONDS, issue
from handrail.store.office import CredentialRow

Name = Annotated[str, msgspec.Meta(max_length=NAME_MAX, pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)")]
EXPIRES_MAX = 10 * 365 * 86_400
"""In seconds."""


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
    """Shown this once; only its digest is kept."""


learn(MadeToken)


class NewSignIn(Value):
    name: Annotated[Name, msgspec.Meta(min_length=1)]
    role: PersonRole = "viewer"


class SignIn(Value):
    path: str
    """To be opened in a browser on this server, once."""
    expires_at: str


@post("/tokens", responses=documented(409), opt={SHOWN_ONCE: True})
async def make_token(engine: Engine, caller: Caller, data: NewToken) -> MadeToken:
    """A new token; it is shown this once."""
    secret, row = new_token(data, by=caller.name, engine=engine)
    await engine.add_credential(row)
    return msgspec.convert({**msgspec.to_builtins(_shown(row)), "token": secret}, MadeToken)


def new_token(wanted: NewToken, *, by: str, engine: Engine) -> tuple[str, CredentialRow]:
    what = "agent" if wanted.role == "agent" else "name"
    name = wanted.agent if wanted.role == "agent" else wanted.name
    if not name.strip():
        raise _wrong(what, f"a token of the role {wanted.role} needs `{what}`")
    _check_name(what, name)
    if wanted.works_as is not None and wanted.role != "agent":
        raise _wrong("works_as", "only an agent's token works as something")
    if "ceo" in (wanted.works_as or ()):
        raise _wrong("works_as", "no agent works as ceo: that is a person")
    lasting = seconds(wanted.expires) if wanted.expires is not None else None
    if wanted.expires is not None and not 0 < (lasting or 0) <= EXPIRES_MAX:
        told = f"'{wanted.expires[:40]}' is no duration, or longer than ten years"
        raise _wrong("expires", f"{told}; say 30d or 12h")
    return issue(
        "token",
        name=name,
        role=wanted.role,
        by=by,
        now=engine.clock(),
        seconds=lasting,
        works_as=wanted.works_as,
    )


def _check_name(what: str, name: str) -> None:
    """Who acts stands in the record by name, and an agent in addresses."""
    if name == ENGINE:
        raise _wrong(what, f"'{ENGINE}' is how the engine itself signs; take another name")
    if what == "agent" and ("/" in name or name in (".", "..")):
        raise _wrong(what, f"'{name}' cannot be part of an address; take an id without a slash")


def _wrong(path: str, told: str) -> Wrong:
    return Wrong(422, "bad_token_request", told, errors=(Place("bad_value", path, told),))


@get("/tokens", responses=documented())
async def tokens(engine: Engine) -> Page[TokenView]:
    """All tokens, without their secrets."""
    return Page(items=tuple(_shown(row) for row in await engine.credentials("token")))


@delete("/tokens/{token_id:str}", responses=documented(404))
async def revoke_token(engine: Engine, credentials: Credentials, token_id: str) -> None:
    """Nobody gets in with it any more."""
    if not await engine.revoke_credential(token_id):
        told = f"there is no token '{token_id}' in use; look at the list of tokens"
        raise Wrong(404, "unknown_token", told)
    credentials.forget()


@post("/sign-ins", responses=documented(409), opt={SHOWN_ONCE: True})
async def make_sign_in(engine: Engine, caller: Caller, data: NewSignIn) -> SignIn:
    """A one-time link to the page for a person."""
    return await new_sign_in(engine, data, by=caller.name)


async def new_sign_in(engine: Engine, wanted: NewSignIn, *, by: str) -> SignIn:
    _check_name("name", wanted.name)
    secret, row = issue(
        "sign_in",
        name=wanted.name,
        role=wanted.role,
        by=by,
        now=engine.clock(),
        seconds=SIGN_IN_SECONDS,
    )
    await engine.add_credential(row)
    assert row.expires_at is not None
    return SignIn(path=f"/sign-in/{secret}", expires_at=row.expires_at)


def _shown(row: CredentialRow) -> TokenView:
    held = None if row.works_as is None else msgspec.json.decode(row.works_as, type=tuple[str, ...])
    return TokenView(
        id=row.id,
        role=row.role,
        name=row.name,
        agent=row.agent or "",
        works_as=held,
        created_by=row.created_by,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )


HANDLERS = [make_token, tokens, revoke_token, make_sign_in]
