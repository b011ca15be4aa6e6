"""The signature of a reported error: two reports with the same signature are the same bug.

Rules
1. With frames they decide: service, types of the error and of its causes, files and functions.
   Messages, values, line numbers, the depth of a recursion and the order of causes do not count.
2. Of the frames those of the app count, and the one that raised, in whatever library that is: a
   library's way through its own functions changes with its version. Without a frame of the app
   all frames count.
3. A file is its path in its package or, of the app, its last FILE_PARTS parts, so that a release
   that is deployed to another folder changes nothing.
4. Without frames the message decides, with type or status, method and route: numbers, quoted values
   and ids in it are masked.
5. A route is the framework's own template, if the report has one; of a plain path only segments
   that are ids are masked: `/v1/orders/17` is `/v1/orders/{}`.

The cost is linear: at most SCAN_LINES_MAX lines are read, each cut to LINE_CHARS.
"""

import hashlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from handrail.engine.redaction import redact
from handrail.kernel.stop.error_signature import HASH_CHARS, error_signature
from handrail.views.bugs import NAME_CHARS_MAX, ErrorReport

SCAN_LINES_MAX = 2_000
LINE_CHARS = 1_000
FRAMES_MAX = 200
FILE_PARTS = 3
SEGMENT_CHARS_MAX = 40
"""A longer segment of a path is an id, or a title that is as good as one."""
SHOWN_CHARS_MAX = 160


class StackFrame(NamedTuple):
    file: str
    function: str

    @property
    def is_library(self) -> bool:
        return bool(_LIBRARY_FILE.search(self.file) or _LIBRARY_FUNCTION.match(self.function))

    def __str__(self) -> str:
        return f"{_shorten_file(self.file)} {_mask_function(self.function)}".strip()


class StackTrace(NamedTuple):
    """The types of an error and its causes, and one tuple of frames for each, innermost last."""

    types: frozenset[str]
    stacks: tuple[tuple[StackFrame, ...], ...]


# One pattern for each way to write a frame on one line. Where the innermost frame stands first,
# the stack is turned round.
_PYTHON_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line \d+(?:, in (?P<function>.+))?$')
_GROUP_HEADER = "Exception Group Traceback"
_GROUP_PREFIX = re.compile(r"\s+\| ?")
_FRAMES_INNERMOST_FIRST = tuple(
    re.compile(pattern)
    for pattern in (
        # Java, Kotlin, Scala: "at shop.Cart.total(Cart.java:12)", perhaps with a module before it
        r"\s*at (?:[\w.@-]*/{1,2})?(?P<function>[\w.$<>-]+)"
        r"\((?P<file>[\w$.-]+\.\w+(?=:\d+\))|Native Method|Unknown Source|<generated>)",
        # .NET: "at Shop.Cart.Total(Int32 id) in /src/Cart.cs:line 12"
        r"\s*at (?P<function>[\w.<>`+\[\],|]+)\([^()]*\)(?: in (?P<file>[^:]*:?[^:]+):line \d+)?$",
        # JavaScript: "at async total (file:///srv/cart.js:12:5)", "at /srv/cart.js:12:5"
        r"\s*at (?:(?:async |new )*(?P<function>[^()]+(?: \[as [^\]]+\])?) \()?"
        r"(?:async )?(?:file://)?(?P<file>[^()]+?):\d+(?::\d+)?\)?$",
        # Ruby: "cart.rb:12:in `total'", "from cart.rb:12:in 'Cart#total'"
        r"\s*(?:from )?(?P<file>[^\s:]+\.rb):\d+:in [`'](?P<function>[^']+)'",
        # PHP: "#0 /srv/Cart.php(12): Shop\Cart->total(4711)"
        r"#\d+ (?P<file>\S[^()]*)\(\d+\): (?P<function>[^()]+)",
    )
)
# Go and Rust write the function on one line and the file on the next one.
_FUNCTION_LINE = re.compile(
    r"(?:created by )?(?P<go>[\w./*()-]+\.[\w.*()\[\]-]+)\([^()]*\)$"
    r"|\s*\d+: (?P<rust>[\w:<> {}#]+)$"
)
_FILE_LINE = re.compile(r"\s+(?:at )?(?P<file>\S+\.(?:go|rs)):\d+")

_TYPE = r"(?P<type>[A-Za-z_][\w.$\\]*(?:::[\w$]+)*)"
_CAUSE_LINE = re.compile(rf"\s*(?:Caused by: |Suppressed: |\[cause\]: |---> ){_TYPE}(?=:|$|\s)")
_PYTHON_ERROR_LINE = re.compile(rf"{_TYPE}(?::|$)")

