"""The schema of a structured answer: a result, limited to what the dispatch allows.

It is the parameters of the last call of a model that can call tools. The lists hold what the model
may say; the kernel decides whether it really may, as for any other result.
"""

from typing import Any

import msgspec

from handrail.agents.prompt import ANSWER_TOOL
from handrail.kernel.decision import prepare_types
from handrail.kernel.result import (
    RETRY_SECONDS_MAX,
    RETRY_SECONDS_MIN,
    WAITS_FOR_CHARS_MAX,
    Outcome,
    Result,
    Usage,
)
from handrail.views.dispatches import DispatchView

prepare_types(Result)

JsonSchema = dict[str, Any]

_STRING: JsonSchema = {"type": "string"}
_STRINGS: JsonSchema = {"type": "array", "items": _STRING}
_EVIDENCE_SCHEMA: JsonSchema = {
    "type": "object",
    "description": "what the answer rests on",
    "properties": {
        "score": {"type": "number", "description": "of research: how good it is, from 0 to 1"},
        "ticket_state": _STRING,
        "failures": {**_STRINGS, "description": "names of what still fails"},
    },
    "additionalProperties": False,
}
COMMON_PROPERTIES: JsonSchema = {
    "text": {**_STRING, "description": "what you did and found, in full; the others read it"},
    "reason": {**_STRING, "description": "why, in one line"},
    "data": {"type": "object", "description": "facts for all, merged into the work's context"},
    "evidence": _EVIDENCE_SCHEMA,
}


def answer_schema(dispatch: DispatchView) -> JsonSchema:
    """Return the JSON Schema of an answer to this dispatch."""
    allowed, briefing = dispatch.allowed, dispatch.briefing
    properties = {"outcome": _enum(allowed.outcomes), **COMMON_PROPERTIES}
    if allowed.to:
        properties["to"] = _enum(allowed.to)
    tasks = tuple(
        dict.fromkeys(task.id for colleague in briefing.colleagues for task in colleague.tasks)
    )
    if tasks:
        description = "which task of the other agent you mean; left out, the one that fits"
        properties["task"] = {**_enum(tasks), "description": description}
    if briefing.marker:
        properties["marker"] = {**_enum((briefing.marker,)), "description": "your part is done"}
    for outcome, extra in _OUTCOME_PROPERTIES.items():
        if outcome in allowed.outcomes:
            properties |= extra
    return {
        "title": ANSWER_TOOL,
        "type": "object",
        "properties": properties,
        "required": ["outcome", "text", *(["marker"] if allowed.marker else [])],
        "additionalProperties": False,
    }


_OUTCOME_PROPERTIES: dict[str, JsonSchema] = {
    Outcome.TERMINATE: {
        "status": {"type": "string", "enum": ["done_success", "done_partial"]},
        "remaining": {**_STRINGS, "description": "what is left to do, if it is done in part"},
    },
    Outcome.ASK: {"question": _STRING, "options": _STRINGS},
    Outcome.WAITING: {
        "for": {**_STRING, "maxLength": WAITS_FOR_CHARS_MAX},
        "retry_after": {
            "type": "number",
            "minimum": RETRY_SECONDS_MIN,
            "maximum": RETRY_SECONDS_MAX,
        },
    },
}
"""What an outcome needs beside the usual."""


def _enum(values: tuple[str, ...]) -> JsonSchema:
    return {"type": "string", "enum": [str(value) for value in values]}


def parse_answer(answer: object, usage: Usage) -> Result:
    """Parse a structured answer to a result; `ValueError` says what is wrong with it.

    An answer cannot claim what Handrail measures itself, nor its own cost.
    """
    result = msgspec.convert(answer, Result)
    evidence = msgspec.structs.replace(result.evidence, measured=False)
    return msgspec.structs.replace(result, evidence=evidence, usage=usage)
