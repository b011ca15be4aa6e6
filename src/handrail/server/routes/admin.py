"""The installation: tokens, sign-in links and sessions, settings, health, metrics, OpenAPI.

Tokens and sign-in links are made by admins, and each is shown once. Sessions of others are as if
they did not exist, except for an admin. Health checks need no token, so database errors are only in
the log: their texts name hosts and paths.
"""

from functools import cache
from typing import Any

import msgspec
from litestar import Response
from msgspec import convert
from msgspec.structs import asdict
from prometheus_client import CONTENT_TYPE_LATEST

from handrail.api.admin import (
    Health,
    MadeToken,
    NewSignIn,
    NewToken,
    ServerCalls,
    SessionCalls,
    SessionView,
    SettingCalls,
    SettingView,
    SignInLink,
    TokenCalls,
    TokenView,
)
from handrail.api.openapi import openapi_document
from handrail.api.shared import JSON
from handrail.engine.engine import Engine
from handrail.kernel.decision import prepare_types
from handrail.kernel.definition.reader import parse_duration
from handrail.server.access import (
    SIGN_IN_SECONDS,
    Caller,
    CredentialCache,
    caller_from_credential,
    issue_credential,
)
from handrail.server.binding import serves
from handrail.server.long_polls import LongPolls
from handrail.server.problems import HTTPProblemError
from handrail.server.prometheus import ServerMetrics
from handrail.server.settings import ORIGIN_DEFAULT, SETTINGS, ServerSettings
from handrail.store.credentials import CredentialRow
from handrail.store.rows import StoreError, parse_iso
from handrail.views.event_view import ENGINE_ACTOR
from handrail.views.view_types import Page

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
        raise _bad_token_request("works_as", "`works_as` is for tokens of the role agent")
    if "ceo" in (request.works_as or ()):
        raise _bad_token_request(
            "works_as", "an agent cannot have the role ceo, which is for people"
        )
    seconds_valid = parse_duration(request.expires) if request.expires is not None else None
    if request.expires is not None and not 0 < (seconds_valid or 0) <= EXPIRES_SECONDS_MAX:
        raise _bad_token_request(
            "expires",
            f"'{request.expires[:40]}' is not a duration of at most ten years",
            "say 30d or 12h",
        )
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
            field, f"'{ENGINE_ACTOR}' is reserved for the engine", "take another name"
        )
    if field == "agent" and ("/" in name or name in (".", "..")):
        raise _bad_token_request(
            field, f"'{name}' cannot be part of a URL", "take an id without a slash"
        )


def _bad_token_request(path: str, message: str, hint: str = "") -> HTTPProblemError:
    return HTTPProblemError(
        422, "bad_token_request", message, hint, field=path, field_code="bad_value"
    )


@serves(TokenCalls.list)
async def list_tokens(engine: Engine) -> Page[TokenView]:
    rows = await engine.credentials.list("token")
    return Page(items=tuple(msgspec.convert(_view_fields(row), TokenView) for row in rows))


@serves(TokenCalls.revoke)
async def revoke_token(
    engine: Engine, credentials: CredentialCache, caller: Caller, token_id: str
) -> None:
    if not await engine.credentials.revoke(token_id, by=caller.name):
        raise HTTPProblemError(
            404,
            "unknown_token",
            f"there is no token '{token_id}' in use",
            "look at the list of tokens",
        )
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


prepare_types(SessionView)


@serves(SessionCalls.list)
async def list_sessions(engine: Engine, caller: Caller) -> Page[SessionView]:
    return Page(
        items=tuple(_to_view(row, caller) for row in await _visible_sessions(engine, caller))
    )


@serves(SessionCalls.end)
async def end_session(
    engine: Engine, credentials: CredentialCache, caller: Caller, session_id: str
) -> None:
    ids = [row.id for row in await _visible_sessions(engine, caller)]
    is_theirs = session_id in ids
    if not is_theirs or not await engine.credentials.revoke(session_id, by=caller.name):
        raise HTTPProblemError(
            404,
            "unknown_session",
            f"there is no session '{session_id[:80]}' in use",
            "look at the list of sessions",
        )
    credentials.clear()


async def _visible_sessions(engine: Engine, caller: Caller) -> list[CredentialRow]:
    now = engine.clock()
    rows = [
        row
        for row in await engine.credentials.list("session")
        if caller_from_credential(row, now) is not None
    ]
    return [row for row in rows if row.name == caller.name or caller.is_at_least("admin")]


def _to_view(row: CredentialRow, caller: Caller) -> SessionView:
    return convert({**asdict(row), "mine": row.id == caller.credential}, SessionView)


FAILED_REASON = "the engine has failed; the server's log says why"
METRICS_MEDIA_TYPE = CONTENT_TYPE_LATEST.removesuffix("; charset=utf-8")
"""Litestar adds the charset of a text itself."""
UNAVAILABLE_REASON = "the database does not answer; the server's log says why"


@serves(ServerCalls.get_health)
async def get_health(engine: Engine) -> Response[Health]:
    if engine.failure is not None:
        return Response(Health(status="failed", reason=FAILED_REASON), status_code=503)
    return Response(Health(status="ok"))


@serves(ServerCalls.get_readiness)
async def get_readiness(engine: Engine, long_polls: LongPolls) -> Response[Health]:
    if long_polls.draining.is_set():
        return Response(
            Health(status="draining", reason="this server is shutting down"), status_code=503
        )
    try:
        await engine.feed.position()
    except StoreError:
        return Response(Health(status="unavailable", reason=UNAVAILABLE_REASON), status_code=503)
    return Response(Health(status="ok"))


@serves(SettingCalls.list)
async def list_settings(engine: Engine, settings: ServerSettings) -> Page[SettingView]:
    parts = {"kernel": engine.settings.kernel, "engine": engine.settings, "server": settings}
    items = tuple(
        SettingView(
            name=row.name,
            value=getattr(parts[row.part], row.name),
            unit=row.unit,
            default=row.default,
            origin=settings.origins.get(row.name, ORIGIN_DEFAULT),
            help=row.help,
        )
        for row in SETTINGS
        if row.part in parts
    )
    return Page(items=items)


@serves(ServerCalls.get_metrics)
async def get_prometheus_metrics(metrics: ServerMetrics) -> Response[bytes]:
    return Response(await metrics.scrape(), media_type=METRICS_MEDIA_TYPE)


@cache  # making it costs as much as many calls, and needs no token
def _encoded_document() -> bytes:
    return msgspec.json.encode(openapi_document())


@serves(ServerCalls.get_openapi)
async def get_openapi() -> Response[Any]:
    return Response(_encoded_document(), media_type=JSON)
