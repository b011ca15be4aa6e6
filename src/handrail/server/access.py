"""Who makes a request, and whether they may: credentials, callers, and the checks of handlers.

Rules
1. Identity comes from the bearer token or the session cookie only, authority from the operation
   only (`handrail.api`). What a call is limited to for some callers, its handler checks against the
   object, with the functions below.
2. A wrong token is 401, even where a right one would not help; an insufficient role is 403. Neither
   says whether the requested object exists.
3. Authors come from the token. A body may name an author too, in any of the API's author fields; it
   must be the same. An attempt to act as another person, or to use an answer twice, is refused and
   logged, and stored as a note of its run: evidence that changes nothing (K21).
4. A session is for the web app: a call that changes something needs the session's CSRF token in a
   header, which another site can neither read nor send, and the server's own Origin, if any.
5. On open paths an expired session counts as none: its browser must still be able to sign in.
6. Tokens, sign-in links and sessions are shown once, and stored only as a digest.
"""

import hashlib
import hmac
import logging
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, cast

import msgspec
from litestar import Request
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from handrail.api.operation import NOBODY, Access, PersonRole, Role
from handrail.api.shared import AuthoredBody
from handrail.engine.engine import Engine
from handrail.engine.ids import uuid7
from handrail.engine.log_events import log_event
from handrail.kernel.decision import Value
from handrail.kernel.definition.model import PERSON_LEVELS
from handrail.kernel.run.state import Person
from handrail.server.problems import HTTPProblemError
from handrail.store.credentials import CredentialRow
from handrail.store.rows import NoteRow, iso

log = logging.getLogger("handrail.http")

HTTPRequest = Request[Any, Any, Any]

SCOPE_SERVER = "handrail.server"
"""Scope key of the `ServerApp` that handles the request."""
SCOPE_LOCAL_CALLER = "handrail.caller"
"""Scope key of the caller who has the database itself; no server sets it."""
SCOPE_IS_STILL_ALLOWED = "handrail.still"
"""Scope key of a function that returns whether the caller still has access, for long responses."""
OPT_ACCESS = "access"
"""Key of a route's `opt`: what its operation declares."""
CHALLENGE_HEADERS = {"WWW-Authenticate": "Bearer"}
SESSION_COOKIE = "handrail_session"
CSRF_HEADER = "x-csrf-token"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
CACHED_CREDENTIALS_MAX = 10_000
CREDENTIAL_CACHE_SECONDS = 1.0
"""How long a credential is cached when the database is outside of this process: for so long another
server may still accept a revoked token."""
SECRET_PREFIX = "hr_"  # noqa: S105 - of every token
"""Lets secret scanners find a leaked token."""
SIGN_IN_SECONDS = 600
SESSION_SECONDS = 12 * 3600
NAME_CHARS_MAX = 200
EVIDENCE_CHARS_MAX = 1_000
"""Per text of a request."""
SAME_SITE_VALUES = ("same-origin", "none")
"""Sec-Fetch-Site of a request that a page of this server, or the user, has made."""


class Caller(Value):
    """The author of a request, according to its token or session; never to its body."""

    name: str
    """The person's name, or the agent's id."""
    role: Role
    works_as: tuple[str, ...] | None = None
    """The roles that an agent may register; None: any."""
    credential: str = ""
    in_browser: bool = False

    @property
    def person(self) -> Person:
        assert self.role not in ("agent", "reporter"), "no person"
        return Person(name=self.name, role=self.role)

    def is_at_least(self, role: PersonRole) -> bool:
        return PERSON_LEVELS.get(self.role, -1) >= PERSON_LEVELS[role]


def may_call(access: Access, caller: Caller) -> bool:
    if caller.role == "agent":
        return access.agents
    if caller.role == "reporter":
        return access.reporters
    return access.people is not None and caller.is_at_least(access.people)


def describe_required_role(access: Access) -> str:
    """Return who may make the call, as text."""
    roles = [f"the role {access.people}"] if access.people is not None else []
    roles += ["an agent's token"] if access.agents else []
    roles += ["a reporter's token"] if access.reporters else []
    return " or ".join(roles) or "nobody"


def check_own_agent(caller: Caller, agent_id: str) -> None:
    """Check that an agent acts for itself; people are not limited by this."""
    if caller.role == "agent" and caller.name != agent_id:
        raise HTTPProblemError(
            403,
            "foreign_agent",
            f"the token of agent '{caller.name}' cannot act for '{agent_id}'",
            "use its own token",
        )


async def check_holds_bead(engine: Engine, caller: Caller, bead_id: str) -> None:
    """Check that the agent works on the bead now."""
    if not await engine.dispatches.is_held_by(caller.name, bead_id):
        raise HTTPProblemError(
            403,
            "foreign_bead",
            f"agent '{caller.name}' has no dispatch of bead '{bead_id}'",
            "claim one first",
        )


