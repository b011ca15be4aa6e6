"""The text protocol: reads the outcome of a text-only answer from its last line.

    HANDOFF: billing: charged twice       hand off to `billing`, for that reason
    TERMINATE_WORKFLOW                    the work is done
    TERMINATE_WORKFLOW: ticket resolved   the same, with a reason
    The summary is above. WORKFLOW_COMPLETE     the agent's own part is done

Rules
1. Only the last line that is not empty counts. A stop word anywhere else, as in a repeated task, is
   a word like any other.
2. Emphasis (`*`, `_`) around the line or a part of it, and punctuation at its end, are ignored.
   Quotation marks, a quote's `>` and the marks of code are not: a quoted stop word does not count.
   Nor does a stop word in a block of code, indented or fenced, closed or not.
3. An explicit `outcome` wins; the text can then only add a marker.
4. `run/team.py` decides whether the agent may do so.
"""

import re
from typing import NamedTuple

from msgspec.structs import replace

from handrail.kernel.result import Outcome, Result

TERMINATE_MARKER = "TERMINATE_WORKFLOW"
COMPLETE_MARKER = "WORKFLOW_COMPLETE"
HANDOFF_WORD = "HANDOFF"
_EMPHASIS = "*_"
_FINAL_PUNCTUATION = ".,;:!?…。！？"
_HANDOFF = re.compile(rf"{HANDOFF_WORD}[\s{_EMPHASIS}]*:(?P<to>[^:]*):(?P<reason>.*)", re.DOTALL)
_TERMINATE = re.compile(rf"{TERMINATE_MARKER}(?:[\s{_EMPHASIS}]*:(?P<reason>.*))?", re.DOTALL)
_COMPLETE = re.compile(rf"(?:^|[^\w`])_*{COMPLETE_MARKER}$")
_INDENTED = re.compile(r" {4}| {0,3}\t")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)


class TextDirective(NamedTuple):
    """What a last line says; empty for most lines."""

    outcome: Outcome | None = None
    to: str = ""
    reason: str = ""
    marker: str = ""


_NO_DIRECTIVE = TextDirective()


def read_directive(text: str) -> TextDirective:
    """Read the directive in the last line of the text."""
    stripped = text.rstrip()
    line = stripped[max(stripped.rfind("\n"), stripped.rfind("\r")) + 1 :]
    if "WORKFLOW" not in line and HANDOFF_WORD not in line:
        return _NO_DIRECTIVE
    if _INDENTED.match(line) or line.lstrip().startswith(">") or _is_in_code_fence(stripped):
        return _NO_DIRECTIVE
    return _parse_line(line.lstrip(f" \t{_EMPHASIS}").rstrip(f" \t{_EMPHASIS}{_FINAL_PUNCTUATION}"))


def _parse_line(line: str) -> TextDirective:
    marker = COMPLETE_MARKER if _COMPLETE.search(line) else ""
    if match := _TERMINATE.fullmatch(line):
        return TextDirective(
            Outcome.TERMINATE, "", _strip_emphasis(match["reason"] or ""), TERMINATE_MARKER
        )
    if match := _HANDOFF.fullmatch(line):
        to, reason = _strip_emphasis(match["to"]), _strip_emphasis(match["reason"])
        if to and reason:
            return TextDirective(Outcome.HANDOFF, to, reason, marker)
    return TextDirective(marker=marker)


def _is_in_code_fence(text: str) -> bool:
    """Whether the text ends inside a block of code that no equal or longer fence closes."""
    open_fence = ""
    for mark in _FENCE.findall(text.replace("\r", "\n")):
        if not open_fence:
            open_fence = mark
        elif mark.startswith(open_fence):
            open_fence = ""
    return bool(open_fence)


def apply_text_protocol(result: Result, default_target: str = "") -> Result:
    """Return the result with its text's directive. An agent that only says that its own part is
    done hands off to `default_target`, its only allowed target."""
    if not result.text:
        return result
    directive = read_directive(result.text)
    marker = result.marker or directive.marker
    if result.outcome is not None:
        return replace(result, marker=marker) if marker != result.marker else result
    if directive.outcome is None and directive.marker and default_target:
        directive = TextDirective(
            Outcome.HANDOFF, default_target, "its part is done", directive.marker
        )
    return replace(
        result,
        outcome=directive.outcome,
        to=directive.to or result.to,
        reason=result.reason or directive.reason,
        marker=marker,
    )


def _strip_emphasis(part: str) -> str:
    """Strip emphasis. A single underscore may belong to a name, a pair around it does not."""
    part = part.strip(" \t*`")
    return part[1:-1] if len(part) > 2 and part[0] == part[-1] == "_" else part
