"""Reading a document into a definition: every wrong shape at once, each with its place.

`msgspec.convert` stops at the first error, which is right for machines and wrong for people. So a
document is first converted whole (fast, the usual case); only if that fails it is read again field
by field, each field that does not fit becomes a Problem and its default stands in, so that the
checks after this one (cycles, reachability) still run over the rest.

Unknown keys are warnings, not errors: a typo deserves a word, a foreign tool's extra key no
refusal.
"""

import difflib
import functools
import itertools
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard, TypeVar

import msgspec
from msgspec import UNSET

from handrail.kernel.decision import Value, learn
from handrail.kernel.definition import (
    Definition,
    Node,
    NodeType,
    Problem,
    StopRules,
    Team,
    Workflow,
)
from handrail.kernel.misfit import in_words

T = TypeVar("T", bound=Value)

DOCUMENT_BYTES_MAX = 10_000_000
PARTS_MAX = 50_000
"""Nodes, edges, agents: more of any than this is refused before anything is computed."""
PROBLEMS_MAX = 1_000
"""Wrong to the thousandth place is wrong enough; the rest is counted, not listed."""

UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_OUT_OF_RANGE = re.compile(r"Expected `(?:int|float)` [<>]")
DURATIONS = frozenset({"timeout", "queue_timeout", "deadline", "max_duration"})
KINDS: dict[str, type[Workflow] | type[Team]] = {"workflow": Workflow, "team": Team}
learn(*KINDS.values(), StopRules)


def seconds(text: str) -> float | None:
    """Seconds of "90", "10m" or "1h30m"; None if it is no duration."""
    compact = text.replace(" ", "").lower()
    if re.fullmatch(r"\d{1,12}(\.\d{1,6})?", compact):
        return float(compact)
    if len(compact) > 40 or not re.fullmatch(f"(?:{_DURATION.pattern})+", compact):
        return None
    return sum(float(number) * UNITS[unit] for number, unit in _DURATION.findall(compact))


def read_json(raw: bytes | str) -> tuple[object, list[Problem]]:
    """The decoded document, or why it is none."""
    size = len(raw) if isinstance(raw, bytes) else len(raw.encode())
    if size > DOCUMENT_BYTES_MAX:
        return None, [too_large(size)]
    try:
        return msgspec.json.decode(raw), []
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return None, [Problem(code="not_json", path="$", message=str(error))]


def too_large(size: int) -> Problem:
    return Problem(
        code="too_large",
        path="$",
        message=f"the document has {size:,} bytes; at most {DOCUMENT_BYTES_MAX:,} are read",
        hint="split it into several definitions",
    )


def read(document: object) -> tuple[Definition | None, list[Problem], list[Problem]]:
    """(definition, errors, warnings). With errors the definition is what could be saved."""
    if (unwritable := _unwritable(document)) is not None:
        return None, [unwritable], []
    if not is_mapping(document):
        return None, [_wrong("$", document, "an object with name, kind and the rest")], []
    kind = document.get("kind", "team" if "agents" in document else "workflow")
    cls = KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        message = f"kind is {_short(kind)}; a definition is a 'workflow' or a 'team'"
        return None, [Problem(code="bad_kind", path="$.kind", message=message)], []
    for part in ("nodes", "edges", "agents"):
        held = document.get(part)
        if isinstance(held, list) and len(typing.cast("list[object]", held)) > PARTS_MAX:
            count = len(typing.cast("list[object]", held))
            message = f"{count:,} {part}; at most {PARTS_MAX:,} are read"
            return None, [Problem(code="too_large", path=f"$.{part}", message=message)], []
    plain = _durations({**document, "kind": kind})
    try:
        definition = msgspec.convert(plain, cls)
        return definition, [], _doubts(cls, plain)
    except msgspec.ValidationError:
        errors: list[Problem] = []
        saved = _salvage(cls, plain, "$", errors)
        if not errors:  # pragma: no cover - the two readers disagree: a defect, still no definition
            errors.append(Problem(code="wrong_type", path="$", message="not a definition"))
        if len(errors) > PROBLEMS_MAX:
            more = len(errors) - PROBLEMS_MAX
            last = Problem(code="too_many", path="$", message=f"and {more} more wrong places")
            errors[PROBLEMS_MAX:] = [last]
        return saved, errors, _doubts(cls, plain)


def _unwritable(document: object) -> Problem | None:
    """Why no store could keep the document: what came as YAML or from a program may be no JSON."""
    try:
        size = len(msgspec.json.encode(document))
    except RecursionError:
        return Problem(code="too_deep", path="$", message="the document is nested too deeply")
    except (TypeError, ValueError) as error:
        message = f"this cannot be written as JSON: {error}"
        return Problem(code="not_json", path=_unwritable_place(document), message=message)
    return too_large(size) if size > DOCUMENT_BYTES_MAX else None


def _unwritable_place(value: object, path: str = "$") -> str:
    """The innermost part that cannot be written."""
    parts: list[tuple[str, object]] = []
    if is_mapping(value):
        parts = [(f"{path}.{ascii(key)[1:-1][:80]}", held) for key, held in value.items()]
    elif isinstance(value, list):
        many = typing.cast("list[object]", value)
        parts = [(f"{path}[{i}]", held) for i, held in enumerate(many)]
    for place, held in parts:
        try:
            msgspec.json.encode(held)
        except (TypeError, ValueError):
            return _unwritable_place(held, place)
    return path


