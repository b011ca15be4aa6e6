"""The web app, and sign-in: a one-time link becomes a session in a cookie.

The link opens a small page that submits itself; only that uses the link up. So a chat program that
prefetches links does no harm, and the cookie, which no other site's request carries
(SameSite=Strict), comes with the first page. A form sent by another site is refused: it would sign
a person in as another.
"""

import html
from typing import Any

import msgspec
from litestar import MediaType, Request, Response
from litestar.datastructures import Cookie

from handrail.api.admin import Me, SessionCalls
from handrail.engine.engine import Engine
from handrail.server.access import Caller, Role
from handrail.server.authentication import SESSION_COOKIE, CredentialCache, read_session
from handrail.server.binding import serves, serves_page
from handrail.server.credentials import SESSION_SECONDS, csrf_token, digest_secret, issue_credential
from handrail.server.problems import HTTPProblemError
from handrail.server.settings import ServerSettings
from handrail.server.web_app import WEB_APP_PATHS, WebAppFiles

SAME_SITE_VALUES = ("same-origin", "none")
"""Sec-Fetch-Site of a request that a page of this server, or the user, has made."""
PAGE_HTML = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Handrail</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/assets/sign-in.css"></head>
<body><main><h1>Handrail</h1>{body}</main></body>
</html>
"""
SIGN_IN_HTML = """<form method="post" action="/sign-in/{code}"><button>Sign in</button></form>
<script src="/assets/sign-in.js"></script>"""
USED_LINK_HTML = """<p>This link was used before, or has expired. Make a new one:</p>
<pre>handrail sign-in</pre>
<p>If you are signed in already, <a href="/">go on to the page</a>.</p>"""
NO_WEB_APP_HTML = """\
{hello}<p>The API is described in <a href="/api/v1/openapi.json">openapi.json</a>.</p>
<p>The page is not here: {why}</p>"""
WEB_APP_OFF_REASON = "the setting <code>page</code> is off."
WEB_APP_UNBUILT_HTML = (
    "<pre>{why}</pre> Build it with <code>python web/build.py</code>, then start the server."
)


@serves(SessionCalls.get_me)
async def get_me(request: Request[Any, Any, Any], caller: Caller) -> Me:
    csrf = csrf_token(read_session(request)) if caller.in_browser else None
    return Me(name=caller.name, role=caller.role, csrf=csrf)


@serves_page("GET", "/sign-in/{code}")
async def show_sign_in(code: str) -> Response[Any]:
    """Show the button that signs in; nothing is used up by looking."""
    return _html_response(SIGN_IN_HTML.format(code=html.escape(code, quote=True)))


@serves_page("GET", "/assets/{name}")
async def get_asset(
    request: Request[Any, Any, Any], web_app_files: WebAppFiles, name: str
) -> Response[bytes]:
    file = web_app_files.assets.get(name)
    if file is None:
        raise HTTPProblemError(404, "not_found", f"there is no '{name[:80]}' here")
    body, headers = file.negotiate(request.headers.get("accept-encoding", ""))
    return Response(body, media_type=file.media_type, headers=headers)


@serves_page("POST", "/sign-in/{code}")
async def sign_in(
    request: Request[Any, Any, Any], engine: Engine, settings: ServerSettings, code: str
) -> Response[Any]:
    if request.headers.get("sec-fetch-site", SAME_SITE_VALUES[0]) not in SAME_SITE_VALUES:
        raise HTTPProblemError(403, "csrf", "another site has sent this; open the link itself")
    row = await engine.credentials.use_sign_in(digest_secret(code))
    if row is None and MediaType.HTML in request.headers.get("accept", ""):
        return _html_response(USED_LINK_HTML, 401)
    if row is None:
        message = "this link was used before, or has expired; make a new one: handrail sign-in"
        raise HTTPProblemError(401, "bad_sign_in", message)
    secret, session = issue_credential(
        "session",
        name=row.name,
        role=msgspec.convert(row.role, Role),
        by=row.created_by,
        now=engine.clock(),
        seconds=SESSION_SECONDS,
    )
    await engine.credentials.add(session)
    cookies = [_session_cookie(request, settings, secret, SESSION_SECONDS)]
    return Response(None, status_code=303, headers={"Location": "/"}, cookies=cookies)


def _session_cookie(
    request: Request[Any, Any, Any], settings: ServerSettings, secret: str, seconds: int
) -> Cookie:
    """Secure if people reach this server over https, also behind a proxy that hides it."""
    return Cookie(
        key=SESSION_COOKIE,
        value=secret,
        httponly=True,
        samesite="strict",
        secure="https" in (request.url.scheme, settings.public_url.partition(":")[0]),
        max_age=seconds,
        path="/",
    )


@serves(SessionCalls.sign_out)
async def sign_out(
    request: Request[Any, Any, Any],
    engine: Engine,
    credentials: CredentialCache,
    settings: ServerSettings,
    caller: Caller,
) -> Response[None]:
    if not caller.in_browser:
        return Response(None, status_code=204)
    await engine.credentials.revoke(caller.credential)
    credentials.clear()
    return Response(None, status_code=204, cookies=[_session_cookie(request, settings, "", 0)])


@serves_page("GET", "/", *WEB_APP_PATHS)
async def get_web_app(
    request: Request[Any, Any, Any], web_app_files: WebAppFiles, settings: ServerSettings
) -> Response[Any]:
    """The page; where there is none, where the API is and why."""
    if web_app_files.index and settings.page:
        return Response(web_app_files.index, media_type=MediaType.HTML)
    caller: Caller | None = request.scope["user"]
    greeting = f"<p>Signed in as {html.escape(caller.name)} ({caller.role}).</p>" if caller else ""
    reason = (
        WEB_APP_UNBUILT_HTML.format(why=html.escape(web_app_files.missing_reason))
        if settings.page
        else WEB_APP_OFF_REASON
    )
    return _html_response(NO_WEB_APP_HTML.format(hello=greeting, why=reason))


def _html_response(body: str, status: int = 200) -> Response[Any]:
    return Response(PAGE_HTML.format(body=body), status_code=status, media_type=MediaType.HTML)
