"""Read a document into a definition and report every wrong shape at once, each with its path.

`msgspec.convert` stops at the first error, which is right for machines and wrong for people. So the
reader first converts the whole document (fast, the usual case). Only if that fails it reads field
by field: each field that does not fit becomes a DocumentProblem and its default replaces it, so
that the later checks (cycles, reachability) still run over the rest.

Unknown keys are warnings, not errors: a typo deserves a warning, but another tool's extra key is no
reason for a refusal.
"""

import difflib
import functools
import itertools
import re
import types
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, TypeGuard, TypeVar

import msgspec
from msgspec import UNSET

from handrail.kernel.decision import Value, prepare_types
from handrail.kernel.definition.limits import StopRules
from handrail.kernel.definition.model import (
    Definition,
    DocumentProblem,
    Node,
    NodeType,
    Team,
    Workflow,
)
from handrail.kernel.validation_messages import explain_validation_error

T = TypeVar("T", bound=Value)

DOCUMENT_BYTES_MAX = 10_000_000
PARTS_MAX = 50_000
"""Limit for each of nodes, edges and agents; a larger document is refused before any work."""
PROBLEMS_MAX = 1_000
"""Problems listed per document; the rest is counted, not listed."""

DURATION_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_OUT_OF_RANGE = re.compile(r"Expected `(?:int|float)` [<>]")
DURATION_FIELDS = frozenset(
    {"timeout", "queue_timeout", "deadline", "max_duration", "waits_within", "wait_deadline"}
)
KINDS: dict[str, type[Workflow] | type[Team]] = {"workflow": Workflow, "team": Team}
prepare_types(*KINDS.values(), StopRules)


def parse_duration(text: str) -> float | None:
    """Return the seconds of "90", "10m" or "1h30m"; None if the text is not a duration."""
    compact = text.replace(" ", "").lower()
    if re.fullmatch(r"\d{1,12}(\.\d{1,6})?", compact):
        return float(compact)
    if len(compact) > 40 or not re.fullmatch(f"(?:{_DURATION.pattern})+", compact):
        return None
    return sum(float(number) * DURATION_UNITS[unit] for number, unit in _DURATION.findall(compact))


def decode_document(raw: bytes | str) -> tuple[object, list[DocumentProblem]]:
    """Return the decoded document, or the problem that prevents it."""
    size = len(raw) if isinstance(raw, bytes) else len(raw.encode())
    if size > DOCUMENT_BYTES_MAX:
        return None, [too_large_problem(size)]
    try:
        return msgspec.json.decode(raw), []
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return None, [DocumentProblem(code="not_json", path="$", message=str(error))]


def too_large_problem(size: int) -> DocumentProblem:
    return DocumentProblem(
        code="too_large",
        path="$",
        message=f"the document has {size:,} bytes; at most {DOCUMENT_BYTES_MAX:,} are read",
        hint="split it into several definitions",
    )


def read_definition(
    document: object,
) -> tuple[Definition | None, list[DocumentProblem], list[DocumentProblem]]:
    """Return (definition, errors, warnings). With errors, the definition holds what is usable."""
    if (problem := _encoding_problem(document)) is not None:
        return None, [problem], []
    if not is_mapping(document):
        return None, [_wrong_type("$", document, "an object with name, kind and the rest")], []
    kind = document.get("kind", "team" if "agents" in document else "workflow")
    cls = KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        return (
            None,
            [
                DocumentProblem(
                    code="bad_kind",
                    path="$.kind",
                    message=f"kind is {_describe(kind)}; a definition is a 'workflow' or a 'team'",
                )
            ],
            [],
        )
    for part in ("nodes", "edges", "agents"):
        items = document.get(part)
        if isinstance(items, list) and len(typing.cast("list[object]", items)) > PARTS_MAX:
            count = len(typing.cast("list[object]", items))
            return (
                None,
                [
                    DocumentProblem(
                        code="too_large",
                        path=f"$.{part}",
                        message=f"{count:,} {part}; at most {PARTS_MAX:,} are read",
                    )
                ],
                [],
            )
    normalized = _normalize_durations({**document, "kind": kind})
    try:
        return msgspec.convert(normalized, cls), [], _unknown_key_warnings(cls, normalized)
    except msgspec.ValidationError:
        errors: list[DocumentProblem] = []
        salvaged = _salvage(cls, normalized, "$", errors)
        if not errors:  # pragma: no cover - the two readers disagree: a defect, still no definition
            errors.append(
                DocumentProblem(
                    code="wrong_type", path="$", message="the document is not a definition"
                )
            )
        if len(errors) > PROBLEMS_MAX:
            extra_count = len(errors) - PROBLEMS_MAX
            last = DocumentProblem(
                code="too_many",
                path="$",
                message=f"{extra_count} more values are wrong; correct those above first",
            )
            errors[PROBLEMS_MAX:] = [last]
        return salvaged, errors, _unknown_key_warnings(cls, normalized)


