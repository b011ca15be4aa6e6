"""Build spans from what a commit closes of a run: dispatches, approvals, the run itself.

Theory of operation. A run is a trace. Its ids follow from the run's own (the trace has the run's
id, a span a digest of the dispatch's or the approval's), and its times stand in the run's state. So
nothing has to be remembered between the beginning and the end of a span: whichever engine commits
the end, after however many restarts, makes the same span of it. A guarded run whose program has a
trace of its own is part of that.

Names are those of OpenTelemetry's conventions for generative AI where they fit, else `handrail.*`.
No span has texts of agents, people and tickets: they may be anything, and anybody may read a trace.
A span has names, numbers, outcomes, and the engine's own reason of a stop.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice

from handrail.kernel.decision import Value
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.result import Evidence, Usage
from handrail.kernel.run.events import (
    Answered,
    Claimed,
    Ended,
    Faulted,
    Lost,
    Reported,
    RunEvent,
    TimedOut,
)
from handrail.kernel.run.evolve import evolve
from handrail.kernel.run.state import CLAIMED, PendingApproval, Position, Run, Stop, dispatch_id

TEXT_CHARS_MAX = 300
"""Characters of a name or reason."""
CHECKS_MAX = 32
"""Commands of one result that are shown."""
GOOD_STATUSES = (
    TerminalStatus.DONE_SUCCESS,
    TerminalStatus.DONE_PARTIAL,
    TerminalStatus.CLOSED_BY_HUMAN,
)

COMPLETED = "completed"
"""The rule of a run that reached its end."""
Attribute = str | int | float
ClosingEvent = Reported | Faulted | Lost | TimedOut


class SpanEvent(Value):
    """Something within a span, of which only the moment is known."""

    name: str
    at: datetime
    attributes: dict[str, Attribute]


class Span(Value):
    name: str
    trace_id: int
    span_id: int
    parent_id: int | None
    start: datetime
    end: datetime
    attributes: dict[str, Attribute]
    events: tuple[SpanEvent, ...] = ()
    error: str = ""
    """Why the span counts as failed."""


def closed_spans(
    before: Run | None, after: Run, events: Sequence[RunEvent], definition_name: str
) -> Iterator[Span]:
    """Return spans for what ended between these two states, by these events."""
    closings = {event.fence: event for event in events if isinstance(event, ClosingEvent)}
    for position, closing in _closed_within_commit(before, events, closings):
        yield _dispatch_span(after, position, closing, closing.at)
    if before is not None:
        for position in before.positions.values():
            if position.phase is CLAIMED and after.find_position(position.fence) is None:
                yield _dispatch_span(after, position, closings.get(position.fence), events[-1].at)
        for approval in before.pending_approvals.values():
            if approval.id not in after.pending_approvals:
                yield _approval_span(after, approval, events)
    ended = next((event for event in events if isinstance(event, Ended)), None)
    if ended is not None:
        yield _run_span(after, ended, definition_name)


def _closed_within_commit(
    run: Run | None, events: Sequence[RunEvent], closings: Mapping[int, ClosingEvent]
) -> Iterator[tuple[Position, ClosingEvent]]:
    """Return spans for what the same commit began and closed: the steps that a guard reports."""
    begun_fences = {event.fence for event in events if isinstance(event, Claimed)} & closings.keys()
    for event in events if begun_fences else ():
        if isinstance(event, ClosingEvent) and event.fence in begun_fences and run is not None:
            position = run.find_position(event.fence)
            assert position is not None, "it was claimed"
            yield position, event
        run = evolve(run, event)


def _run_span(run: Run, ended: Ended, definition_name: str) -> Span:
    ledger, stop = run.ledger, ended.stop
    return Span(
        name=f"invoke_workflow {truncate(definition_name)}",
        trace_id=trace_id(run),
        span_id=span_id(run.id),
        parent_id=int(run.traceparent.split("-")[2], 16) if run.traceparent else None,
        start=run.started_at,
        end=ended.at,
        attributes=nonempty_attributes(
            {
                "gen_ai.operation.name": "invoke_workflow",
                "gen_ai.workflow.name": definition_name,
                **_common_attributes(run),
                "handrail.workflow.version": run.version,
                "handrail.terminal_status": ended.status.value,
                **stop_attributes(stop),
                "handrail.final_agent": run.final_agent,
                "handrail.steps": ledger.steps,
                "handrail.handoffs": ledger.handoffs,
                "handrail.usage.tokens": ledger.tokens,
                "handrail.usage.cost": ledger.cost,
                "error.type": "" if ended.status in GOOD_STATUSES else stop.rule.value,
            }
        ),
        events=() if stop.rule == COMPLETED else (_stop_event(ended),),
        error="" if ended.status in GOOD_STATUSES else truncate(stop.reason),
    )


def _stop_event(ended: Ended) -> SpanEvent:
    return SpanEvent(name="handrail.stop", at=ended.at, attributes=stop_attributes(ended.stop))


def _dispatch_span(
    run: Run, position: Position, closing: ClosingEvent | None, last: datetime
) -> Span:
    """Build a dispatch's span; without a closing event it was cancelled: the run went on without
    it.
    """
    outcome, fault = _outcome(closing)
    result = closing.result if isinstance(closing, Reported | Faulted) else None
    end = closing.at if closing is not None else last
    usage = result.usage if result is not None else Usage()
    return Span(
        name=f"invoke_agent {truncate(position.step_id)}",
        trace_id=trace_id(run),
        span_id=span_id(dispatch_id(run.id, position.fence)),
        parent_id=span_id(run.id),
        start=min(position.since, end),
        end=end,
        attributes=nonempty_attributes(
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": position.step_id,
                "gen_ai.agent.id": position.agent,
                **_common_attributes(run),
                "handrail.dispatch.id": dispatch_id(run.id, position.fence),
                "handrail.role": position.role,
                "handrail.task": position.task,
                "handrail.step": position.step,
                "handrail.attempt": position.faults + 1
                if run.kind == "team"
                else position.attempts,
                "handrail.outcome": outcome,
                **usage_attributes(usage),
                "error.type": fault,
            }
        ),
        events=_tool_events(result.evidence, end) if result is not None else (),
        error=fault,
    )


def _outcome(closing: ClosingEvent | None) -> tuple[str, str]:
    """Return the outcome of a dispatch, and its error."""
    match closing:
        case None:
            return "cancelled", ""
        case Reported(result=result):
            outcome = result.outcome.value if result.outcome is not None else "reported"
            return outcome, "failure" if outcome == "failure" else ""
        case Faulted(fault=fault):
            return "refused", fault
        case Lost():
            return "lost", "lost"
        case TimedOut(clock=clock):
            return "timed_out", f"timed_out_{clock}"


def _tool_events(evidence: Evidence, at: datetime) -> tuple[SpanEvent, ...]:
    """Return the commands that a result names: which program, and how it ended."""
    return tuple(
        SpanEvent(
            name="execute_tool",
            at=at,
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": truncate(next(iter(check.command.split()), "")),
                "process.exit.code": check.exit_code,
            },
        )
        for check in islice(evidence.checks, CHECKS_MAX)
    )


def _approval_span(run: Run, approval: PendingApproval, events: Sequence[RunEvent]) -> Span:
    """Build an approval's span, from its opening until it was settled; without an answer it was
    void.
    """
    answers = (e for e in events if isinstance(e, Answered) and e.approval_id == approval.id)
    answer = next(answers, None)
    end = answer.at if answer is not None else events[-1].at
    return Span(
        name=f"ask_person {approval.kind.value}",
        trace_id=trace_id(run),
        span_id=span_id(approval.id),
        parent_id=span_id(run.id),
        start=min(approval.asked_at, end),
        end=end,
        attributes=nonempty_attributes(
            {
                **_common_attributes(run),
                "handrail.question.id": approval.id,
                "handrail.question.kind": approval.kind.value,
                "handrail.question.place": approval.step_id,
                "handrail.decision": answer.decision if answer is not None else "void",
            }
        ),
    )


def _common_attributes(run: Run) -> dict[str, Attribute]:
    return {
        "gen_ai.conversation.id": run.bead_id,
        "handrail.run.id": run.id,
        "handrail.workflow.id": run.definition_id,
    }


def stop_attributes(stop: Stop) -> dict[str, Attribute]:
    return nonempty_attributes(
        {
            "handrail.stop.rule": stop.rule.value,
            "handrail.stop.reason": stop.reason,
            "handrail.stop.limit": stop.limit,
            "handrail.stop.seen": stop.seen,
        }
    )


def usage_attributes(usage: Usage) -> dict[str, Attribute]:
    """Name what was used as the GenAI conventions do, and what they have no name for as ours."""
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.request.model": usage.model,
        "gen_ai.provider.name": usage.provider,
        "handrail.usage.tokens": usage.tokens,
        "handrail.usage.cost": usage.cost,
    }


def nonempty_attributes(attributes: Mapping[str, Attribute | None]) -> dict[str, Attribute]:
    """Return the attributes that have a value, each of a bounded length."""
    return {
        name: truncate(value) if isinstance(value, str) else value
        for name, value in attributes.items()
        if value is not None and value != ""
    }


def truncate(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}…"


def trace_id(run: Run) -> int:
    """Return the id of the program's trace, if the run is part of one; else the run's id itself,
    which is 128 bits as a trace's is; of another id, a digest.
    """
    if run.traceparent:
        return int(run.traceparent.split("-")[1], 16)
    try:
        return int(run.id, 16) if len(run.id) == 32 else _digest(run.id, 16)
    except ValueError:
        return _digest(run.id, 16)


def span_id(name: str) -> int:
    return _digest(name, 8)


def _digest(text: str, size: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size]) or 1
