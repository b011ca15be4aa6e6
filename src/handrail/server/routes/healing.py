"""What services are healed with: reports of their errors, and remembered resolutions.

A report is in Handrail's format, or an error event of Sentry's clients, of which only the fields
are read that say what failed and where; never variables, headers, cookies, user or breadcrumbs.
The built-in agents use the memory through the engine itself, agents elsewhere through these routes;
people correct and remove what is in it.
"""

from typing import Any
from urllib.parse import urlsplit

import msgspec

from handrail.api.healing import BugCalls, MemoryCalls, MemoryPatch, MemoryQuery, NewMemory
from handrail.engine.engine import Engine
from handrail.kernel.decision import Value, prepare_types
from handrail.kernel.validation_messages import explain_validation_error
from handrail.server.access import Caller, check_holds_bead
from handrail.server.binding import serves
from handrail.server.problems import HTTPProblemError
from handrail.views.bugs import NAME_CHARS_MAX, BugReportResult, ErrorReport
from handrail.views.memories import MemoryView
from handrail.views.view_types import Page

FRAMES_MAX = 100
EVENT_FIELDS = ("event_id", "exception", "logentry")
"""A body with any of these is an event."""


class SentryFrame(Value):
    filename: str | None = None
    function: str | None = None
    lineno: int | None = None
    context_line: str | None = None


class SentryStacktrace(Value):
    frames: tuple[SentryFrame, ...] | None = None


class SentryException(Value):
    type: str | None = None
    value: str | None = None
    module: str | None = None
    stacktrace: SentryStacktrace | None = None


class SentryExceptions(Value):
    values: tuple[SentryException, ...] | None = None


class SentryMessage(Value):
    formatted: str | None = None
    message: str | None = None


class SentryResponse(Value):
    status_code: int | None = None


class SentryContexts(Value):
    response: SentryResponse | None = None


class SentryRequest(Value):
    method: str | None = None
    url: str | None = None


class SentryEvent(Value):
    exception: SentryExceptions | tuple[SentryException, ...] | None = None
    logentry: SentryMessage | None = None
    message: str | SentryMessage | None = None
    level: str | None = None
    transaction: str | None = None
    request: SentryRequest | None = None
    contexts: SentryContexts | None = None
    release: str | None = None
    project: str | int | None = None
    server_name: str | None = None
    environment: str | None = None


prepare_types(SentryEvent)


def is_sentry_event(data: dict[str, Any]) -> bool:
    return any(mark in data for mark in EVENT_FIELDS)


def report_from_sentry(data: dict[str, Any]) -> ErrorReport:
    """Return the report of an event; raises `msgspec.ValidationError` if it is invalid."""
    known_fields = {name: data[name] for name in SentryEvent.__struct_fields__ if name in data}
    event = msgspec.convert(known_fields, SentryEvent)
    exceptions = _exceptions(event)
    last = exceptions[-1] if exceptions else SentryException()
    status = (
        event.contexts.response.status_code if event.contexts and event.contexts.response else 0
    )
    request = event.request or SentryRequest()
    return ErrorReport(
        service=str(event.project or event.server_name or "sentry")[:NAME_CHARS_MAX],
        type=".".join(part for part in (last.module, last.type) if part)[:NAME_CHARS_MAX],
        message=(last.value or _message(event))[:100_000],
        traceback="\n".join(_format_traceback(exception) for exception in exceptions)[-100_000:],
        method=(request.method or "")[:NAME_CHARS_MAX],
        route=(event.transaction or request.url or "")[:2_000],
        path=urlsplit(request.url or "").path[:2_000],
        status=status if status and 0 < status < 1_000 else 0,
        level=(event.level or "error")[:NAME_CHARS_MAX],
        release=(event.release or "")[:NAME_CHARS_MAX],
    )


def _exceptions(event: SentryEvent) -> tuple[SentryException, ...]:
    exceptions = event.exception
    return (
        (exceptions.values or ()) if isinstance(exceptions, SentryExceptions) else exceptions or ()
    )


def _message(event: SentryEvent) -> str:
    message = event.logentry or event.message
    if isinstance(message, str):
        return message
    return (message.formatted or message.message or "") if message is not None else ""


def _format_traceback(exception: SentryException) -> str:
    frames = (exception.stacktrace.frames or ()) if exception.stacktrace is not None else ()
    lines = ["Traceback (most recent call last):"]
    for frame in frames[-FRAMES_MAX:]:
        location = f'  File "{frame.filename or "?"}", line {frame.lineno or 0}'
        lines.append(f"{location}, in {frame.function or '?'}")
        lines += [f"    {frame.context_line.strip()}"] if frame.context_line else []
    return "\n".join([*lines, f"{exception.type or 'Error'}: {exception.value or ''}"])


prepare_types(ErrorReport)


@serves(BugCalls.report)
async def report_bug(engine: Engine, caller: Caller, data: dict[str, Any]) -> BugReportResult:
    try:
        error_report = (
            report_from_sentry(data)
            if is_sentry_event(data)
            else msgspec.convert(data, ErrorReport)
        )
    except msgspec.ValidationError as error:
        raise HTTPProblemError(
            422,
            "bad_body",
            f"the report cannot be used: {explain_validation_error(str(error))}",
            "see /api/v1/openapi.json",
        ) from error
    return await engine.bugs.report(error_report, by=caller.name)


@serves(MemoryCalls.add)
async def add_memory(engine: Engine, caller: Caller, data: NewMemory) -> MemoryView:
    bead = await engine.beads.get(data.bead_id)
    if caller.role == "agent":
        await check_holds_bead(engine, caller, bead.id)
    return await engine.memory.add(bead, data.text, data.tags, by=caller.name)


@serves(MemoryCalls.list)
async def list_memories(engine: Engine, caller: Caller, query: MemoryQuery) -> Page[MemoryView]:
    if caller.role == "agent":
        return Page(items=await engine.memory.search(query.q or "", limit=query.limit))
    return await engine.memory.list(q=query.q, cursor=query.cursor, limit=query.limit)


@serves(MemoryCalls.correct)
async def correct_memory(
    engine: Engine, caller: Caller, memory_id: str, data: MemoryPatch
) -> MemoryView:
    return await engine.memory.correct(memory_id, data.resolution, by=caller.name)


@serves(MemoryCalls.remove)
async def remove_memory(engine: Engine, caller: Caller, memory_id: str) -> None:
    await engine.memory.forget(memory_id, by=caller.name)
