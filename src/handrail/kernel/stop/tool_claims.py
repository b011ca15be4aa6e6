"""Tool calls as checks and artefacts, for profiles that judge claims (`strict`, `yolo`).

There a call is a check that passed or failed, and what an agent's tools have found in a step is an
artefact, whose digest is that of arguments and results. Times and ids in results are masked; those
in arguments are not.

Unless it is quoted, an error is a digest. Arguments are kept where constraints of commands read
them.
"""

import hashlib
import re
from collections.abc import Sequence

from handrail.kernel.decision import Value
from handrail.kernel.result import TOOL_PATH_PREFIX, Check, Evidence
from handrail.kernel.stop.error_signature import error_signature
from handrail.kernel.stop.findings import digest_letters

DIGEST_CHARS = 16
ERROR_CHARS_MAX = 2_000
ARGUMENTS_CHARS_MAX = 20_000
"""Characters of a tool's arguments, for the constraints that read them."""
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


class ToolClaim(Value):
    """One call in texts that can be stored; an `error` means that it failed."""

    agent: str
    tool: str
    arguments: str
    result: str = ""
    error: str | None = None
    effect: bool = False


def check_tool_call(call: ToolClaim, *, keep_arguments: bool, quote: bool = False) -> Check:
    """Return the call as a check, for rules that read commands; `quote`: with the error's text."""
    command, has_failed = call.tool, call.error is not None
    if keep_arguments:
        command += f" {_cut(call.arguments, ARGUMENTS_CHARS_MAX)}"
    stderr = _cut(call.error or "", ERROR_CHARS_MAX)
    if not quote:
        stderr = _digest_error(command, stderr)
    return Check(command=command, exit_code=int(has_failed), stderr=stderr, effect=call.effect)


def _digest_error(command: str, stderr: str) -> str:
    """Return a digest in place of an error: the same where the errors have the same signature."""
    signature = error_signature(command, stderr)
    is_silent = not stderr or signature == error_signature(command, "")
    return "" if is_silent else f"error {digest_letters(signature)}"


def claim_tool_calls(
    calls: Sequence[ToolClaim], *, keep_arguments: bool, quote: bool = False
) -> Evidence:
    """Return the calls of one step as checks and artefacts."""
    digests: dict[str, list[str]] = {}
    for call in calls:
        if call.error is None:
            digests.setdefault(call.agent, []).append(_digest_call(call))
    files = {
        f"{TOOL_PATH_PREFIX}{agent}": _digest(" ".join(sorted(call_digests)))  # in any order
        for agent, call_digests in digests.items()
    }
    checks = tuple(
        check_tool_call(call, keep_arguments=keep_arguments, quote=quote) for call in calls
    )
    return Evidence(files=files or None, checks=checks, measured=True)


def _digest_call(call: ToolClaim) -> str:
    identifiers = " ".join(_IDENTIFIERS.findall(call.arguments[:DIGESTED_CHARS_MAX]))
    masked = (
        error_signature(call.arguments, call.result)
        + mask_words_with_digits(call.arguments)
        + mask_words_with_digits(call.result)
    )
    return _digest(f"{call.tool} {identifiers} {masked}")


def mask_words_with_digits(text: str) -> str:
    """Return the text, up to the limit, without words that contain a digit: times and ids."""
    return _WORDS_WITH_DIGITS.sub("#", text[:DIGESTED_CHARS_MAX])


def _cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:DIGEST_CHARS]
