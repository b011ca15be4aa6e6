"""What a commit closes of a run, as spans: dispatches, questions to people, the run itself.

Theory of operation. A run is a trace. Its ids follow from the run's own (the trace has the run's
id, a span a digest of the dispatch's or the question's), and its times stand in the run's state. So
nothing has to be remembered between the beginning and the end of a span: whichever engine commits
the end, after however many restarts, makes the same span of it.

Names are those of OpenTelemetry's conventions for generative AI where they fit, else `handrail.*`.
What agents, people and tickets wrote is in no span: it may be anything, and anybody may read a
trace. What stands there is names, numbers, outcomes, and the engine's own words on a stop.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice

from handrail.kernel.decision import Value
from handrail.kernel.definition import TerminalStatus
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
from handrail.kernel.run.state import CLAIMED, Question, Run, Token
from handrail.kernel.steps import dispatch_id

TEXT_MAX = 300
"""Characters of a name or reason."""
CHECKS_MAX = 32
"""Commands of one result that are told."""
GOOD = (TerminalStatus.DONE_SUCCESS, TerminalStatus.DONE_PARTIAL, TerminalStatus.CLOSED_BY_HUMAN)

Attribute = str | int | float
Closing = Reported | Faulted | Lost | TimedOut


class Mark(Value):
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
    marks: tuple[Mark, ...] = ()
    error: str = ""
    """Why it counts as failed."""


def closed(
    before: Run | None, after: Run, events: Sequence[RunEvent], workflow: str
) -> Iterator[Span]:
    """What came to its end between these two states, by these events."""
    closings = {event.fence: event for event in events if isinstance(event, Closing)}
    for token, closing in _within(before, events, closings):
        yield _dispatch(after, token, closing, closing.at)
    if before is not None:
        for token in before.tokens.values():
            if token.phase is CLAIMED and after.token_of(token.fence) is None:
                yield _dispatch(after, token, closings.get(token.fence), events[-1].at)
        for question in before.questions.values():
            if question.id not in after.questions:
                yield _question(after, question, events)
    ended = next((event for event in events if isinstance(event, Ended)), None)
    if ended is not None:
        yield _run(after, ended, workflow)


def _within(
    run: Run | None, events: Sequence[RunEvent], closings: Mapping[int, Closing]
) -> Iterator[tuple[Token, Closing]]:
    """What was begun and closed by the same commit: the steps that a guard tells of."""
    begun = {event.fence for event in events if isinstance(event, Claimed)} & closings.keys()
    for event in events if begun else ():
        if isinstance(event, Closing) and event.fence in begun and run is not None:
            token = run.token_of(event.fence)
            assert token is not None, "it was claimed"
            yield token, event
        run = evolve(run, event)


def _run(run: Run, ended: Ended, workflow: str) -> Span:
    ledger, stop = run.ledger, ended.stop
    return Span(
        name=f"invoke_workflow {_cut(workflow)}",
        trace_id=trace_id(run.id),
        span_id=span_id(run.id),
        parent_id=None,
        start=run.started_at,
        end=ended.at,
        attributes=_given(
            {
                "gen_ai.operation.name": "invoke_workflow",
                "gen_ai.workflow.name": workflow,
                **_common(run),
                "handrail.workflow.version": run.version,
                "handrail.terminal_status": ended.status.value,
                "handrail.stop.rule": stop.rule.value,
                "handrail.stop.reason": stop.reason,
                "handrail.stop.limit": stop.limit,
                "handrail.stop.seen": stop.seen,
                "handrail.final_agent": run.final_agent,
                "handrail.steps": ledger.steps,
                "handrail.handoffs": ledger.handoffs,
                "handrail.usage.tokens": ledger.tokens,
                "handrail.usage.cost": ledger.cost,
                "error.type": "" if ended.status in GOOD else stop.rule.value,
            }
        ),
        error="" if ended.status in GOOD else _cut(stop.reason),
    )


def _dispatch(run: Run, token: Token, closing: Closing | None, last: datetime) -> Span:
    """Without a closing event it was cancelled: the run went on or ended without it."""
    outcome, fault = _outcome(closing)
    result = closing.result if isinstance(closing, Reported | Faulted) else None
    end = closing.at if closing is not None else last
    usage = result.usage if result is not None else Usage()
    return Span(
        name=f"invoke_agent {_cut(token.place)}",
        trace_id=trace_id(run.id),
        span_id=span_id(dispatch_id(run.id, token.fence)),
        parent_id=span_id(run.id),
        start=min(token.since, end),
        end=end,
        attributes=_given(
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": token.place,
                "gen_ai.agent.id": token.agent,
                **_common(run),
                "handrail.dispatch.id": dispatch_id(run.id, token.fence),
                "handrail.role": token.role,
                "handrail.task": token.task,
                "handrail.step": token.step,
                "handrail.attempt": token.faults + 1 if run.kind == "team" else token.attempts,
                "handrail.outcome": outcome,
                "handrail.usage.tokens": usage.tokens,
                "handrail.usage.cost": usage.cost,
                "error.type": fault,
            }
        ),
        marks=_checks(result.evidence, end) if result is not None else (),
        error=fault,
    )


def _outcome(closing: Closing | None) -> tuple[str, str]:
    """What became of a dispatch, and what was wrong with it."""
    match closing:
        case None:
            return "cancelled", ""
        case Reported(result=result):
            said = result.outcome.value if result.outcome is not None else "reported"
            return said, "failure" if said == "failure" else ""
        case Faulted(fault=fault):
            return "refused", fault
        case Lost():
            return "lost", "lost"
        case TimedOut(clock=clock):
            return "timed_out", f"timed_out_{clock}"


def _checks(evidence: Evidence, at: datetime) -> tuple[Mark, ...]:
    """The commands that a result names: which program, and how it ended."""
    return tuple(
        Mark(
            name="execute_tool",
            at=at,
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": _cut(next(iter(check.command.split()), "")),
                "process.exit.code": check.exit_code,
            },
        )
        for check in islice(evidence.checks, CHECKS_MAX)
    )


def _question(run: Run, question: Question, events: Sequence[RunEvent]) -> Span:
    """From when a person was asked until it was settled; without an answer it was void."""
    answers = (e for e in events if isinstance(e, Answered) and e.question_id == question.id)
    answer = next(answers, None)
    end = answer.at if answer is not None else events[-1].at
    return Span(
        name=f"ask_person {question.kind.value}",
        trace_id=trace_id(run.id),
        span_id=span_id(question.id),
        parent_id=span_id(run.id),
        start=min(question.asked_at, end),
        end=end,
        attributes=_given(
            {
                **_common(run),
                "handrail.question.id": question.id,
                "handrail.question.kind": question.kind.value,
                "handrail.question.place": question.place,
                "handrail.decision": answer.decision if answer is not None else "void",
            }
        ),
    )


def _common(run: Run) -> dict[str, Attribute]:
    return {
        "gen_ai.conversation.id": run.bead_id,
        "handrail.run.id": run.id,
        "handrail.workflow.id": run.definition_id,
    }


def _given(named: Mapping[str, Attribute | None]) -> dict[str, Attribute]:
    """Those that say something, each of a bounded length."""
    return {
        name: _cut(value) if isinstance(value, str) else value
        for name, value in named.items()
        if value is not None and value != ""
    }


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"


def trace_id(run_id: str) -> int:
    """The run's id itself, which is 128 bits as a trace's is; of another id, a digest."""
    try:
        return int(run_id, 16) if len(run_id) == 32 else _digest(run_id, 16)
    except ValueError:
        return _digest(run_id, 16)


def span_id(name: str) -> int:
    return _digest(name, 8)


def _digest(text: str, size: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size]) or 1
