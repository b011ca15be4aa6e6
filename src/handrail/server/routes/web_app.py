"""The web app, and sign-in: a one-time link becomes a session in a cookie.

The link opens a small page that submits itself; only that uses the link up. So a chat program that
prefetches links does no harm, and the cookie, which no other site's request carries
(SameSite=Strict), comes with the first page. A form sent by another site is refused: it would sign
a person in as another.

The built files are held in memory, each with its compressed forms. Files under `assets` with a hash
in their name never change, and may be cached for ever. If nothing was built, `missing_reason` says
why, and the server serves the API only.
"""

import html
import mimetypes
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from litestar import MediaType, Response
from litestar.datastructures import Cookie

from handrail.api.admin import Me, SessionCalls
from handrail.api.operation import Role
from handrail.engine.engine import Engine
from handrail.server.access import (
    SESSION_COOKIE,
    SESSION_SECONDS,
    Caller,
    CredentialCache,
    HTTPRequest,
    check_same_site,
    csrf_token,
    digest_secret,
    issue_credential,
    read_session,
)
from handrail.server.binding import serves, serves_page
from handrail.server.problems import HTTPProblemError
from handrail.server.settings import ServerSettings

DIST_FOLDER = Path(__file__).parents[1] / "dist"
ASSETS_FOLDER, INDEX_FILE, NOT_BUILT_FILE = "assets", "index.html", "not-built"
HASHED_NAME = re.compile(r"-[\w-]{8}\.\w+$")
CACHE_FOREVER = "public, max-age=31536000, immutable"
CACHE_SHORT = "public, max-age=300"
ENCODINGS = (("br", ".br"), ("gzip", ".gz"))
"""Encodings and their file suffixes, the best first."""

WEB_APP_PATHS = (
    "/inbox",
    "/inbox/{item}",
    "/runs",
    "/runs/{item}",
    "/definitions",
    "/definitions/{item}",
    "/channels",
    "/channels/{item}",
    "/agents",
    "/figures",
    "/memory",
    "/audit",
)
"""Paths of the web app: each returns the index page, which then shows the path."""

SIGN_IN_STYLE = """\
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 0; display: grid; place-items: center; min-height: 100vh;
  color: light-dark(#1b1f2a, #e8eaf2); background: light-dark(#f6f7fa, #12141b); }
main { max-width: 36rem; margin: 1rem; padding: 1.5rem 2rem; border-radius: 8px;
  border: 1px solid light-dark(#d9dde7, #2c3140); background: light-dark(#fff, #191c25); }
h1 { margin: 0 0 .5rem; font-size: 1.25rem; }
p { margin: .5rem 0; }
pre { overflow: auto; padding: .75rem; border-radius: 8px; background: light-dark(#eef0f5, #12141b);
  white-space: pre-wrap; }
a { color: light-dark(#3446c4, #9fb0ff); }
button { font: inherit; font-weight: 600; padding: .5rem 1.25rem; border: 0; border-radius: 8px;
  color: #fff; background: #3b4cca; cursor: pointer; }
"""
SIGN_IN_SCRIPT = "document.forms[0].submit();\n"


class StaticFile(msgspec.Struct, frozen=True):
    """A file to serve. `encodings` has its compressed contents by encoding name."""

    content: bytes
    media_type: str
    cache: str
    encodings: dict[str, bytes] = {}

    def negotiate(self, accepted: str) -> tuple[bytes, dict[str, str]]:
        """Return the best accepted content, and its headers."""
        headers = {"Cache-Control": self.cache, "Vary": "Accept-Encoding"}
        accepted_encodings = {
            encoding.partition(";")[0].strip() for encoding in accepted.split(",")
        }
        for name, _ in ENCODINGS:
            if name in accepted_encodings and name in self.encodings:
                return self.encodings[name], {**headers, "Content-Encoding": name}
        return self.content, headers


