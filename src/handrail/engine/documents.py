"""From a file's bytes to a plain document: objects, lists, texts, numbers, true, false, null.

What is wrong comes back as problems with line and column; nothing here raises for bad input.

1. Size first, then UTF-8, then JSON or YAML: by the file's extension, else by the first character.
2. YAML is read from the parser's events by a loop, not by recursion. It is the JSON-like part of
   YAML 1.2: `yes` and `on` are texts, so are dates; keys are texts and stand once; anchors, aliases
   and tags are refused, because a few lines of them can mean a document of any size.
3. JSON is read by the standard library, which says line and column. A key that stands twice, NaN
   and lone surrogates are refused there too.

What the document *means* is the business of `kernel/reading.py` and the rules after it.
"""

import json
import re
from pathlib import Path
from typing import Any, cast

import yaml

from handrail.kernel.definition import Problem
from handrail.kernel.reading import DOCUMENT_BYTES_MAX, too_large

Document = dict[str, Any] | list[Any] | str | int | float | bool | None

DEPTH_MAX = 100
JSON_SUFFIXES = frozenset({".json"})
YAML_SUFFIXES = frozenset({".yaml", ".yml"})

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNTYPED: Any = yaml  # its `parse` has no usable types
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_INT = re.compile(r"[-+]?[0-9]{1,400}")
_BASED = {"0x": (16, re.compile(r"0x[0-9a-fA-F]{1,400}")), "0o": (8, re.compile(r"0o[0-7]{1,400}"))}
_FLOAT = re.compile(r"[-+]?(\.[0-9]{1,400}|[0-9]{1,400}(\.[0-9]{0,400})?)([eE][-+]?[0-9]{1,9})?")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def load(source: Path | str) -> tuple[Document, list[Problem]]:
    """The document in a file, or in a text. With problems the document is None."""
    if isinstance(source, str):
        return read(source.encode("utf-8", "surrogatepass"))
    try:
        with source.open("rb") as file:
            raw = file.read(DOCUMENT_BYTES_MAX + 1)
        size = max(len(raw), source.stat().st_size)
    except OSError as error:
        why = error.strerror or type(error).__name__
        return None, [_problem("unreadable", f"cannot be read: {why}", "name a file that can be")]
    return read(raw, source.suffix) if size == len(raw) else (None, [too_large(size)])


def read(raw: bytes, suffix: str = "") -> tuple[Document, list[Problem]]:
    """The document in these bytes; `suffix` is the file's, if it had one."""
    if len(raw) > DOCUMENT_BYTES_MAX:
        return None, [too_large(len(raw))]
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        told = f"line {line}: byte {error.start} is not UTF-8"
        return None, [_problem("not_text", told, "save the file as UTF-8")]
    if not text.strip():
        told = "the document is empty"
        return None, [_problem("empty", told, "a definition has name, kind and the rest")]
    known = suffix.lower()
    looks_like_json = known not in YAML_SUFFIXES and text.lstrip()[0] in "{["
    try:
        if known in JSON_SUFFIXES or looks_like_json:
            return _read_json(text), []
        return _Builder().build(text), []
    except _WrongError as wrong:
        return None, [wrong.problem]


class _WrongError(Exception):
    """The first thing that makes a text no document."""

    def __init__(self, code: str, message: str, hint: str = "", path: str = "$") -> None:
        super().__init__(message)
        self.problem = Problem(code=code, path=path, message=message, hint=hint)


def _problem(code: str, message: str, hint: str = "") -> Problem:
    return Problem(code=code, path="$", message=message, hint=hint)


