"""Identifies the caller by bearer token or session cookie, then checks the operation's access.

Rules
1. Identity comes from the token only, authority from the operation only (`handrail.api`).
2. A wrong token is 401, even where a right one would not help; an insufficient role is 403. Neither
   says whether the requested object exists.
3. A session is for the web app: a call that changes something needs the session's CSRF token in a
   header, which another site can neither read nor send, and the server's own Origin, if any.
4. On open paths an expired session counts as none: its browser must still be able to sign in.
"""

from collections import OrderedDict
from functools import partial
from typing import Any, cast

from litestar import Request
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from handrail.api.access import NOBODY, Access
from handrail.engine.engine import Engine
from handrail.server.access import Caller, describe_required_role, may_call
from handrail.server.binding import OPT_ACCESS, SCOPE_SERVER
from handrail.server.credentials import caller_from_credential, digest_secret, is_valid_csrf
from handrail.server.problems import HTTPProblemError
from handrail.store.credentials import CredentialRow

SCOPE_LOCAL_CALLER = "handrail.caller"
"""Scope key of the caller who has the database itself; no server sets it."""
SCOPE_IS_STILL_ALLOWED = "handrail.still"
"""Scope key of a function that returns whether the caller still has access, for long responses."""
SESSION_COOKIE = "handrail_session"
CSRF_HEADER = "x-csrf-token"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
CACHED_CREDENTIALS_MAX = 10_000
CREDENTIAL_CACHE_SECONDS = 1.0
"""How long a credential is cached when the database is outside of this process: for so long another
server may still accept a revoked token."""


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
        request: Request[Any, Any, Any] = Request(cast("HTTPScope", scope), receive, send)
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

    def _authorize(
        self, request: Request[Any, Any, Any], access: Access, caller: Caller | None
    ) -> None:
        if caller is None:
            message = "this needs a token; make one with `handrail token create`, and send it as"
            message = f"{message} 'Authorization: Bearer TOKEN'"
            raise HTTPProblemError(401, "no_token", message, headers={"WWW-Authenticate": "Bearer"})
        if not may_call(access, caller):
            message = f"{caller.name} ({caller.role}) may not {request.method} {request.url.path}"
            raise HTTPProblemError(
                403, "forbidden", f"{message}; it needs {describe_required_role(access)}"
            )

    async def _is_still_allowed(self, request: Request[Any, Any, Any], access: Access) -> bool:
        try:
            return await self._identify(request, access) is not None
        except HTTPProblemError:
            return False

    async def _identify(self, request: Request[Any, Any, Any], access: Access) -> Caller | None:
        local = cast("dict[str, Any]", request.scope).get(SCOPE_LOCAL_CALLER)
        if isinstance(local, Caller):
            return local
        authorization = request.headers.get("authorization")
        if authorization is not None:
            scheme, secret = split_authorization(authorization)
            return await self._require_caller(
                request, secret, "token" if scheme == "bearer" else ""
            )
        session = read_session(request)
        if not session:
            return None
        if access.open:
            return await self._find_caller(request, session, "session")
        caller = await self._require_caller(request, session, "session")
        if request.method not in SAFE_METHODS:
            _check_csrf(request, session)
        return caller

    async def _find_caller(
        self, request: Request[Any, Any, Any], secret: str, kind: str
    ) -> Caller | None:
        """Return the owner of the secret; None if it is not valid."""
        credentials = _credentials(request)
        now = credentials.engine.clock()
        row = await credentials.find(secret, now.timestamp())
        return caller_from_credential(row, now) if row is not None and row.kind == kind else None

    async def _require_caller(
        self, request: Request[Any, Any, Any], secret: str, kind: str
    ) -> Caller:
        caller = await self._find_caller(request, secret, kind)
        if caller is None:
            message = "the token is not known, was revoked, or has expired; make a new one with"
            message = f"{message} `handrail token create`"
            raise HTTPProblemError(
                401, "bad_token", message, headers={"WWW-Authenticate": "Bearer"}
            )
        return caller


def _credentials(request: Request[Any, Any, Any]) -> CredentialCache:
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


def read_session(request: Request[Any, Any, Any]) -> str:
    return parse_session_cookie(request.headers.get("cookie", ""))


def _check_csrf(request: Request[Any, Any, Any], session: str) -> None:
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    is_foreign = origin is not None and origin.partition("://")[2] != host
    if is_foreign or not is_valid_csrf(session, request.headers.get(CSRF_HEADER, "")):
        message = "this does not come from the page of this server; reload the page"
        raise HTTPProblemError(403, "csrf", message)
