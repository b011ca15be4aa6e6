"""The shape of a structured answer: a result, limited to what the turn allows.

A model that can call tools is given this as the parameters of its last call. What it may say is in
the lists; whether it really may is decided by the kernel, as for any other result.
"""

from typing import Any

import msgspec

from handrail.agents.prompt import ANSWER_TOOL
from handrail.engine.dispatch import DispatchView
from handrail.kernel.decision import learn
from handrail.kernel.result import Outcome, Result, Usage

learn(Result)

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_EVIDENCE: Schema = {
    "type": "object",
    "description": "what the answer rests on",
    "properties": {
        "score": {"type": "number", "description": "of research: how good it is, from 0 to 1"},
        "ticket_state": _TEXT,
        "failures": {**_TEXTS, "description": "names of what still fails"},
    },
    "additionalProperties": False,
}
ALWAYS: Schema = {
    "text": {**_TEXT, "description": "what you did and found, in full; the others read it"},
    "reason": {**_TEXT, "description": "why, in one line"},
    "data": {"type": "object", "description": "facts for all, merged into the work's context"},
    "evidence": _EVIDENCE,
}


def schema(dispatch: DispatchView) -> Schema:
    """What an answer to this dispatch may look like, as JSON Schema."""
    allowed, known = dispatch.allowed, dispatch.briefing
    properties = {"outcome": _one_of(allowed.outcomes), **ALWAYS}
    if allowed.to:
        properties["to"] = _one_of(allowed.to)
    tasks = tuple(dict.fromkeys(task.id for one in known.colleagues for task in one.tasks))
    if tasks:
        about = "which task of the other agent you mean; left out, the one that fits"
        properties["task"] = {**_one_of(tasks), "description": about}
    if known.marker:
        properties["marker"] = {**_one_of((known.marker,)), "description": "your part is done"}
    for outcome, more in _WITH.items():
        if outcome in allowed.outcomes:
            properties |= more
    return {
        "title": ANSWER_TOOL,
        "type": "object",
        "properties": properties,
        "required": ["outcome", "text"],
        "additionalProperties": False,
    }


_WITH: dict[str, Schema] = {
    Outcome.TERMINATE: {
        "status": {"type": "string", "enum": ["done_success", "done_partial"]},
        "remaining": {**_TEXTS, "description": "what is left to do, if it is done in part"},
    },
    Outcome.ASK: {"question": _TEXT, "options": _TEXTS},
}
"""What an outcome needs beside the usual."""


def _one_of(values: tuple[str, ...]) -> Schema:
    return {"type": "string", "enum": [str(value) for value in values]}


def read(said: object, usage: Usage) -> Result:
    """The result that a structured answer says; `ValueError` says what is wrong with it. What
    Handrail measures itself an answer cannot claim, and what it cost it does not say."""
    result = msgspec.convert(said, Result)
    evidence = msgspec.structs.replace(result.evidence, measured=False)
    return msgspec.structs.replace(result, evidence=evidence, usage=usage)