_LIBRARY_FILE = re.compile(
    r"(?i)(?:^|/)(?:site-packages|dist-packages|lib(?:64)?/python\d[\d.]*|python\d+/lib|node_modules"
    r"|gems|vendor|rustc/[0-9a-f]+|\.cargo/registry|go/src|pkg/mod|usr/lib/ruby)/"
    r"|^(?:<frozen |<generated>|<anonymous>|node:|internal/|Native Method|Unknown Source"
    r"|\[internal function\])"
    r"|(?:^|/)handrail/middleware/"
)
_LIBRARY_FUNCTION = re.compile(
    r"(?:java|javax|jakarta|jdk|sun|com\.sun|kotlin|kotlinx|scala|akka|reactor|io\.(?:netty|undertow"
    r"|micronaut|quarkus|vertx)|org\.(?:springframework|apache|hibernate|eclipse|postgresql|junit)"
    r"|System|Microsoft|runtime|net/http|std|core|alloc|tokio)(?:[./]|::)"
)
_PACKAGE_ROOT = re.compile(
    r"(?i)^.*(?:site-packages|dist-packages|lib(?:64)?/python\d[\d.]*|python\d+/lib|node_modules|gems"
    r"|rustc/[0-9a-f]+|registry/src|go/src|pkg/mod|usr/lib/ruby)/"
)

_VERSION_IN_NAME = re.compile(r"[-@_]v?\d+(?:\.\d+)+[\w.+-]*(?=/|$)")
_PART_MASKS = tuple(
    (re.compile(pattern), mask)
    for pattern, mask in (
        # A bundle that is named for its content: main.4f3a2b1c.js, chunk-VBNXQKLW.mjs
        (r"(?<=[.-])(?=[a-z]*\d|[A-Z0-9_]+\.)\w{8,}(?=\.(?:js|mjs|cjs|css)$)", "<id>"),
        (r"(?<![A-Za-z])tmp[\w-]{4,}", "<tmp>"),
        (r"\d{4,}[\d.T:_-]*|(?=[0-9a-f]*[a-f])(?=[a-f]*\d)[0-9a-f]{7,}", "<id>"),
        (r"v?\d+(?:\.\d+)+", "<n>"),
    )
)
# What compilers append to a name: numbers of lambdas, of closures, of proxies.
_GENERATED_SUFFIX = re.compile(
    r"\$\$.*$|(?<=[$>])\d[\w$]*|(?<=__)\d+(?:_\d+)*|(?<=DisplayClass)\d+_\d+|(?<=Accessor)\d+|(?<=Proxy)\d+"
)

_QUOTED = re.compile(
    r"(?<![\w])(?:'[^'\n]{0,500}'|\"[^\"\n]{0,500}\"|`[^`\n]{0,500}`|«[^»\n]{0,500}»"
    r"|“[^”\n]{0,500}”|‘[^’\n]{0,500}’|„[^“”\n]{0,500}[“”])(?!\w)"
)
_ASSIGNED = re.compile(r"(?<=[=])\s?(?:\([^()\n]{0,200}\)|[^\s,;()]{1,200})")
_WORD = re.compile(r"[\w.@:/+#%-]+")

_ID_SEGMENTS = re.compile(
    "|".join(
        (
            r"[+-]?\d+",
            r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
            r"(?=[a-fA-F]*\d)[0-9a-fA-F]{8,}",
            # cust-1001, ORD_47, user:9; but not v-2
            r"(?![vV][-_.:])[A-Za-z]+(?:[-_.:][A-Za-z]+)*[-_:]\d+",
            r"(?![vV]\d)[A-Za-z]+\d{3,}",
            r"\d+[-_.:]\d+[-_.:\dTZ]*\d[Z]?",
            r"\d+[-_:.][\w.-]+",
            r"[^@]+@[^@]+",
            # a token: ten characters or more, two of them digits apart from each other
            r"(?=\w{10,}$)(?:[A-Za-z_-]*\d+[A-Za-z_-]+){2,}\d*",
        )
    )
)
_VERSION_SEGMENT = re.compile(r"[vV]?\d{1,2}\.\d{1,2}(?:\.\d{1,2})?")


def signature_of(report: ErrorReport) -> str:
    """Return what makes two errors the same."""
    service = report.service or "service"
    trace = parse_stack_trace(redact(report.traceback))
    if not any(trace.stacks):
        return error_signature(service, _describe_without_frames(report))
    types = sorted(trace.types | {report.type} if report.type else trace.types)
    frames = _deciding_frames(trace)
    name = (report.type or next(iter(types), "error")).rpartition(".")[2]
    location = _raising_frame(trace)
    digest = hashlib.sha256("\n".join((service, *types, "", *frames)).encode("utf-8", "replace"))
    shown = f"{name} in {location}"[:SHOWN_CHARS_MAX]
    return f"{service} | {shown} | #{digest.hexdigest()[:HASH_CHARS]}"


def normalize_route(route: str) -> str:
    """Return a template as it is, of a path what is the same for all ids: /v1/orders/{}/items."""
    path = route.partition("?")[0].partition("#")[0]
    return "/".join("{}" if _is_id(part) else part for part in path.split("/"))[:NAME_CHARS_MAX]


def matches_route(route: str, path: str) -> bool:
    """Return whether a request's path belongs to a route: a template or a normalized path."""
    if route in (path, normalize_route(path)):
        return True
    return re.fullmatch(_template_pattern(route), path) is not None


def is_template(path: str) -> bool:
    """Return whether nobody can ask for this path: ids in it are masked, or named."""
    return any(part["text"] is None for part in _TEMPLATE_PART.finditer(path[:LINE_CHARS]))