def read_rules(document: object) -> tuple[StopRules | None, list[Problem]]:
    """Stop rules on their own, as a guard takes them."""
    if (unwritable := _unwritable(document)) is not None:
        return None, [unwritable]
    plain, errors = _durations(document), list[Problem]()
    try:
        return msgspec.convert(plain, StopRules), []
    except msgspec.ValidationError:
        _salvage(StopRules, plain, "stop_rules", errors)
        return None, errors


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping) and all(
        isinstance(key, str) for key in typing.cast("Mapping[object, object]", value)
    )


def _durations(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The same document with durations such as "10m" in seconds; what is none stays as it is."""
    parts = ("nodes", "config", "stop_rules", "review")
    if not is_mapping(value):
        return value
    plain: dict[str, Any] = {}
    for key, held in value.items():
        if key in DURATIONS and isinstance(held, str):
            known = seconds(held)
            plain[key] = held if known is None else known
        elif key in parts and isinstance(held, list):
            plain[key] = [_durations(one) for one in typing.cast("list[Any]", held)]
        elif key in parts:
            plain[key] = _durations(held)
        else:
            plain[key] = held
    return plain


def _salvage(cls: type[T], value: object, path: str, errors: list[Problem]) -> T | None:
    """An instance of cls from what fits; None where something needed is missing or misfit."""
    if not is_mapping(value):
        errors.append(_wrong(path, value, "an object"))
        return None
    kept: dict[str, Any] = {}
    complete = True
    for field, inner in _fields(cls).values():
        if field.encode_name not in value:
            if field.required:
                complete = complete and field.name == "type"
                errors.append(_missing(f"{path}.{field.name}", field.name))
            continue
        known = len(errors)
        held = _field(field, inner, value[field.encode_name], f"{path}.{field.name}", errors)
        if len(errors) == known or held is not UNSET:
            kept[field.name] = held
        elif field.required and field.name != "type":
            complete = False
    if cls is Node and "type" not in kept:
        # Any type will do: a node that is left out would move the places of all that follow it.
        kept = {"role": "ceo", **kept, "type": NodeType.TASK}
    return cls(**kept) if complete else None


def _field(
    field: msgspec.structs.FieldInfo,
    inner: type[Value] | None,
    value: object,
    path: str,
    errors: list[Problem],
) -> Any:  # noqa: ANN401 - of the field's type
    """The field's value, or UNSET (with an error) if nothing of it can be kept."""
    if inner is not None and typing.get_origin(field.type) is tuple:
        if not isinstance(value, list | tuple):
            errors.append(_wrong(path, value, "a list"))
            return ()
        many = typing.cast("list[object]", value)
        kept = (_salvage(inner, one, f"{path}[{i}]", errors) for i, one in enumerate(many))
        return tuple(one for one in kept if one is not None)
    if inner is not None and value is not None:
        saved = _salvage(inner, value, path, errors)
        return UNSET if saved is None else saved
    try:
        return msgspec.convert(value, field.type)
    except msgspec.ValidationError as error:
        hint = 'write seconds, or for example "10m"' if field.name in DURATIONS else ""
        message = f"{_short(value)} does not fit: it {in_words(str(error).split(' - at ')[0])}"
        errors.append(Problem(code=_code(field, str(error)), path=path, message=message, hint=hint))
        return UNSET


def _code(field: msgspec.structs.FieldInfo, error: str) -> str:
    if field.name == "type":
        return "bad_node_type"
    return "bad_limit" if _OUT_OF_RANGE.match(error) else "wrong_type"


def _struct_within(annotation: object) -> type[Value] | None:
    """The Struct in `S`, `S | None` or `tuple[S, ...]`; None for plain values."""
    if isinstance(annotation, type) and issubclass(annotation, Value):
        return annotation
    if typing.get_origin(annotation) in (tuple, types.UnionType, typing.Union):
        return next(
            (s for arg in typing.get_args(annotation) if (s := _struct_within(arg)) is not None),
            None,
        )
    return None


@functools.cache
def _fields(cls: type[Value]) -> dict[str, tuple[msgspec.structs.FieldInfo, type[Value] | None]]:
    """The fields of cls by key, each with the Struct within, if any."""
    return {f.encode_name: (f, _struct_within(f.type)) for f in msgspec.structs.fields(cls)}


def _doubts(cls: type[Value], document: object) -> list[Problem]:
    return list(itertools.islice(_unknown_keys(cls, document, "$"), PROBLEMS_MAX))


def _unknown_keys(cls: type[Value], value: object, path: str) -> Iterator[Problem]:
    if not is_mapping(value):
        return
    config = cls.__struct_config__
    fields = _fields(cls)
    for key, held in value.items():
        if key not in fields and key != config.tag_field:
            close = difflib.get_close_matches(key[:80], fields, n=1)
            yield Problem(
                code="unknown_field",
                path=f"{path}.{key[:80]}",
                message=f"{_short(key)} is not read",
                hint=f"did you mean '{close[0]}'?" if close else "",
            )
        elif key in fields and (inner := fields[key][1]) is not None:
            many = isinstance(held, list)
            for i, one in enumerate(typing.cast("list[object]", held) if many else [held]):
                yield from _unknown_keys(inner, one, f"{path}.{key}" + (f"[{i}]" if many else ""))


def _missing(path: str, name: str) -> Problem:
    return Problem(code="missing", path=path, message=f"'{name}' is missing", hint=f"add '{name}'")


def _wrong(path: str, value: object, wanted: str) -> Problem:
    message = f"{_short(value)} stands where {wanted} is wanted"
    return Problem(code="wrong_type", path=path, message=message)


def _short(value: object) -> str:
    """The value as evidence, never longer than a line."""
    if isinstance(value, Mapping):
        known = is_mapping(typing.cast("object", value))
        return "an object" if known else "an object with keys that are no text"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "a huge number"
    return text if len(text) <= 60 else f"{text[:57]}..."
