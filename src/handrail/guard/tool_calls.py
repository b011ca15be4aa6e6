"""Tool calls as frameworks show them, read as findings or, in `strict` and `yolo`, as claims.

Unless texts are recorded in full, no text of a call is in its evidence: what it answered is a
digest, and so is how it failed.
"""

from collections.abc import Mapping
from typing import cast

import msgspec
from msgspec.structs import replace

from handrail.guard.sanitising import safe_name, safe_text
from handrail.kernel.stop.findings import FindingReader, StepFinding
from handrail.kernel.stop.tool_claims import ToolClaim

DESTRUCTIVE_HINTS = ("destructiveHint", "destructive_hint")
"""The annotation by which MCP says that a tool has destructive effects, and its name in the objects
of the Python library from version 2 on."""
QUOTED_CHARS_MAX = 100
"""Characters of arguments, answer or text that a quotation shows."""


class ToolCall(msgspec.Struct, frozen=True):
    """One call as a framework shows it; an `error` means that it failed."""

    agent: str
    tool: str
    arguments: object
    result: object = ""
    error: object = None
    effect: bool = False


def declares_effect(annotations: object) -> bool:
    """Whether MCP's annotations of a tool, as a mapping or an object, say that it is destructive.
    Without an explicit word nothing is assumed: most tools say nothing.
    """
    if isinstance(annotations, Mapping):
        hints = cast("Mapping[str, object]", annotations)
        return any(hints.get(name) is True for name in DESTRUCTIVE_HINTS)
    return any(getattr(annotations, name, None) is True for name in DESTRUCTIVE_HINTS)


def read_tool_call(reader: FindingReader, call: ToolCall, *, quote: bool = False) -> StepFinding:
    """Return the call as a finding; `quote`: with its beginning in words."""
    result = call.result if call.error is None else call.error
    arguments, answer = to_text(call.arguments), None if result is None else to_text(result)
    finding = reader.read_call(
        safe_name(call.agent),
        safe_name(call.tool),
        arguments,
        answer,
        failed=True if call.error is not None else None,
        effect=call.effect,
    )
    if not quote:
        return finding
    quotation = f"{quote_text(arguments)} -> {quote_text(answer or 'unknown')}"
    return replace(finding, what=quotation)


def read_text(
    reader: FindingReader, agent: str, text: str, *, quote: bool = False
) -> StepFinding | None:
    """Return what an agent said as a finding; `quote`: with its beginning in words."""
    finding = reader.read_text(agent, text)
    return finding if finding is None or not quote else replace(finding, what=quote_text(text))


def quote_text(text: str) -> str:
    """Return the beginning of a text, on one line."""
    return safe_text(" ".join(text[: 2 * QUOTED_CHARS_MAX].split()), QUOTED_CHARS_MAX)


def claim_of(call: ToolCall) -> ToolClaim:
    """Return the call as a claim."""
    return ToolClaim(
        agent=safe_name(call.agent),
        tool=safe_name(call.tool),
        arguments=safe_text(to_text(call.arguments)),
        result=to_text(call.result),
        error=None if call.error is None else safe_text(to_text(call.error)),
        effect=call.effect,
    )


def to_text(value: object) -> str:
    """Return the same text for the same value, whatever a framework passes."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value, order="deterministic", enc_hook=repr).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return repr(value)
