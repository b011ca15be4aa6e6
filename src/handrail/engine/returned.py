"""What a function returned or raised, as it would arrive over a wire."""

import inspect
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from handrail.kernel.plain import why_not_plain
from handrail.kernel.result import Result, Usage

TOLD_MAX = 2_000
"""Characters of an error's text that are kept."""

NO_USAGE = Usage()
_decode = msgspec.json.Decoder(Result).decode
_encode = msgspec.json.Encoder().encode


class AgentFailed(Exception):  # noqa: N818 - what happened, in the words of the house
    """An agent has no result: what it tried to ask or to run did not work. The attempt is lost;
    what was used for it (a model's tokens) counts all the same."""

    def __init__(self, message: str, usage: Usage = NO_USAGE) -> None:
        super().__init__(message)
        self.usage = usage


def used(error: BaseException) -> Usage:
    """What an attempt that ended with this error has cost."""
    return error.usage if isinstance(error, AgentFailed) else NO_USAGE


def told(error: BaseException) -> str:
    """The error in words that can be stored, even if it cannot tell itself what it is."""
    name = "" if isinstance(error, AgentFailed) else f"{type(error).__name__}: "
    try:
        what = f"{name}{error}"
    except Exception:  # an error whose own text raises is still told by its name
        what = type(error).__name__
    return what.encode("utf-8", "replace").decode()[:TOLD_MAX]


def checked(returned: object, role: str, *, trusted: bool) -> Result | str:
    """The result as it would arrive over a wire, or what is wrong with it."""
    given: Any = Result(text=returned) if isinstance(returned, str) else returned
    if inspect.iscoroutine(returned):
        returned.close()  # nobody will await it
    if not isinstance(given, (Result, dict)):
        return f"'{role}' returned a {type(returned).__name__}, not a Result"
    data = given.data if isinstance(given, Result) else cast("object", given)
    if data and (wrong := why_not_plain(data)):  # JSON would make a null of a NaN
        return f"'{role}' returned what cannot be sent: {wrong}"
    try:
        result = _decode(_encode(given))
    except (TypeError, ValueError, RecursionError) as error:
        return f"'{role}' returned what cannot be sent: {told(error)}"
    if result.evidence.measured and not trusted:
        return replace(result, evidence=replace(result.evidence, measured=False))
    return result