SERVER_ASSETS = {
    "sign-in.js": StaticFile(SIGN_IN_SCRIPT.encode(), "text/javascript", CACHE_SHORT),
    "sign-in.css": StaticFile(SIGN_IN_STYLE.encode(), "text/css", CACHE_SHORT),
}
"""Files of the server's own pages."""


class WebAppFiles(msgspec.Struct, frozen=True):
    """The files to serve; without `index` there is no web app."""

    index: str = ""
    assets: Mapping[str, StaticFile] = msgspec.field(default_factory=lambda: SERVER_ASSETS)
    missing_reason: str = ""


def load_web_app(folder: Path = DIST_FOLDER) -> WebAppFiles:
    """Load all built files of a folder."""
    index = folder / INDEX_FILE
    if not index.is_file():
        reason_file = folder / NOT_BUILT_FILE
        return WebAppFiles(
            missing_reason=reason_file.read_text()
            if reason_file.is_file()
            else "it was never built"
        )
    files = {file.name: file for file in (folder / ASSETS_FOLDER).iterdir() if file.is_file()}
    suffixes = tuple(suffix for _, suffix in ENCODINGS)
    assets = {name: _load_file(name, files) for name in files if not name.endswith(suffixes)}
    return WebAppFiles(index=index.read_text(), assets={**assets, **SERVER_ASSETS})


def _load_file(name: str, files: Mapping[str, Path]) -> StaticFile:
    encodings = {
        kind: files[name + suffix].read_bytes()
        for kind, suffix in ENCODINGS
        if name + suffix in files
    }
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    cache = CACHE_FOREVER if HASHED_NAME.search(name) else CACHE_SHORT
    return StaticFile(files[name].read_bytes(), media_type, cache, encodings)


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
async def get_me(request: HTTPRequest, caller: Caller) -> Me:
    csrf = csrf_token(read_session(request)) if caller.in_browser else None
    return Me(name=caller.name, role=caller.role, csrf=csrf)


@serves_page("GET", "/sign-in/{code}")
async def show_sign_in(code: str) -> Response[Any]:
    """Show the button that signs in; nothing is used up by looking."""
    return _html_response(SIGN_IN_HTML.format(code=html.escape(code, quote=True)))


@serves_page("GET", "/assets/{name}")
async def get_asset(request: HTTPRequest, web_app_files: WebAppFiles, name: str) -> Response[bytes]:
    file = web_app_files.assets.get(name)
    if file is None:
        raise HTTPProblemError(404, "not_found", f"there is no file '{name[:80]}'")
    body, headers = file.negotiate(request.headers.get("accept-encoding", ""))
    return Response(body, media_type=file.media_type, headers=headers)


@serves_page("POST", "/sign-in/{code}")
async def sign_in(
    request: HTTPRequest, engine: Engine, settings: ServerSettings, code: str
) -> Response[Any]:
    check_same_site(request)
    row = await engine.credentials.use_sign_in(digest_secret(code))
    if row is None and MediaType.HTML in request.headers.get("accept", ""):
        return _html_response(USED_LINK_HTML, 401)
    if row is None:
        raise HTTPProblemError(
            401,
            "bad_sign_in",
            "this sign-in link was used before or has expired",
            "create a new one with `handrail sign-in`",
        )
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
    request: HTTPRequest, settings: ServerSettings, secret: str, seconds: int
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
    request: HTTPRequest,
    engine: Engine,
    credentials: CredentialCache,
    settings: ServerSettings,
    caller: Caller,
) -> Response[None]:
    if not caller.in_browser:
        return Response(None, status_code=204)
    await engine.credentials.revoke(caller.credential, by=caller.name)
    credentials.clear()
    return Response(None, status_code=204, cookies=[_session_cookie(request, settings, "", 0)])


@serves_page("GET", "/", *WEB_APP_PATHS)
async def get_web_app(
    request: HTTPRequest, web_app_files: WebAppFiles, settings: ServerSettings
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