def check_same_author(caller: Caller, *names: str | None) -> None:
    """Check that the authors named in a body, if any, are the token's owner."""
    for name in names:
        if name and name != caller.name:
            raise HTTPProblemError(
                403,
                "forged_author",
                f"the request names the author '{name}', but its token belongs to '{caller.name}'",
                "leave the name out",
            )


async def check_author(
    engine: Engine, caller: Caller, body: AuthoredBody, path: Mapping[str, str]
) -> None:
    """Raise 403 `forged_author` if the body names another author. The arguments of the request's
    path name the run of the evidence, if any."""
    authors = {name: getattr(body, name) for name in AuthoredBody.__struct_fields__}
    try:
        check_same_author(caller, *authors.values())
    except HTTPProblemError as problem:
        run_id = await _find_run_id(engine, path)
        await record_refused_attempt(
            engine, caller, "forged_author", problem.detail, run_id, authors
        )
        raise


async def _find_run_id(engine: Engine, path: Mapping[str, str]) -> str | None:
    if "bead_id" in path:
        return (await engine.beads.get(path["bead_id"])).execution_id
    if "approval_id" in path:
        return (await engine.approvals.get(path["approval_id"])).execution_id
    return (await engine.runs.state(path["execution_id"])).id if "execution_id" in path else None


async def record_refused_attempt(
    engine: Engine,
    caller: Caller,
    code: Literal["forged_author", "replayed_answer"],
    reason: str,
    run_id: str | None,
    fields: dict[str, str],
) -> None:
    """Log a refused attempt, and add it as a note to its run."""
    name = caller.name
    log_event(log, code, actor=name, role=caller.role, execution_id=run_id, reason=reason)
    if run_id is not None:
        evidence = {name: text[:EVIDENCE_CHARS_MAX] for name, text in fields.items() if text}
        note = NoteRow(
            execution_id=run_id,
            at=iso(engine.clock()),
            actor=name,
            code=code,
            body=msgspec.json.encode(evidence).decode(),
        )
        await engine.runs.add_note(note)


def digest_secret(secret: str) -> str:
    """Return the stored digest. A secret has 256 random bits, so one SHA-256 is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


def issue_credential(
    kind: Literal["token", "sign_in", "session"],
    *,
    name: str,
    role: Role,
    by: str,
    now: datetime,
    seconds: float | None = None,
    works_as: tuple[str, ...] | None = None,
) -> tuple[str, CredentialRow]:
    """Return a new secret, and its row."""
    secret = SECRET_PREFIX + secrets.token_urlsafe(32)
    return secret, CredentialRow(
        id=uuid7().hex,
        kind=kind,
        digest=digest_secret(secret),
        name="" if role == "agent" else name,
        agent=name if role == "agent" else None,
        role=role,
        works_as=msgspec.json.encode(works_as).decode() if works_as is not None else None,
        created_by=by,
        created_at=iso(now),
        expires_at=iso(now + timedelta(seconds=seconds)) if seconds is not None else None,
        revoked_at=None,
    )


def caller_from_credential(row: CredentialRow, now: datetime) -> Caller | None:
    """Return the owner of a credential; None once it is revoked or expired."""
    if row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= iso(now)):
        return None
    return Caller(
        name=row.agent or row.name,
        role=msgspec.convert(row.role, Role),
        works_as=None
        if row.works_as is None
        else msgspec.json.decode(row.works_as, type=tuple[str, ...]),
        credential=row.id,
        in_browser=row.kind == "session",
    )


def csrf_token(session: str) -> str:
    """Return the token with which a page proves that it could read a response of this server."""
    return hmac.new(session.encode(), b"csrf", hashlib.sha256).hexdigest()


def is_valid_csrf(session: str, token: str) -> bool:
    return hmac.compare_digest(csrf_token(session).encode(), token.encode())


class CredentialCache:
    """Reads credentials from the database, and caches the last ones."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._rows: OrderedDict[str, tuple[float, CredentialRow | None]] = OrderedDict()

    async def find(self, secret: str, now: float) -> CredentialRow | None:
        key = digest_secret(secret)
        cached_at, row = self._rows.get(key, (float("-inf"), None))
        if now - cached_at < CREDENTIAL_CACHE_SECONDS:
            return row
        row = await self.engine.credentials.get(key)
        if not self.engine.credentials.is_local:
            self._rows[key] = (now, row)
            while len(self._rows) > CACHED_CREDENTIALS_MAX:
                self._rows.popitem(last=False)
        return row

    def clear(self) -> None:
        """Drop the cache, because this server changed a credential."""
        self._rows.clear()


