"""The built files of the web app, held in memory, each with its compressed forms.

Files under `assets` with a hash in their name never change, and may be cached for ever. If nothing
was built, `missing_reason` says why, and the server serves the API only.
"""

import mimetypes
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

DIST_FOLDER = Path(__file__).parent / "dist"
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
PAGE_PATHS = ("/", *WEB_APP_PATHS, "/sign-in/{code}", "/assets/{name}")
"""Pages and their files: open to everybody, and no part of the API."""
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
