"""Check the events that a program reports, and reduce them to what a guard can say.

The reporter is a program with an operator's credential, perhaps not a guard at all. It says which
agent did what, and how its run ended; it cannot speak for people, nor for the server, nor for more
than its own limits allow. All other content of an event is dropped.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from handrail.kernel.definition.limits import Limits
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.json_values import VALUE_ITEMS_MAX, find_json_problem
from handrail.kernel.result import FIGURE_MAX, Result, find_bad_figures
from handrail.kernel.run.events import Ended, GuardedEvent, HandedOff, Reported, RunEvent
from handrail.kernel.run.size_limits import result_bytes_max
from handrail.kernel.run.state import Run
from handrail.kernel.stop.rules import StopRule, terminal_status_of

NAME_CHARS_MAX = 200
"""Characters of the name of an agent, or of a milestone."""
AGENTS_MAX, EDGES_MAX = 200, 1_000
"""Per team: each new one makes a version of its definition."""
STEPS_MAX = 100_000
"""Per run, if its limits allow more."""
GUARDED_ROLE_PREFIX = "guarded:"
"""Prefix for the role of an agent that works elsewhere."""
FOREIGN_STOP_RULES = frozenset(
    {StopRule.CLOSED, StopRule.HUMAN_DEADLINE, StopRule.PAUSE_DEADLINE, StopRule.TERMINATED}
    | {StopRule.PROTOCOL}
)
"""Ends that a guard does not bring about."""

_encode = msgspec.json.Encoder().encode


def normalize_events(events: Sequence[GuardedEvent]) -> list[GuardedEvent]:
    """Return the events with only the content that a guard reports."""
    return [NORMALIZERS[type(event)](event) for event in events]


def _normalize_reported(event: Reported) -> Reported:
    result = event.result
    return Reported(
        at=event.at,
        step_id=event.agent,
        fence=0,
        agent=event.agent,
        result=Result(text=result.text, evidence=result.evidence, usage=result.usage),
        weighed=event.weighed,
        phase=event.phase,
    )


def _normalize_handed_off(event: HandedOff) -> HandedOff:
    return replace(event, task="", already_done=False, number=0)


def _normalize_ended(event: Ended) -> Ended:
    return event


NORMALIZERS: dict[type[Any], Callable[[Any], GuardedEvent]] = {
    Reported: _normalize_reported,
    HandedOff: _normalize_handed_off,
    Ended: _normalize_ended,
}


def find_problem(events: Sequence[GuardedEvent], limits: Limits) -> str:
    """Return why no guard can have reported this; empty if one can."""
    bytes_max = result_bytes_max(_steps_max(limits))
    for event, next_event in zip(events, [*events[1:], None], strict=True):
        if event.at.tzinfo is None:
            return "the time of an event has no zone; tell times in UTC"
        if isinstance(event, Ended) and next_event is not None:
            return "something is told after the end of the run"
        is_refused = isinstance(event, HandedOff) and not event.accepted
        if is_refused and not isinstance(next_event, Ended):
            return "a run does not end with a handoff that was refused"
        problem = _content_problem(event, bytes_max) or VALIDATORS[type(event)](event)
        if problem:
            return problem
    return ""


def _content_problem(event: GuardedEvent, bytes_max: int) -> str:
    """Describe what cannot be stored. Nearly every event is plain, which its JSON shows."""
    try:
        encoded = _encode(event)
    except (TypeError, ValueError, RecursionError) as error:
        return f"an event is no JSON: {error}"
    if len(encoded) > bytes_max:
        return f"an event has more than {bytes_max:,} bytes"
    has_data = isinstance(event, Reported) and event.result.data
    if len(encoded) < VALUE_ITEMS_MAX and not (
        has_data or b"\\u0000" in encoded or b"null" in encoded
    ):  # a NaN is written as null; without data no event is deep
        return ""
    return find_json_problem(msgspec.to_builtins(event))


def _steps_max(limits: Limits) -> int:
    limit = limits.max_steps
    return STEPS_MAX if limit is None else min(STEPS_MAX, limit)


def exceeds_limits(run: Run) -> bool:
    """Return whether a guard with the run's limits would have stopped it before."""
    limits, ledger = run.limits, run.ledger
    handoffs = STEPS_MAX if limits.max_handoffs is None else limits.max_handoffs
    return ledger.handoffs > handoffs or ledger.steps > max(1, _steps_max(limits))


def finishing_agent(events: Sequence[RunEvent], active_agent: str) -> str:
    """Return the agent that brings the run to its own end with the last of these events, or ""."""
    last_event = events[-1] if events else None
    if not (isinstance(last_event, Ended) and last_event.stop.rule is StopRule.COMPLETED):
        return ""
    handoffs = (event for event in reversed(events) if isinstance(event, HandedOff))
    return next((event.target for event in handoffs if event.accepted), active_agent)


def _name_problem(*names: str) -> str:
    long_name = next((name for name in names if len(name) > NAME_CHARS_MAX), None)
    return (
        f"the name '{long_name[:40]}…' is longer than {NAME_CHARS_MAX} characters"
        if long_name
        else ""
    )


def _result_problem(event: Reported) -> str:
    return _name_problem(event.agent, event.phase) or find_bad_figures(event.result)


def _handoff_problem(event: HandedOff) -> str:
    return _name_problem(event.source, event.target)


def _end_problem(event: Ended) -> str:
    rule, stop = event.stop.rule, event.stop
    if rule in FOREIGN_STOP_RULES:
        return f"a guard does not end a run by '{rule}'"
    statuses = {terminal_status_of(rule, goal_met=goal_met) for goal_met in (False, True)}
    if rule is StopRule.COMPLETED:
        statuses = {TerminalStatus.DONE_SUCCESS}
    if event.status not in statuses:
        return f"a run that '{rule}' ends is not '{event.status}'"
    figures = [figure for figure in (stop.limit, stop.seen) if isinstance(figure, int | float)]
    if not all(-FIGURE_MAX <= figure <= FIGURE_MAX for figure in figures):
        return "the stop has a figure that is too large"
    return ""


VALIDATORS: dict[type[Any], Callable[[Any], str]] = {
    Reported: _result_problem,
    HandedOff: _handoff_problem,
    Ended: _end_problem,
}