class AuthenticationMiddleware:
    """A Litestar middleware: runs when the call is known, before its body is read."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request: HTTPRequest = Request(cast("HTTPScope", scope), receive, send)
        access: Access = scope["route_handler"].opt.get(OPT_ACCESS, NOBODY)
        caller = await self._identify(request, access)
        scope["user"] = caller
        scope["auth"] = None
        cast("dict[str, Any]", scope)[SCOPE_IS_STILL_ALLOWED] = partial(
            self._is_still_allowed, request, access
        )
        if not access.open:
            self._authorize(request, access, caller)
        if caller is not None and caller.role == "agent":
            await _credentials(request).engine.agents.note_activity(caller.name)
        await self.app(scope, receive, send)

    def _authorize(self, request: HTTPRequest, access: Access, caller: Caller | None) -> None:
        if caller is None:
            raise HTTPProblemError(
                401,
                "no_token",
                "the request has no API token",
                "create one with `handrail token create`, and send it as "
                "'Authorization: Bearer TOKEN'",
                headers=CHALLENGE_HEADERS,
            )
        if not may_call(access, caller):
            raise HTTPProblemError(
                403,
                "forbidden",
                f"{caller.name} ({caller.role}) may not {request.method} {request.url.path}",
                f"it needs {describe_required_role(access)}",
            )

    async def _is_still_allowed(self, request: HTTPRequest, access: Access) -> bool:
        try:
            return await self._identify(request, access) is not None
        except HTTPProblemError:
            return False

    async def _identify(self, request: HTTPRequest, access: Access) -> Caller | None:
        local = cast("dict[str, Any]", request.scope).get(SCOPE_LOCAL_CALLER)
        if isinstance(local, Caller):
            return local
        authorization = request.headers.get("authorization")
        if authorization is not None:
            scheme, secret = split_authorization(authorization)
            kind = "token" if scheme == "bearer" else ""
            return await self._require_caller(request, secret, kind)
        session = read_session(request)
        if not session:
            return None
        if access.open:
            return await self._find_caller(request, session, "session")
        caller = await self._require_caller(request, session, "session")
        if request.method not in SAFE_METHODS:
            _check_csrf(request, session)
        return caller

    async def _find_caller(self, request: HTTPRequest, secret: str, kind: str) -> Caller | None:
        """Return the owner of the secret; None if it is not valid."""
        credentials = _credentials(request)
        now = credentials.engine.clock()
        row = await credentials.find(secret, now.timestamp())
        return caller_from_credential(row, now) if row is not None and row.kind == kind else None

    async def _require_caller(self, request: HTTPRequest, secret: str, kind: str) -> Caller:
        caller = await self._find_caller(request, secret, kind)
        if caller is None:
            raise HTTPProblemError(
                401,
                "bad_token",
                "the API token is unknown, revoked or expired",
                "create a new one with `handrail token create`",
                headers=CHALLENGE_HEADERS,
            )
        return caller


def _credentials(request: HTTPRequest) -> CredentialCache:
    return cast("dict[str, Any]", request.scope)[SCOPE_SERVER].credentials


def split_authorization(authorization: str) -> tuple[str, str]:
    """Return the scheme and the secret of an Authorization header."""
    scheme, _, secret = authorization.partition(" ")
    return scheme.lower(), secret.strip()


def parse_session_cookie(cookies: str) -> str:
    """Return the session's secret in a Cookie header; empty without one, or with two, of which one
    must be foreign. `http.cookies` is not used: its time is quadratic in the header's length."""
    pairs = (pair.partition("=") for pair in cookies.split(";"))
    sessions = [value.strip() for name, _, value in pairs if name.strip() == SESSION_COOKIE]
    return sessions[0] if len(sessions) == 1 else ""


def read_session(request: HTTPRequest) -> str:
    return parse_session_cookie(request.headers.get("cookie", ""))


def _check_csrf(request: HTTPRequest, session: str) -> None:
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    is_foreign = origin is not None and origin.partition("://")[2] != host
    if is_foreign or not is_valid_csrf(session, request.headers.get(CSRF_HEADER, "")):
        raise HTTPProblemError(
            403,
            "csrf",
            "the request was not sent by the web page of this server",
            "reload the page",
        )


def check_same_site(request: HTTPRequest) -> None:
    """Check that no page of another site has sent the form: it would act as another person."""
    if request.headers.get("sec-fetch-site", SAME_SITE_VALUES[0]) not in SAME_SITE_VALUES:
        raise HTTPProblemError(
            403, "csrf", "the request was sent by a page of another site", "open the link itself"
        )
