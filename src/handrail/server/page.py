"""The page's files as they were built, held in memory, each with its compressed forms.

Names under `assets` that hold a hash never change their content, and may be kept for ever. Where
nothing was built the server does without: `why_not` says why, and the API is served all the same.
"""

import mimetypes
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

BUILT = Path(__file__).parent / "dist"
ASSETS, INDEX, NOT_BUILT = "assets", "index.html", "not-built"
HASHED = re.compile(r"-[\w-]{8}\.\w+$")
FOR_EVER = "public, max-age=31536000, immutable"
FOR_A_WHILE = "public, max-age=300"
ENCODINGS = (("br", ".br"), ("gzip", ".gz"))
"""The best first, and how the names of its files end."""

ROUTES = (
    "/inbox",
    "/inbox/{item:str}",
    "/runs",
    "/runs/{item:str}",
    "/definitions",
    "/definitions/{item:str}",
    "/channels",
    "/channels/{item:str}",
    "/agents",
    "/figures",
    "/memory",
    "/audit",
)
"""Places of the page: whoever opens one is given the page, which then shows it."""

STYLE = """\
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
SEND = "document.forms[0].submit();\n"


class File(msgspec.Struct, frozen=True):
    """`forms` are its compressed contents by the name of their encoding."""

    content: bytes
    media_type: str
    cache: str
    forms: dict[str, bytes] = {}

    def answer(self, accepted: str) -> tuple[bytes, dict[str, str]]:
        """The best form that the reader takes, and its headers."""
        headers = {"Cache-Control": self.cache, "Vary": "Accept-Encoding"}
        wanted = {one.partition(";")[0].strip() for one in accepted.split(",")}
        for name, _ in ENCODINGS:
            if name in wanted and name in self.forms:
                return self.forms[name], {**headers, "Content-Encoding": name}
        return self.content, headers


ALWAYS = {
    "sign-in.js": File(SEND.encode(), "text/javascript", FOR_A_WHILE),
    "sign-in.css": File(STYLE.encode(), "text/css", FOR_A_WHILE),
}
"""For the pages of the server itself."""


class Built(msgspec.Struct, frozen=True):
    """What there is to serve; without `index` there is no page."""

    index: str = ""
    assets: Mapping[str, File] = msgspec.field(default_factory=lambda: ALWAYS)
    why_not: str = ""


def read(folder: Path = BUILT) -> Built:
    """Everything that was built there."""
    index = folder / INDEX
    if not index.is_file():
        told = folder / NOT_BUILT
        return Built(why_not=told.read_text() if told.is_file() else "it was never built")
    files = {file.name: file for file in (folder / ASSETS).iterdir() if file.is_file()}
    ends = tuple(end for _, end in ENCODINGS)
    found = {name: _file(name, files) for name in files if not name.endswith(ends)}
    return Built(index=index.read_text(), assets={**found, **ALWAYS})


def _file(name: str, files: Mapping[str, Path]) -> File:
    forms = {kind: files[name + end].read_bytes() for kind, end in ENCODINGS if name + end in files}
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    cache = FOR_EVER if HASHED.search(name) else FOR_A_WHILE
    return File(files[name].read_bytes(), media_type, cache, forms)
