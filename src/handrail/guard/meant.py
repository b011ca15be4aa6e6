"""What a guard can mean: the events that a program tells, checked, and brought down to what counts.

Whoever tells is a program with an operator's token, perhaps not a guard at all. It says which agent
did what, and how its run ended; it cannot speak for people, nor for the server, nor for more than
its own limits allow. What else stands in an event is not taken over. Pure.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from handrail.client.guard_calls import Seen
from handrail.kernel.definition import TerminalStatus
from handrail.kernel.limits import Limits
from handrail.kernel.plain import SIZE_MAX, why_not_plain
from handrail.kernel.result import FIGURE_MAX, Result
from handrail.kernel.rules import StopRule, status_of
from handrail.kernel.run.decide import bad_figures
from handrail.kernel.run.events import Ended, HandedOff, Reported
from handrail.kernel.run.state import Run
from handrail.kernel.run.sums import RESULT_LEAST, RESULTS_MAX

NAME_MAX = 200
"""Characters of the name of an agent, or of a milestone."""
AGENTS_MAX, WAYS_MAX = 200, 1_000
"""Of one team: each that is new makes a version of its definition."""
STEPS_MAX = 100_000
"""Of a run whose limits allow more."""
SIGNALS = frozenset(
    {StopRule.CLOSED, StopRule.HUMAN_DEADLINE, StopRule.PAUSE_DEADLINE, StopRule.TERMINATED}
    | {StopRule.PROTOCOL}
)
"""Ends that a guard does not bring about."""

_encode = msgspec.json.Encoder().encode


def meant(events: Sequence[Seen]) -> list[Seen]:
    """The events with nothing in them but what a guard says."""
    return [TAKEN[type(event)](event) for event in events]


def _reported(event: Reported) -> Reported:
    said = event.result
    return Reported(
        at=event.at,
        place=event.agent,
        fence=0,
        agent=event.agent,
        result=Result(text=said.text, evidence=said.evidence, usage=said.usage),
        weighed=event.weighed,
        phase=event.phase,
    )


def _handed_off(event: HandedOff) -> HandedOff:
    return replace(event, task="", already_done=False, number=0)


def _ended(event: Ended) -> Ended:
    return event


TAKEN: dict[type[Any], Callable[[Any], Seen]] = {
    Reported: _reported,
    HandedOff: _handed_off,
    Ended: _ended,
}


def why_not_meant(events: Sequence[Seen], limits: Limits) -> str:
    """Why no guard can have told this; empty if one can."""
    most = _share(limits)
    for event, after in zip(events, [*events[1:], None], strict=True):
        if event.at.tzinfo is None:
            return "the time of an event has no zone; tell times in UTC"
        if len(_encode(event)) > most:
            return f"an event has more than {most:,} bytes"
        if isinstance(event, Ended) and after is not None:
            return "something is told after the end of the run"
        refused = isinstance(event, HandedOff) and not event.accepted
        if refused and after is not None and not isinstance(after, Ended):
            return "a run goes on after a handoff that was refused"
        why = why_not_plain(msgspec.to_builtins(event)) or WRONG[type(event)](event)
        if why:
            return why
    return ""


def _share(limits: Limits) -> int:
    """Bytes of one event, so that all of them together stay within bounds."""
    return min(SIZE_MAX, max(RESULT_LEAST, RESULTS_MAX // max(1, _steps_most(limits))))


def _steps_most(limits: Limits) -> int:
    given = limits.max_steps
    return STEPS_MAX if given is None else min(STEPS_MAX, given)


def more_than_allowed(run: Run) -> bool:
    """Whether a guard with the run's limits would have stopped it before."""
    limits, ledger = run.limits, run.ledger
    handoffs = STEPS_MAX if limits.max_handoffs is None else limits.max_handoffs
    return ledger.handoffs > handoffs or ledger.steps > max(1, _steps_most(limits))


def _wrong_names(*names: str) -> str:
    wrong = next((one for one in names if len(one) > NAME_MAX), None)
    return f"the name '{wrong[:40]}…' is longer than {NAME_MAX} characters" if wrong else ""


def _wrong_result(event: Reported) -> str:
    return _wrong_names(event.agent, event.phase) or bad_figures(event.result)


def _wrong_handoff(event: HandedOff) -> str:
    return _wrong_names(event.source, event.target)


def _wrong_end(event: Ended) -> str:
    rule, stop = event.stop.rule, event.stop
    if rule in SIGNALS:
        return f"a guard does not end a run by '{rule}'"
    ends = {status_of(rule, goal_met=met) for met in (False, True)}
    if rule is StopRule.COMPLETED:
        ends = {TerminalStatus.DONE_SUCCESS}
    if event.status not in ends:
        return f"a run that '{rule}' ends is not '{event.status}'"
    figures = [one for one in (stop.limit, stop.seen) if isinstance(one, int | float)]
    if not all(-FIGURE_MAX <= one <= FIGURE_MAX for one in figures):
        return "the stop has a figure that is too large"
    return ""


WRONG: dict[type[Any], Callable[[Any], str]] = {
    Reported: _wrong_result,
    HandedOff: _wrong_handoff,
    Ended: _wrong_end,
}
