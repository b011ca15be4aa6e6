"""The page, and signing in to it: a one-time link becomes a session in a cookie.

The link opens a small page that sends itself; only then is it used up. So a chat program that looks
at links before people do spoils nothing, and the cookie, which no other site's request carries
(SameSite=Strict), comes with the first page. Another site that sends the form is refused: it would
sign somebody in as somebody else.
"""

import html
from typing import Any

import msgspec
from litestar import MediaType, Request, Response, get, post
from litestar.datastructures import Cookie
from litestar.openapi.datastructures import ResponseSpec

from handrail.engine.engine import Engine
from handrail.kernel.decision import Value
from handrail.server.access import Caller, Role
from handrail.server.authenticate import COOKIE, Credentials, session_of
from handrail.server.page import ROUTES, Built
from handrail.server.problems import Wrong, documented
from handrail.server.secrets import SESSION_SECONDS, csrf_of, digest, issue
from handrail.server.settings import ServerSettings

OURS = ("same-origin", "none")
"""What browsers say in Sec-Fetch-Site of a request that a page of ours, or the user, has made."""
PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Handrail</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/assets/sign-in.css"></head>
<body><main><h1>Handrail</h1>{body}</main></body>
</html>
"""
SIGN_IN = """<form method="post" action="/sign-in/{code}"><button>Sign in</button></form>
<script src="/assets/sign-in.js"></script>"""
SPENT = """<p>This link was used before, or has expired. Make a new one:</p>
<pre>handrail sign-in</pre>
<p>If you are signed in already, <a href="/">go on to the page</a>.</p>"""
WITHOUT = """{hello}<p>The API is described in <a href="/api/v1/openapi.json">openapi.json</a>.</p>
<p>The page is not here: {why}</p>"""
NOT_WANTED = "the setting <code>page</code> is off."
UNBUILT = "<pre>{why}</pre> Build it with <code>python web/build.py</code>, then start the server."

SIGNED_OUT = {204: ResponseSpec(data_container=None, description="Signed out.")}


class Me(Value, omit_defaults=False):
    """Whoever asks. `csrf` is for the page: it goes into the header X-CSRF-Token."""

    name: str
    role: str
    csrf: str | None


@get("/api/v1/me", responses=documented())
async def me(request: Request[Any, Any, Any], caller: Caller) -> Me:
    """Who the token or the session says I am."""
    csrf = csrf_of(session_of(request)) if caller.in_browser else None
    return Me(name=caller.name, role=caller.role, csrf=csrf)


@get("/sign-in/{code:str}", media_type=MediaType.HTML, include_in_schema=False)
async def show_sign_in(code: str) -> str:
    """Nothing is used up by looking."""
    return PAGE.format(body=SIGN_IN.format(code=html.escape(code, quote=True)))


@get("/assets/{name:str}", include_in_schema=False)
async def asset(request: Request[Any, Any, Any], built: Built, name: str) -> Response[bytes]:
    file = built.assets.get(name)
    if file is None:
        raise Wrong(404, "not_found", f"there is no '{name[:80]}' here")
    body, headers = file.answer(request.headers.get("accept-encoding", ""))
    return Response(body, media_type=file.media_type, headers=headers)


@post("/sign-in/{code:str}", status_code=303, include_in_schema=False)
async def sign_in(
    request: Request[Any, Any, Any], engine: Engine, settings: ServerSettings, code: str
) -> Response[Any]:
    if request.headers.get("sec-fetch-site", OURS[0]) not in OURS:
        raise Wrong(403, "csrf", "another site has sent this; open the link itself")
    row = await engine.use_sign_in(digest(code))
    if row is None and MediaType.HTML in request.headers.get("accept", ""):
        return Response(PAGE.format(body=SPENT), status_code=401, media_type=MediaType.HTML)
    if row is None:
        told = "this link was used before, or has expired; make a new one: handrail sign-in"
        raise Wrong(401, "bad_sign_in", told)
    secret, session = issue(
        "session",
        name=row.name,
        role=msgspec.convert(row.role, Role),
        by=row.created_by,
        now=engine.clock(),
        seconds=SESSION_SECONDS,
    )
    await engine.add_credential(session)
    cookies = [_cookie(request, settings, secret, SESSION_SECONDS)]
    return Response(None, status_code=303, headers={"Location": "/"}, cookies=cookies)


def _cookie(
    request: Request[Any, Any, Any], settings: ServerSettings, secret: str, seconds: int
) -> Cookie:
    """For https alone if that is how people reach this server, also where a proxy hides it."""
    return Cookie(
        key=COOKIE,
        value=secret,
        httponly=True,
        samesite="strict",
        secure="https" in (request.url.scheme, settings.public_url.partition(":")[0]),
        max_age=seconds,
        path="/",
    )


@post("/api/v1/sign-out", status_code=204, responses={**documented(), **SIGNED_OUT})
async def sign_out(
    request: Request[Any, Any, Any],
    engine: Engine,
    credentials: Credentials,
    settings: ServerSettings,
    caller: Caller,
) -> Response[None]:
    """The session that this request came with is over."""
    if not caller.in_browser:
        return Response(None, status_code=204)
    await engine.revoke_credential(caller.credential)
    credentials.forget()
    return Response(None, status_code=204, cookies=[_cookie(request, settings, "", 0)])


@get(["/", *ROUTES], media_type=MediaType.HTML, include_in_schema=False)
async def front(request: Request[Any, Any, Any], built: Built, settings: ServerSettings) -> str:
    """The page; where there is none, where the API is and why."""
    if built.index and settings.page:
        return built.index
    who: Caller | None = request.scope["user"]
    hello = f"<p>Signed in as {html.escape(who.name)} ({who.role}).</p>" if who else ""
    why = UNBUILT.format(why=html.escape(built.why_not)) if settings.page else NOT_WANTED
    return PAGE.format(body=WITHOUT.format(hello=hello, why=why))


HANDLERS = [me, show_sign_in, asset, sign_in, sign_out, front]
