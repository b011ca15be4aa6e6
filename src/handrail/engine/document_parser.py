"""From a file's bytes to a plain document: objects, lists, texts, numbers, true, false, null.

Errors come back as problems with line and column; nothing here raises for bad input.

1. Size first, then UTF-8, then JSON or YAML: by the file's extension, else by the first character.
2. YAML is read from the parser's events by a loop, not by recursion. It is the JSON-like part of
   YAML 1.2: `yes` and `on` are texts, so are dates; keys are texts and stand once; anchors, aliases
   and tags are refused, because a few lines of them can mean a document of any size.
3. JSON is read by the standard library, which says line and column. A key that stands twice, NaN
   and lone surrogates are refused there too.

`kernel/definition/reader.py` and the checks after it interpret the document.
"""

import json
import re
from pathlib import Path
from typing import Any, cast

from handrail.engine.errors import install_hint
from handrail.kernel.definition.model import DocumentProblem
from handrail.kernel.definition.reader import DOCUMENT_BYTES_MAX, too_large_problem

Document = dict[str, Any] | list[Any] | str | int | float | bool | None

DEPTH_MAX = 100
JSON_SUFFIXES = frozenset({".json"})
YAML_SUFFIXES = frozenset({".yaml", ".yml"})

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_INT = re.compile(r"[-+]?[0-9]{1,400}")
_BASED_INTS = {
    "0x": (16, re.compile(r"0x[0-9a-fA-F]{1,400}")),
    "0o": (8, re.compile(r"0o[0-7]{1,400}")),
}
_FLOAT = re.compile(r"[-+]?(\.[0-9]{1,400}|[0-9]{1,400}(\.[0-9]{0,400})?)([eE][-+]?[0-9]{1,9})?")
_SCALAR_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def load_document(source: Path | str) -> tuple[Document, list[DocumentProblem]]:
    """Load the document in a file, or in a text. With problems the document is None."""
    if isinstance(source, str):
        return parse_document(source.encode("utf-8", "surrogatepass"))
    try:
        with source.open("rb") as file:
            raw = file.read(DOCUMENT_BYTES_MAX + 1)
        size = max(len(raw), source.stat().st_size)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return None, [_problem("unreadable", f"cannot be read: {reason}", "name a readable file")]
    return (
        parse_document(raw, source.suffix)
        if size == len(raw)
        else (None, [too_large_problem(size)])
    )


def parse_document(raw: bytes, suffix: str = "") -> tuple[Document, list[DocumentProblem]]:
    """Parse the document in these bytes; `suffix` is the file's, if it had one."""
    if len(raw) > DOCUMENT_BYTES_MAX:
        return None, [too_large_problem(len(raw))]
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"line {line}: byte {error.start} is not UTF-8"
        return None, [_problem("not_text", message, "save the file as UTF-8")]
    if not text.strip():
        message = "the document is empty"
        return None, [
            _problem("empty", message, "write a definition, with name, kind, and nodes or agents")
        ]
    extension = suffix.lower()
    looks_like_json = extension not in YAML_SUFFIXES and text.lstrip()[0] in "{["
    try:
        if extension in JSON_SUFFIXES or looks_like_json:
            return _parse_json(text), []
        return _YamlBuilder().build(text), []
    except _DocumentError as error_found:
        return None, [error_found.problem]
    except ModuleNotFoundError as missing:
        message = f"YAML is not read without the package '{missing.name}'"
        return None, [_problem("not_installed", message, install_hint("server"))]


class _DocumentError(Exception):
    """The first error of a text that is not a document."""

    def __init__(self, code: str, message: str, hint: str = "", path: str = "$") -> None:
        super().__init__(message)
        self.problem = DocumentProblem(code=code, path=path, message=message, hint=hint)


def _problem(code: str, message: str, hint: str = "") -> DocumentProblem:
    return DocumentProblem(code=code, path="$", message=message, hint=hint)


