"""Results of agents: what functions return or raise, validated as if it had arrived over a wire;
attempts that are lost; and notes that keep refused results as evidence."""

import hashlib
import inspect
from datetime import datetime
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from handrail.kernel.input_checks import find_json_problem
from handrail.kernel.result import Result, Usage
from handrail.kernel.run import commands as c
from handrail.store.rows import NoteRow, iso

ERROR_CHARS_MAX = 2_000
NOTE_BYTES_MAX = 50_000
"""Bytes of a refused result that a note keeps; of a larger one, its beginning and its digest."""

NO_USAGE = Usage()
_decode = msgspec.json.Decoder(Result).decode
_encode = msgspec.json.Encoder().encode


class AgentFailedError(Exception):
    """An agent has no result: its model or its program failed. The attempt is lost; its usage (a
    model's tokens) still counts."""

    def __init__(self, message: str, usage: Usage = NO_USAGE) -> None:
        super().__init__(message)
        self.usage = usage


def usage_of(error: BaseException) -> Usage:
    """The usage of an attempt that ended with this error."""
    return error.usage if isinstance(error, AgentFailedError) else NO_USAGE


def describe_error(error: BaseException) -> str:
    """Describe the error in text that can be stored, even if its own text raises."""
    name = "" if isinstance(error, AgentFailedError) else f"{type(error).__name__}: "
    try:
        text = f"{name}{error}"
    except Exception:  # an error whose own text raises is described by its name
        text = type(error).__name__
    return text.encode("utf-8", "replace").decode()[:ERROR_CHARS_MAX]


def validate_result(returned: object, role: str, *, trusted: bool) -> Result | str:
    """Return the result as it would arrive over a wire, or what is wrong with it."""
    value: Any = Result(text=returned) if isinstance(returned, str) else returned
    if inspect.iscoroutine(returned):
        returned.close()  # nothing will await it
    if not isinstance(value, (Result, dict)):
        return f"'{role}' returned a {type(returned).__name__}, not a Result"
    data = value.data if isinstance(value, Result) else cast("object", value)
    if problem := data_problem(data, role):
        return problem
    try:
        result = _decode(_encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        return f"'{role}' returned a value that cannot be encoded: {describe_error(error)}"
    return result if trusted else without_measured(result)


def data_problem(data: object, role: str) -> str:
    """What makes the data of a result unusable, or "". JSON would turn a NaN into null."""
    problem = find_json_problem(data) if data else ""
    return problem and f"'{role}' returned a value that cannot be encoded: {problem}"


def without_measured(result: Result) -> Result:
    """The result, with evidence that is only claimed: Handrail did not measure it."""
    if not result.evidence.measured:
        return result
    return replace(result, evidence=replace(result.evidence, measured=False))


def lost_command(agent: str, fence: int, reason: str, usage: Usage) -> c.Report | c.Lose:
    """Report a lost attempt that has usage as an unusable result, so that its usage is counted."""
    if usage == NO_USAGE:
        return c.Lose(fence=fence, reason=reason)
    return c.Report(fence=fence, agent=agent, result=Result(usage=usage), malformed=reason)


def refused_note(run_id: str, report: c.Report, code: str, at: datetime) -> NoteRow:
    """Return the note of a refused report, cut to its size: its sender may send any amount."""
    body = _encode(report)
    if len(body) > NOTE_BYTES_MAX:
        body = _encode(
            {
                "bytes": len(body),
                "sha256": hashlib.sha256(body).hexdigest(),
                "begins": body[:NOTE_BYTES_MAX].decode(errors="ignore"),
            }
        )
    return NoteRow(
        execution_id=run_id, at=iso(at), actor=report.agent, code=code, body=body.decode()
    )