def _encoding_problem(document: object) -> DocumentProblem | None:
    """Return why JSON cannot represent the document, which may come from YAML or a program."""
    try:
        size = len(msgspec.json.encode(document))
    except RecursionError:
        return DocumentProblem(
            code="too_deep", path="$", message="the document is nested too deeply"
        )
    except (TypeError, ValueError) as error:
        return DocumentProblem(
            code="not_json",
            path=_unencodable_path(document),
            message=f"the value cannot be written as JSON: {error}",
        )
    return too_large_problem(size) if size > DOCUMENT_BYTES_MAX else None


def _unencodable_path(value: object, path: str = "$") -> str:
    """Return the path of the innermost part that JSON cannot represent."""
    parts: list[tuple[str, object]] = []
    if is_mapping(value):
        parts = [(f"{path}.{ascii(key)[1:-1][:80]}", item) for key, item in value.items()]
    elif isinstance(value, list):
        items = typing.cast("list[object]", value)
        parts = [(f"{path}[{i}]", item) for i, item in enumerate(items)]
    for item_path, item in parts:
        try:
            msgspec.json.encode(item)
        except (TypeError, ValueError):
            return _unencodable_path(item, item_path)
    return path


def read_stop_rules(document: object) -> tuple[StopRules | None, list[DocumentProblem]]:
    """Read stop rules without a definition, for a guard."""
    if (problem := _encoding_problem(document)) is not None:
        return None, [problem]
    normalized, errors = _normalize_durations(document), list[DocumentProblem]()
    try:
        return msgspec.convert(normalized, StopRules), []
    except msgspec.ValidationError:
        _salvage(StopRules, normalized, "stop_rules", errors)
        return None, errors


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping) and all(
        isinstance(key, str) for key in typing.cast("Mapping[object, object]", value)
    )