def _parse_json(text: str) -> Document:
    try:
        document: Document = json.loads(
            text, object_pairs_hook=_unique_object, parse_constant=_refuse_constant
        )
        if _SURROGATE.search(text):
            json.dumps(document, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        message = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise _DocumentError("not_json", message, "correct the JSON there") from None
    except _DuplicateKeyError as duplicate:
        raise _locate_duplicate(text, duplicate.key) from None
    except RecursionError:
        raise _too_deep_error() from None
    except UnicodeEncodeError:
        message = "a text contains a lone surrogate"
        raise _DocumentError("not_json", message, "write the character itself") from None
    except ValueError as error:  # NaN, or a number of thousands of digits
        raise _DocumentError("not_json", str(error).split(":")[0]) from None
    if _is_too_deep(document):
        raise _too_deep_error()
    return document


def _is_too_deep(document: Document) -> bool:
    level: list[Any] = [document]
    for _ in range(DEPTH_MAX + 1):
        inner: list[Any] = []
        for container in level:
            if isinstance(container, dict):
                inner.extend(cast("dict[str, Any]", container).values())
            elif isinstance(container, list):
                inner.extend(cast("list[Any]", container))
        if not inner:
            return False
        level = inner
    return True


def _too_deep_error(location: str = "") -> _DocumentError:
    return _DocumentError("too_deep", f"{location}nested more than {DEPTH_MAX} deep", "flatten it")


def _locate_duplicate(text: str, key: str) -> _DocumentError:
    """Locate the key with the YAML reader, which knows places; JSON is nearly a part of YAML."""
    try:
        _YamlBuilder().build(text)
    except _DocumentError as error:
        if error.problem.code == "duplicate_key":
            return error
    except ModuleNotFoundError:
        pass  # where no YAML is read, the place stays unknown
    return _duplicate_error(key, "$", "somewhere")


class _DuplicateKeyError(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DuplicateKeyError(key)
            seen.add(key)
    return document


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _duplicate_error(key: str, path: str, location: str) -> _DocumentError:
    return _DocumentError(
        "duplicate_key",
        f"{location}: the key '{key[:80]}' occurs twice in one object",
        "remove or rename one",
        path,
    )


class _OpenContainer:
    """An object or a list that is being filled; `key` is the key that waits for its value."""

    __slots__ = ("items", "key", "path")

    def __init__(self, items: dict[str, Any] | list[Any], path: str) -> None:
        self.items, self.path = items, path
        self.key: str | None = None

    def next_path(self) -> str:
        if isinstance(self.items, list):
            return f"{self.path}[{len(self.items)}]"
        return f"{self.path}.{(self.key or '')[:80]}"


class _YamlBuilder:
    """YAML events to a document. `stack` holds the open objects and lists, outermost first."""

    def __init__(self) -> None:
        import yaml  # a guard needs no YAML, and its install has none

        self.yaml: Any = yaml  # its `parse` has no usable types
        self.stack: list[_OpenContainer] = []
        self.document: Document = None
        self.documents = 0

    def build(self, text: str) -> Document:
        yaml = self.yaml
        try:
            for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
                self.handle_event(event)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            location = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
            problem = error.problem or error.context or "no YAML"
            raise _DocumentError(
                "not_yaml", f"{location}{problem}", "correct the YAML there"
            ) from None
        except yaml.YAMLError as error:
            raise _DocumentError("not_yaml", str(error).splitlines()[0]) from None
        return self.document

    def handle_event(self, event: Any) -> None:  # noqa: ANN401 - yaml's events have no common fields
        """Handle an event that begins, ends or is a value; ignore others."""
        yaml = self.yaml
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                message = f"{_location(event)}: a second document begins"
                raise _DocumentError("not_yaml", message, "write one definition per file")
        elif isinstance(event, yaml.AliasEvent):
            message = f"{_location(event)}: the alias '*{event.anchor}'"
            raise _DocumentError("alias", message, "write the value out", self.current_path())
        elif isinstance(event, yaml.ScalarEvent):
            self.check_untagged(event)
            self.add_scalar(event)
        elif isinstance(event, yaml.MappingStartEvent):
            self.open_container(event, {})
        elif isinstance(event, yaml.SequenceStartEvent):
            self.open_container(event, [])
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self.stack.pop()

    def current_path(self) -> str:
        return self.stack[-1].next_path() if self.stack else "$"

    def check_untagged(self, event: Any) -> None:  # noqa: ANN401 - as above
        """Refuse anchors and tags: a value is what is written."""
        if event.anchor is not None:
            message = f"{_location(event)}: the anchor '&{event.anchor}'"
            raise _DocumentError("alias", message, "write the value out", self.current_path())
        if event.tag is not None and event.tag != "!":
            message = f"{_location(event)}: the tag '{str(event.tag)[:80]}'"
            raise _DocumentError(
                "tag", message, "leave it out; quotes make a text", self.current_path()
            )

    def add_scalar(self, event: Any) -> None:  # noqa: ANN401 - as above
        is_quoted = not event.implicit[0]
        value: str = event.value
        top = self.stack[-1] if self.stack else None
        if top is None or isinstance(top.items, list) or top.key is not None:
            self.add_value(value if is_quoted else _resolve_scalar(value))
            return
        if not is_quoted and not isinstance(_resolve_scalar(value), str):
            message = f"{_location(event)}: the key {value or 'null'} is no text"
            raise _DocumentError("bad_key", message, "put it in quotes", top.path)
        if value in top.items:
            raise _duplicate_error(value, f"{top.path}.{value[:80]}", _location(event))
        top.key = value

    def open_container(self, event: Any, items: dict[str, Any] | list[Any]) -> None:  # noqa: ANN401 - as above
        self.check_untagged(event)
        top = self.stack[-1] if self.stack else None
        if top is not None and isinstance(top.items, dict) and top.key is None:
            raise _DocumentError(
                "bad_key",
                f"{_location(event)}: a key is an object or a list",
                "write keys as texts",
                top.path,
            )
        if len(self.stack) >= DEPTH_MAX:
            raise _too_deep_error(f"{_location(event)}: ")
        path = self.current_path()
        self.add_value(items)
        self.stack.append(_OpenContainer(items, path))

    def add_value(self, value: Any) -> None:  # noqa: ANN401 - as above
        if not self.stack:
            self.document = value
            return
        top = self.stack[-1]
        if isinstance(top.items, list):
            top.items.append(value)
        else:
            assert top.key is not None, "a value follows its key"
            top.items[top.key] = value
            top.key = None


def _location(event: Any) -> str:  # noqa: ANN401 - as above
    mark = event.start_mark
    return f"line {mark.line + 1}, column {mark.column + 1}"


def _resolve_scalar(value: str) -> str | int | float | bool | None:
    """Resolve a plain scalar of YAML 1.2: null, true, false, a number, else a text."""
    if value in _SCALAR_WORDS:
        return _SCALAR_WORDS[value]
    if _INT.fullmatch(value):
        return int(value)
    based = _BASED_INTS.get(value[:2])
    if based is not None and based[1].fullmatch(value):
        return int(value[2:], based[0])
    return float(value) if _FLOAT.fullmatch(value) else value
