"""Checks of what comes in: values survive storage, figures are in range, sizes are bounded.

Events are the truth, and they are stored as JSON. A value that JSON cannot carry (a lone surrogate,
a NaN, a set), that a database cannot hold as text (a NUL), or that is too deep or too large would
make the live run and its replay differ. Commands with such a value are refused.

Each result and each change is small by itself, but there are many of them in a run:
1. The bead's context stays within the bounds of one value, for every writer.
2. All results together stay within RESULTS_BYTES_MAX, divided by the most dispatches of the run.
   With very many dispatches each result still has RESULT_BYTES_MIN.

A refusal for size changes nothing: the dispatch stays open for a smaller result.
"""

from math import isfinite
from typing import Any

import msgspec

from handrail.kernel.decision import Refusal, refuse
from handrail.kernel.result import (
    FIGURE_MAX,
    MODEL_CHARS_MAX,
    RETRY_SECONDS_MAX,
    RETRY_SECONDS_MIN,
    WAITS_FOR_CHARS_MAX,
    Result,
    Usage,
    merge_patch,
)

DEPTH_MAX = 64
KEY_DEPTH = -1
"""Stands for the depth where the item is the key of an object."""
VALUE_BYTES_MAX = 10_000_000
"""Characters plus values, roughly bytes."""
VALUE_ITEMS_MAX = 200_000
"""In all lists and objects: the check visits each value and blocks the event loop meanwhile."""
CHECKS_MAX, FILES_MAX, PATH_CHARS_MAX = 50, 2_000, 1_000
"""Bounds of one result's evidence: the kernel reads every check and path."""
RESULTS_BYTES_MAX = 50_000_000
RESULT_BYTES_MIN = 250_000
"""Both count bytes of JSON."""
SMALL_BYTES = 50_000
"""Smaller values are within all bounds and need no further check."""

_encode = msgspec.json.Encoder().encode


def are_simple_texts(*texts: str) -> bool:
    """Whether the texts are short ASCII, as almost all are, and need no further check."""
    try:
        joined = "".join(texts)
    except TypeError:
        return False
    return joined.isascii() and "\0" not in joined and len(joined) < VALUE_BYTES_MAX // 2


def find_json_problem(value: object) -> str:
    """Return the problem with the value, or "". Not recursive: depth is an attack."""
    stack: list[tuple[Any, int]] = [(value, 0)]
    size = values = 0
    while stack:
        item, depth = stack.pop()
        size += len(item) + 1 if isinstance(item, str) else 1
        if size > VALUE_BYTES_MAX:
            return f"the value is larger than {VALUE_BYTES_MAX:,} characters"
        if isinstance(item, dict | list | tuple):
            if depth >= DEPTH_MAX:
                return f"the value is nested more than {DEPTH_MAX} levels deep"
            values += len(item)  # pyright: ignore[reportUnknownArgumentType] - any JSON
            if values > VALUE_ITEMS_MAX:
                return f"the value has more than {VALUE_ITEMS_MAX:,} entries"
            if isinstance(item, dict):
                stack.extend((key, KEY_DEPTH) for key in item)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - any JSON
                item = item.values()  # pyright: ignore[reportUnknownVariableType] - any JSON
            stack.extend((child, depth + 1) for child in item)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - any JSON
        elif problem := _scalar_problem(item, is_key=depth == KEY_DEPTH):
            return problem
    return ""


def _scalar_problem(value: object, *, is_key: bool) -> str:
    if isinstance(value, str):
        if "\0" in value:
            return "a text contains a NUL character"
        return "" if value.isascii() or _is_encodable(value) else "a text contains a lone surrogate"
    if is_key:
        return "a key of an object is not a text"
    if isinstance(value, float) and not isfinite(value):
        return f"a number is {value}, which JSON cannot represent"
    if value is None or isinstance(value, bool | int | float):
        return ""
    return f"a value of type {type(value).__name__} is not JSON"


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def find_bad_figures(result: Result) -> str:
    """Describe the first invalid value in the usage or evidence; "" if all are valid."""
    usage, evidence = result.usage, result.evidence
    if is_bad_usage(usage):
        return (
            f"a figure of the usage is not within 0 and {FIGURE_MAX:,}, or the name of its model "
            f"is longer than {MODEL_CHARS_MAX} characters"
        )
    if evidence.score is not None and not -FIGURE_MAX <= evidence.score <= FIGURE_MAX:
        return f"the score {evidence.score:g} is not within {-FIGURE_MAX:,} and {FIGURE_MAX:,}"
    if not 0 <= result.retry_after <= RETRY_SECONDS_MAX:
        return f"retry_after is not within {RETRY_SECONDS_MIN} and {RETRY_SECONDS_MAX} seconds"
    if len(result.waits_for) > WAITS_FOR_CHARS_MAX:
        return f"`for` is longer than {WAITS_FOR_CHARS_MAX} characters"
    checks = [value for check in evidence.checks for value in (check.command, check.stderr)]
    if len(evidence.checks) > CHECKS_MAX or len(evidence.files or ()) > FILES_MAX:
        return f"the evidence has more than {CHECKS_MAX} checks or {FILES_MAX:,} files"
    if any(len(path) > PATH_CHARS_MAX for path in evidence.files or ()):
        return f"a path of the evidence is longer than {PATH_CHARS_MAX:,} characters"
    texts = [evidence.files, evidence.failures, evidence.ticket_state, checks]
    texts += [usage.model, usage.provider]
    return find_json_problem([value for value in texts if value])


def is_bad_usage(usage: Usage) -> bool:
    """Whether a figure is out of range. NaN is out of every range."""
    return not (
        0 <= usage.tokens <= FIGURE_MAX
        and 0 <= usage.cost <= FIGURE_MAX
        and 0 <= usage.input_tokens <= FIGURE_MAX
        and 0 <= usage.output_tokens <= FIGURE_MAX
        and 0 <= usage.unpriced_calls <= FIGURE_MAX
        and len(usage.model) <= MODEL_CHARS_MAX >= len(usage.provider)
    )


def result_bytes_max(dispatches: int) -> int:
    """Return the share of one result, of so many in the run."""
    return min(VALUE_BYTES_MAX, max(RESULT_BYTES_MIN, RESULTS_BYTES_MAX // max(1, dispatches)))


def check_context_size(context: dict[str, Any], added: dict[str, Any]) -> Refusal | None:
    """Refuse an addition that would make the bead's context too large."""
    if not added:
        return None
    merged = merge_patch(context, added)
    if len(_encode(merged)) <= SMALL_BYTES or not (problem := find_json_problem(merged)):
        return None
    return refuse(
        "context_too_large",
        f"the bead's context would become too large to store: {problem}",
        "remove keys from the context (send null for a key), or add less",
    )