def _read_json(text: str) -> Document:
    try:
        document: Document = json.loads(
            text, object_pairs_hook=_object, parse_constant=_no_constant
        )
        if _SURROGATE.search(text):
            json.dumps(document, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        told = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise _WrongError("not_json", told, "correct the JSON there") from None
    except _TwiceError as twice:
        raise _found_twice(text, twice.key) from None
    except RecursionError:
        raise _too_deep() from None
    except UnicodeEncodeError:
        told = "a text holds half of a surrogate pair"
        raise _WrongError("not_json", told, "write the character itself") from None
    except ValueError as error:  # NaN, or a number of thousands of digits
        raise _WrongError("not_json", str(error).split(":")[0]) from None
    if _deep(document):
        raise _too_deep()
    return document


def _deep(document: Document) -> bool:
    level: list[Any] = [document]
    for _ in range(DEPTH_MAX + 1):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner.extend(cast("dict[str, Any]", one).values())
            elif isinstance(one, list):
                inner.extend(cast("list[Any]", one))
        if not inner:
            return False
        level = inner
    return True


def _too_deep(place: str = "") -> _WrongError:
    return _WrongError("too_deep", f"{place}nested more than {DEPTH_MAX} deep", "flatten it")


def _found_twice(text: str, key: str) -> _WrongError:
    """The YAML reader knows places, and JSON is nearly a part of YAML."""
    try:
        _Builder().build(text)
    except _WrongError as found:
        if found.problem.code == "duplicate_key":
            return found
    return _twice(key, "$", "somewhere")


class _TwiceError(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _TwiceError(key)
            seen.add(key)
    return out


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _twice(key: str, path: str, place: str) -> _WrongError:
    told = f"{place}: the key '{key[:80]}' stands here a second time in one object"
    return _WrongError("duplicate_key", told, "remove or rename one", path)


class _Open:
    """An object or a list that is being filled; `key` is the key that waits for its value."""

    __slots__ = ("items", "key", "path")

    def __init__(self, items: dict[str, Any] | list[Any], path: str) -> None:
        self.items, self.path = items, path
        self.key: str | None = None

    def next_path(self) -> str:
        if isinstance(self.items, list):
            return f"{self.path}[{len(self.items)}]"
        return f"{self.path}.{(self.key or '')[:80]}"


class _Builder:
    """YAML events to a document. `stack` holds the open objects and lists, outermost first."""

    def __init__(self) -> None:
        self.stack: list[_Open] = []
        self.document: Document = None
        self.documents = 0

    def build(self, text: str) -> Document:
        try:
            for event in _UNTYPED.parse(text, Loader=_LOADER):
                self.take(event)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
            what = error.problem or error.context or "no YAML"
            raise _WrongError("not_yaml", f"{place}{what}", "correct the YAML there") from None
        except yaml.YAMLError as error:
            raise _WrongError("not_yaml", str(error).splitlines()[0]) from None
        return self.document

    def take(self, event: Any) -> None:  # noqa: ANN401 - yaml's events have no common fields
        """Only what begins, ends or is a value matters."""
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                told = f"{_place(event)}: a second document begins"
                raise _WrongError("not_yaml", told, "one definition a file")
        elif isinstance(event, yaml.AliasEvent):
            told = f"{_place(event)}: the alias '*{event.anchor}'"
            raise _WrongError("alias", told, "write the value out", self.path())
        elif isinstance(event, yaml.ScalarEvent):
            self.plain(event)
            self.scalar(event)
        elif isinstance(event, yaml.MappingStartEvent):
            self.open(event, {})
        elif isinstance(event, yaml.SequenceStartEvent):
            self.open(event, [])
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self.stack.pop()

    def path(self) -> str:
        return self.stack[-1].next_path() if self.stack else "$"

    def plain(self, event: Any) -> None:  # noqa: ANN401 - as above
        """Neither anchor nor tag: a value is what is written."""
        if event.anchor is not None:
            told = f"{_place(event)}: the anchor '&{event.anchor}'"
            raise _WrongError("alias", told, "write the value out", self.path())
        if event.tag is not None and event.tag != "!":
            told = f"{_place(event)}: the tag '{str(event.tag)[:80]}'"
            raise _WrongError("tag", told, "leave it out; quotes make a text", self.path())

    def scalar(self, event: Any) -> None:  # noqa: ANN401 - as above
        quoted = not event.implicit[0]
        value: str = event.value
        top = self.stack[-1] if self.stack else None
        if top is None or isinstance(top.items, list) or top.key is not None:
            self.add(value if quoted else _resolved(value))
            return
        if not quoted and not isinstance(_resolved(value), str):
            told = f"{_place(event)}: the key {value or 'null'} is no text"
            raise _WrongError("bad_key", told, "put it in quotes", top.path)
        if value in top.items:
            raise _twice(value, f"{top.path}.{value[:80]}", _place(event))
        top.key = value

    def open(self, event: Any, items: dict[str, Any] | list[Any]) -> None:  # noqa: ANN401 - as above
        self.plain(event)
        top = self.stack[-1] if self.stack else None
        if top is not None and isinstance(top.items, dict) and top.key is None:
            told = f"{_place(event)}: a key is an object or a list"
            raise _WrongError("bad_key", told, "keys are texts", top.path)
        if len(self.stack) >= DEPTH_MAX:
            raise _too_deep(f"{_place(event)}: ")
        path = self.path()
        self.add(items)
        self.stack.append(_Open(items, path))

    def add(self, value: Any) -> None:  # noqa: ANN401 - as above
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


def _place(event: Any) -> str:  # noqa: ANN401 - as above
    mark = event.start_mark
    return f"line {mark.line + 1}, column {mark.column + 1}"


def _resolved(value: str) -> str | int | float | bool | None:
    """What a plain scalar means in YAML 1.2: null, true, false, a number, else a text."""
    if value in _WORDS:
        return _WORDS[value]
    if _INT.fullmatch(value):
        return int(value)
    based = _BASED.get(value[:2])
    if based is not None and based[1].fullmatch(value):
        return int(value[2:], based[0])
    return float(value) if _FLOAT.fullmatch(value) else value
