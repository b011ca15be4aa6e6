"""Tool calls as evidence: findings, or, in profiles that judge claims, checks and artefacts.

In `strict` and `yolo` a call is a check that passed or failed, and what an agent's tools have found
in a step is an artefact, whose digest is that of arguments and results. Times and ids in results
are masked; those in arguments are not.

Unless texts are recorded in full, no text of a call is in its evidence: what it answered is a
digest, and so is how it failed. Arguments are kept where constraints of commands read them.
"""

import hashlib
import re
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from handrail.guard.sanitising import digest_letters, safe_name, safe_text
from handrail.kernel.result import TOOL_PATH_PREFIX, Check, Evidence
from handrail.kernel.stop.error_signature import error_signature
from handrail.kernel.stop.findings import FindingReader, StepFinding

DIGEST_CHARS = 16
ERROR_CHARS_MAX = 2_000
ARGUMENTS_CHARS_MAX = 20_000
"""Characters of a tool's arguments, for the constraints that read them."""
QUOTED_CHARS_MAX = 100
"""Characters of arguments, answer or text that a quotation shows."""
DIGESTED_CHARS_MAX = 1_000_000
"""Characters of a tool's arguments or output."""
_WORDS_WITH_DIGITS = re.compile(r"(?<!\S)[^\s\d]*+\d\S*")
"""Words that contain a digit. Possessive, from the start of a word: each is scanned once."""
_IDENTIFIERS = re.compile(
    r"\b\d{4}-\d\d-\d\d\b(?![T ]\d)"
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|\b(?=[a-f]{0,63}\d)[0-9a-f]{7,64}\b",
    re.IGNORECASE,
)
"""Dates, ids and digests: what distinguishes one tool call from another."""


class ToolCall(msgspec.Struct, frozen=True):
    """One call as a framework shows it; an `error` means that it failed."""

    agent: str
    tool: str
    arguments: object
    result: object = ""
    error: object = None
    effect: bool = False


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


def quote_text(text: str) -> str:
    """Return the beginning of a text, on one line."""
    return safe_text(" ".join(text[: 2 * QUOTED_CHARS_MAX].split()), QUOTED_CHARS_MAX)


def check_tool_call(call: ToolCall, *, keep_arguments: bool, quote: bool = False) -> Check:
    """Return the call as a check, for rules that read commands; `quote`: with the error's text."""
    command, has_failed = safe_name(call.tool), call.error is not None
    if keep_arguments:
        command += f" {safe_text(to_text(call.arguments), ARGUMENTS_CHARS_MAX)}"
    stderr = safe_text(to_text(call.error), ERROR_CHARS_MAX) if has_failed else ""
    if not quote:
        stderr = _digest_error(command, stderr)
    return Check(command=command, exit_code=int(has_failed), stderr=stderr, effect=call.effect)


def _digest_error(command: str, stderr: str) -> str:
    """Return a digest in place of an error: the same where the errors have the same signature."""
    signature = error_signature(command, stderr)
    is_silent = not stderr or signature == error_signature(command, "")
    return "" if is_silent else f"error {digest_letters(signature)}"


def claim_tool_calls(
    calls: Sequence[ToolCall], *, keep_arguments: bool, quote: bool = False
) -> Evidence:
    """Return the calls of one step as checks and artefacts."""
    digests: dict[str, list[str]] = {}
    for call in calls:
        if call.error is None:
            digests.setdefault(call.agent, []).append(_digest_call(call))
    files = {
        f"{TOOL_PATH_PREFIX}{safe_name(agent)}": _digest(
            " ".join(sorted(call_digests))
        )  # in any order
        for agent, call_digests in digests.items()
    }
    checks = tuple(
        check_tool_call(call, keep_arguments=keep_arguments, quote=quote) for call in calls
    )
    return Evidence(files=files or None, checks=checks, measured=True)


def _digest_call(call: ToolCall) -> str:
    arguments, output = to_text(call.arguments), to_text(call.result)
    identifiers = " ".join(_IDENTIFIERS.findall(arguments[:DIGESTED_CHARS_MAX]))
    masked = (
        error_signature(arguments, output)
        + _mask_words_with_digits(arguments)
        + _mask_words_with_digits(output)
    )
    return _digest(f"{safe_name(call.tool)} {identifiers} {masked}")


def to_text(value: object) -> str:
    """Return the same text for the same value, whatever a framework passes."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value, order="deterministic", enc_hook=repr).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return repr(value)


def _mask_words_with_digits(text: str) -> str:
    """Return the text, up to the limit, without words that contain a digit: times and ids."""
    return _WORDS_WITH_DIGITS.sub("#", text[:DIGESTED_CHARS_MAX])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:DIGEST_CHARS]