def parse_stack_trace(text: str) -> StackTrace:
    """Return types and frames of a stack trace, as Python, Java, JavaScript, .NET, Ruby, PHP, Go or
    Rust write them; no frames for any other text."""
    types: set[str] = set()
    stacks: list[tuple[StackFrame, ...]] = []
    stack: list[StackFrame] = []
    is_python, function = False, ""
    for line in _lines(text):
        if cause := _CAUSE_LINE.match(line):
            types.add(cause["type"])
        if frame := _parse_frame(line, function):
            is_python = _PYTHON_FRAME.match(line) is not None
            stack += [frame] if len(stack) < FRAMES_MAX else []
        elif stack and (cause or (is_python and not line.startswith(" "))):
            if is_python and (error := _PYTHON_ERROR_LINE.match(line)):
                types.add(error["type"])
            stacks.append(tuple(stack if is_python else reversed(stack)))
            stack = []
        declared = _FUNCTION_LINE.match(line)
        function = (declared["go"] or declared["rust"]) if declared else ""
    if stack:
        stacks.append(tuple(stack if is_python else reversed(stack)))
    return StackTrace(frozenset(types), tuple(stacks))


def _lines(text: str) -> Iterator[str]:
    """Yield the lines to read, of a group of errors without the bars that show its tree."""
    is_group = _GROUP_HEADER in text
    for line in text.splitlines()[:SCAN_LINES_MAX]:
        cut_line = line[:LINE_CHARS].rstrip()
        yield _GROUP_PREFIX.sub("", cut_line, count=1) if is_group else cut_line


def _parse_frame(line: str, function: str) -> StackFrame | None:
    """Return the frame of a line; `function` stands on the line before, where a language writes it
    there."""
    if function and (file := _FILE_LINE.match(line)):
        return StackFrame(_unify_path(file["file"]), function)
    for pattern in (_PYTHON_FRAME, *_FRAMES_INNERMOST_FIRST):
        if match := pattern.match(line):
            return StackFrame(_unify_path(match["file"] or ""), (match["function"] or "").strip())
    return None


def _deciding_frames(trace: StackTrace) -> list[str]:
    """Return what counts of the frames, each once, in an order of its own."""
    own_frames = {str(frame) for stack in trace.stacks for frame in stack if not frame.is_library}
    if not own_frames:
        return sorted({str(frame) for stack in trace.stacks for frame in stack})
    return sorted(own_frames | {str(stack[-1]) for stack in trace.stacks})


def _raising_frame(trace: StackTrace) -> StackFrame:
    """Return the frame to show: the app's innermost one of the last error, else the innermost."""
    last = trace.stacks[-1]
    return next((frame for frame in reversed(last) if not frame.is_library), last[-1])


def _unify_path(file: str) -> str:
    return file.replace("\\", "/")


def _shorten_file(file: str) -> str:
    package_file, replaced = _PACKAGE_ROOT.subn("", file)
    if replaced:
        return _VERSION_IN_NAME.sub("", package_file)
    return "/".join(_mask_part(part) for part in file.split("/")[-FILE_PARTS:] if part)


def _mask_part(part: str) -> str:
    for pattern, mask in _PART_MASKS:
        part = pattern.sub(mask, part)
    return part


def _mask_function(function: str) -> str:
    return _GENERATED_SUFFIX.sub("<n>", function)


def _describe_without_frames(report: ErrorReport) -> str:
    """Return the text that decides where no frame does."""
    error_name = report.type or (f"HTTP status {report.status}" if report.status else "error")
    request = f"{report.method} {normalize_route(report.route)}".strip()
    return f"{request}\n{error_name}: {_mask_values(redact(report.message or report.traceback))}"


def _mask_values(message: str) -> str:
    quoted = _QUOTED.sub("<value>", message)
    return _WORD.sub(_mask_word, _ASSIGNED.sub("<value>", quoted))


def _mask_word(word: re.Match[str]) -> str:
    return "<value>" if any(character.isdigit() for character in word[0]) else word[0]


def _is_id(segment: str) -> bool:
    if len(segment) > SEGMENT_CHARS_MAX:
        return True
    if _VERSION_SEGMENT.fullmatch(segment):
        return False
    return _ID_SEGMENTS.fullmatch(segment) is not None


_TEMPLATE_PART = re.compile(
    r"\{(?P<braces>[^{}]*)\}|<(?P<angles>[^<>]*)>|(?<=/):(?P<colon>\w+)|(?P<text>[^{<:]+|.)"
)


def _template_pattern(route: str) -> str:
    """Return a pattern for the paths of a template: of Starlette, Flask, Django, Litestar."""
    pattern = ""
    for part in _TEMPLATE_PART.finditer(route[:LINE_CHARS]):
        if part["text"] is not None:
            pattern += re.escape(part["text"])
        else:
            name = part["braces"] or part["angles"] or part["colon"] or ""
            spans = name.startswith("path:") or name.endswith(":path")
            pattern += ".+" if spans else "[^/]+"
    return pattern