def _normalize_durations(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return the document with durations such as "10m" in seconds; other values stay."""
    parts = ("nodes", "config", "stop_rules", "review")
    if not is_mapping(value):
        return value
    normalized: dict[str, Any] = {}
    for key, field_value in value.items():
        if key in DURATION_FIELDS and isinstance(field_value, str):
            parsed = parse_duration(field_value)
            normalized[key] = field_value if parsed is None else parsed
        elif key in parts and isinstance(field_value, list):
            normalized[key] = [
                _normalize_durations(item) for item in typing.cast("list[Any]", field_value)
            ]
        elif key in parts:
            normalized[key] = _normalize_durations(field_value)
        else:
            normalized[key] = field_value
    return normalized


def _salvage(cls: type[T], value: object, path: str, errors: list[DocumentProblem]) -> T | None:
    """Build cls from the fields that fit; None if a required field is missing or does not fit."""
    if not is_mapping(value):
        errors.append(_wrong_type(path, value, "an object"))
        return None
    fields: dict[str, Any] = {}
    complete = True
    for field, inner in _struct_fields(cls).values():
        if field.encode_name not in value:
            if field.required:
                complete = complete and field.name == "type"
                errors.append(_missing(f"{path}.{field.name}", field.name))
            continue
        errors_before = len(errors)
        field_value = _salvage_field(
            field, inner, value[field.encode_name], f"{path}.{field.name}", errors
        )
        if len(errors) == errors_before or field_value is not UNSET:
            fields[field.name] = field_value
        elif field.required and field.name != "type":
            complete = False
    if cls is Node and "type" not in fields:
        # Any type will do: leaving the node out would shift the paths of all later nodes.
        fields = {"role": "ceo", **fields, "type": NodeType.TASK}
    return cls(**fields) if complete else None


def _salvage_field(
    field: msgspec.structs.FieldInfo,
    inner: type[Value] | None,
    value: object,
    path: str,
    errors: list[DocumentProblem],
) -> Any:  # noqa: ANN401 - of the field's type
    """Return the field's value, or UNSET (with an error) if nothing of it is usable."""
    if inner is not None and typing.get_origin(field.type) is tuple:
        if not isinstance(value, list | tuple):
            errors.append(_wrong_type(path, value, "a list"))
            return ()
        items = typing.cast("list[object]", value)
        salvaged_items = (
            _salvage(inner, item, f"{path}[{i}]", errors) for i, item in enumerate(items)
        )
        return tuple(item for item in salvaged_items if item is not None)
    if inner is not None and value is not None:
        salvaged = _salvage(inner, value, path, errors)
        return UNSET if salvaged is None else salvaged
    try:
        return msgspec.convert(value, field.type)
    except msgspec.ValidationError as error:
        reason = str(error).split(" - at ")[0]
        is_choice = reason.startswith("Invalid enum value")
        problem = (
            "is not one of the choices"
            if is_choice
            else f"does not fit: it {explain_validation_error(reason)}"
        )
        hint = ""
        if is_choice:
            hint = f"write one of: {', '.join(_choices(field.type))}"
        elif field.name in DURATION_FIELDS:
            hint = 'write a number of seconds, or a duration such as "10m"'
        errors.append(
            DocumentProblem(
                code=_problem_code(field, str(error)),
                path=path,
                message=f"{_describe(value)} {problem}",
                hint=hint,
            )
        )
        return UNSET


def _choices(annotation: object) -> Iterator[str]:
    """Yield the texts that an enum, a Literal, or a union with one allows."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        yield from (str(member.value) for member in annotation)
    for argument in typing.get_args(annotation):
        if isinstance(argument, str):
            yield argument
        else:
            yield from _choices(argument)


def _problem_code(field: msgspec.structs.FieldInfo, error: str) -> str:
    if field.name == "type":
        return "bad_node_type"
    return "bad_limit" if _OUT_OF_RANGE.match(error) else "wrong_type"


def _struct_within(annotation: object) -> type[Value] | None:
    """Return the Struct in `S`, `S | None` or `tuple[S, ...]`; None for plain values."""
    if isinstance(annotation, type) and issubclass(annotation, Value):
        return annotation
    if typing.get_origin(annotation) in (tuple, types.UnionType, typing.Union):
        return next(
            (s for arg in typing.get_args(annotation) if (s := _struct_within(arg)) is not None),
            None,
        )
    return None


@functools.cache
def _struct_fields(
    cls: type[Value],
) -> dict[str, tuple[msgspec.structs.FieldInfo, type[Value] | None]]:
    """Return the fields of cls by key, each with the Struct within, if any."""
    return {f.encode_name: (f, _struct_within(f.type)) for f in msgspec.structs.fields(cls)}


def _unknown_key_warnings(cls: type[Value], document: object) -> list[DocumentProblem]:
    return list(itertools.islice(_unknown_keys(cls, document, "$"), PROBLEMS_MAX))


def _unknown_keys(cls: type[Value], value: object, path: str) -> Iterator[DocumentProblem]:
    if not is_mapping(value):
        return
    config = cls.__struct_config__
    fields = _struct_fields(cls)
    for key, field_value in value.items():
        if key not in fields and key != config.tag_field:
            matches = difflib.get_close_matches(key[:80], fields, n=1)
            yield DocumentProblem(
                code="unknown_field",
                path=f"{path}.{key[:80]}",
                message=f"{_describe(key)} is not a known key and is ignored",
                hint=f"did you mean '{matches[0]}'?" if matches else "",
            )
        elif key in fields and (inner := fields[key][1]) is not None:
            is_list = isinstance(field_value, list)
            for i, item in enumerate(
                typing.cast("list[object]", field_value) if is_list else [field_value]
            ):
                yield from _unknown_keys(
                    inner, item, f"{path}.{key}" + (f"[{i}]" if is_list else "")
                )


def _missing(path: str, name: str) -> DocumentProblem:
    return DocumentProblem(
        code="missing", path=path, message=f"'{name}' is missing", hint=f"add '{name}'"
    )


def _wrong_type(path: str, value: object, expected: str) -> DocumentProblem:
    return DocumentProblem(
        code="wrong_type",
        path=path,
        message=f"expected {expected}, got {_describe(value)}",
    )


def _describe(value: object) -> str:
    """Render the value for a message, never longer than a line."""
    if isinstance(value, Mapping):
        has_text_keys = is_mapping(typing.cast("object", value))
        return "an object" if has_text_keys else "an object whose keys are not texts"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "a huge number"
    return text if len(text) <= 60 else f"{text[:57]}..."
