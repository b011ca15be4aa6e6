"""An error event as Sentry's clients send it becomes a report. Of its many fields those are read
that say what failed and where; variables, headers, cookies, user and breadcrumbs never are."""

from typing import Any

import msgspec

from handrail.engine.bugs import NAME_CHARS, ErrorReport
from handrail.kernel.decision import Value, learn

FRAMES_MAX = 100
MARKS = ("event_id", "exception", "logentry")
"""Each of these makes it an event."""


class Frame(Value):
    filename: str | None = None
    function: str | None = None
    lineno: int | None = None
    context_line: str | None = None


class Stack(Value):
    frames: tuple[Frame, ...] | None = None


class Raised(Value):
    type: str | None = None
    value: str | None = None
    module: str | None = None
    stacktrace: Stack | None = None


class Values(Value):
    values: tuple[Raised, ...] | None = None


class Said(Value):
    formatted: str | None = None
    message: str | None = None


class Answered(Value):
    status_code: int | None = None


class Contexts(Value):
    response: Answered | None = None


class Asked(Value):
    method: str | None = None
    url: str | None = None


class Event(Value):
    exception: Values | tuple[Raised, ...] | None = None
    logentry: Said | None = None
    message: str | Said | None = None
    level: str | None = None
    transaction: str | None = None
    request: Asked | None = None
    contexts: Contexts | None = None
    release: str | None = None
    project: str | int | None = None
    server_name: str | None = None
    environment: str | None = None


learn(Event)


def is_event(data: dict[str, Any]) -> bool:
    return any(mark in data for mark in MARKS)


def report_of(data: dict[str, Any]) -> ErrorReport:
    """Raises `msgspec.ValidationError` for what is no event."""
    event = msgspec.convert(_known(data), Event)
    raised = _raised(event)
    last = raised[-1] if raised else Raised()
    status = (
        event.contexts.response.status_code if event.contexts and event.contexts.response else 0
    )
    asked = event.request or Asked()
    kind = ".".join(part for part in (last.module, last.type) if part)
    return ErrorReport(
        service=str(event.project or event.server_name or "sentry")[:NAME_CHARS],
        type=kind[:NAME_CHARS],
        message=(last.value or _said(event))[:100_000],
        traceback="\n".join(_traceback(one) for one in raised)[-100_000:],
        method=(asked.method or "")[:NAME_CHARS],
        route=(event.transaction or asked.url or "")[:2_000],
        status=status if status and 0 < status < 1_000 else 0,
        level=(event.level or "error")[:NAME_CHARS],
        release=(event.release or "")[:NAME_CHARS],
    )


def _known(data: dict[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in Event.__struct_fields__ if name in data}


def _raised(event: Event) -> tuple[Raised, ...]:
    held = event.exception
    return (held.values or ()) if isinstance(held, Values) else held or ()


def _said(event: Event) -> str:
    said = event.logentry or event.message
    if isinstance(said, str):
        return said
    return (said.formatted or said.message or "") if said is not None else ""


def _traceback(raised: Raised) -> str:
    frames = (raised.stacktrace.frames or ()) if raised.stacktrace is not None else ()
    lines = ["Traceback (most recent call last):"]
    for frame in frames[-FRAMES_MAX:]:
        where = f'  File "{frame.filename or "?"}", line {frame.lineno or 0}'
        lines.append(f"{where}, in {frame.function or '?'}")
        lines += [f"    {frame.context_line.strip()}"] if frame.context_line else []
    return "\n".join([*lines, f"{raised.type or 'Error'}: {raised.value or ''}"])
