"""Who is calling: from the bearer token, or from the page's session cookie. Then the access table.

Rules
1. Identity comes from the token alone, authority from the table alone (`access.py`).
2. A wrong token is 401, also where a right one would not help; too little of a role is 403. Neither
   says whether what was asked for exists.
3. A session is for the page: what changes something needs the session's own mark in a header, which
   another site can neither read nor send, and an Origin, if there is one, that is ours.
4. Where anybody may go, an old session is no session: its browser still has to find the way in.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from litestar import Request
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from handrail.engine.engine import Engine
from handrail.server.access import TABLE, Access, Caller, may_call, needs
from handrail.server.problems import Wrong
from handrail.server.secrets import caller_of, digest, is_csrf
from handrail.store.office import CredentialRow

LOCAL = "handrail.caller"
"""Where a request's scope has whoever came without a socket (`local.py`); no server puts it there.
"""
STILL = "handrail.still"
"""Where a request's scope has the question whether it would be let in still, for answers that go on
for long."""
COOKIE = "handrail_session"
CSRF_HEADER = "x-csrf-token"
SAFE = ("GET", "HEAD", "OPTIONS")
KNOWN_MAX = 10_000
KNOWN_SECONDS = 1.0
"""How long a credential is known without asking a database that is not in this process: so long a
revoked token may still be taken by another server."""


class Credentials:
    """The credentials of the database, the last ones asked for at hand."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._known: OrderedDict[str, tuple[float, CredentialRow | None]] = OrderedDict()

    async def find(self, secret: str, now: float) -> CredentialRow | None:
        key = digest(secret)
        at, row = self._known.get(key, (float("-inf"), None))
        if now - at < KNOWN_SECONDS:
            return row
        row = await self.engine.credential(key)
        if not self.engine.store.inline:
            self._known[key] = (now, row)
            while len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        return row

    def forget(self) -> None:
        """One of them was changed here."""
        self._known.clear()


class Authenticate:
    """A Litestar middleware: by then the call is known, and nothing of its body is read yet."""

    def __init__(self, app: ASGIApp, credentials: Callable[[], Credentials]) -> None:
        self.app, self._credentials = app, credentials

    @property
    def credentials(self) -> Credentials:
        return self._credentials()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request: Request[Any, Any, Any] = Request(cast("HTTPScope", scope), receive, send)
        access = TABLE.get((request.method, scope["path_template"]), Access())
        caller = await self._caller(request, access)
        scope["user"] = caller
        scope["auth"] = None
        cast("dict[str, Any]", scope)[STILL] = partial(self._is_still_let_in, request, access)
        if not access.open:
            self._admit(request, access, caller)
        if caller is not None and caller.role == "agent":
            await self.credentials.engine.seen(caller.name)
        await self.app(scope, receive, send)

    def _admit(
        self, request: Request[Any, Any, Any], access: Access, caller: Caller | None
    ) -> None:
        if caller is None:
            told = "this needs a token; make one with `handrail token create`, and send it as"
            told = f"{told} 'Authorization: Bearer TOKEN'"
            raise Wrong(401, "no_token", told, headers={"WWW-Authenticate": "Bearer"})
        if not may_call(access, caller):
            told = f"{caller.name} ({caller.role}) may not {request.method} {request.url.path}"
            raise Wrong(403, "forbidden", f"{told}; it needs {needs(access)}")

    async def _is_still_let_in(self, request: Request[Any, Any, Any], access: Access) -> bool:
        try:
            return await self._caller(request, access) is not None
        except Wrong:
            return False

    async def _caller(self, request: Request[Any, Any, Any], access: Access) -> Caller | None:
        local = cast("dict[str, Any]", request.scope).get(LOCAL)
        if isinstance(local, Caller):
            return local
        given = request.headers.get("authorization")
        if given is not None:
            scheme, secret = token_in(given)
            return await self._known(secret, "token" if scheme == "bearer" else "")
        session = session_of(request)
        if not session:
            return None
        if access.open:
            return await self._vouched(session, "session")
        caller = await self._known(session, "session")
        if request.method not in SAFE:
            _from_our_page(request, session)
        return caller

    async def _vouched(self, secret: str, kind: str) -> Caller | None:
        """Whom it vouches for; nobody, if it is not good."""
        now = self.credentials.engine.clock()
        row = await self.credentials.find(secret, now.timestamp())
        return caller_of(row, now) if row is not None and row.kind == kind else None

    async def _known(self, secret: str, kind: str) -> Caller:
        caller = await self._vouched(secret, kind)
        if caller is None:
            told = "the token is not known, was revoked, or has expired; make a new one with"
            told = f"{told} `handrail token create`"
            raise Wrong(401, "bad_token", told, headers={"WWW-Authenticate": "Bearer"})
        return caller


def token_in(authorization: str) -> tuple[str, str]:
    """The scheme and the secret of an Authorization header."""
    scheme, _, secret = authorization.partition(" ")
    return scheme.lower(), secret.strip()


def session_in(cookies: str) -> str:
    """The session's secret of a Cookie header; empty without one, or if there are two, of which one
    is somebody else's. Taken apart by hand: `http.cookies` takes the square of the header's length.
    """
    named = (one.partition("=") for one in cookies.split(";"))
    found = [value.strip() for name, _, value in named if name.strip() == COOKIE]
    return found[0] if len(found) == 1 else ""


def session_of(request: Request[Any, Any, Any]) -> str:
    return session_in(request.headers.get("cookie", ""))


def _from_our_page(request: Request[Any, Any, Any], session: str) -> None:
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    foreign = origin is not None and origin.partition("://")[2] != host
    if foreign or not is_csrf(session, request.headers.get(CSRF_HEADER, "")):
        told = "this does not come from the page of this server; reload the page"
        raise Wrong(403, "csrf", told)
