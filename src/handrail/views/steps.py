"""Projects a run's events to its numbered steps, with attempts, warnings and progress.

Theory of operation. A step is a dispatch, or the reused answer of a once-only task (K19); the
ledger counts steps, a stop's evidence cites them ("step 7"), and `enumerate_events` numbers them in
the same way. The fence identifies a dispatch from its offer until it is answered, lost, timed out
or cancelled.

Two recorders write the same events. The engine's have a first step, and an `Offered` for each
dispatch. Those of the in-process guard have no first step (`Started.step_id` is empty) and consist
of handoffs and results: each accepted handoff begins a step, and a result's `fence` is its step.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import assert_never

from msgspec.structs import asdict, replace

from handrail.kernel.result import Result
from handrail.kernel.run.events import (
    Claimed,
    Ended,
    Faulted,
    HandedOff,
    Lost,
    Moved,
    Offered,
    Reported,
    RunEvent,
    Started,
    TimedOut,
    Warned,
)
from handrail.kernel.run.state import dispatch_id
from handrail.kernel.stop.news import News
from handrail.views.view_types import LastCommand, LastProgress, RunWarning, Step, WouldHaveDone

Events = Sequence[RunEvent]


class StepDetails(Step, frozen=True, kw_only=True):
    """A step with its full result. `dispatch_id` is empty if the step was not dispatched."""

    dispatch_id: str
    role: str
    result: Result | None
    """The result as received, also an unusable one; None if there was none."""


def started_event(events: Events) -> Started:
    first_event = events[0] if events else None
    assert isinstance(first_event, Started), "a run begins with Started"
    return first_event


def enumerate_events(events: Events) -> Iterator[tuple[int, int, RunEvent]]:
    """Yield (sequence number, last step begun, event)."""
    guarded = not started_event(events).step_id
    step = 1 if guarded else 0
    for seq, event in enumerate(events, 1):
        if isinstance(event, Offered):
            step += 1
        elif isinstance(event, HandedOff):
            step += event.accepted and (guarded or event.already_done)
        elif guarded and isinstance(event, Reported):
            step = event.fence
        yield seq, step, event


def steps(events: Events) -> tuple[Step, ...]:
    """Return every step with its outcome, by number."""
    builder = _StepBuilder()
    for _, number, event in enumerate_events(events):
        builder.apply(number, event)
    return tuple(builder.steps[n] for n in sorted(builder.steps))


def step_details(events: Events) -> tuple[StepDetails, ...]:
    """Return every step with its full result, by number."""
    run_id = started_event(events).run_id
    offers: dict[int, Offered] = {}
    results: dict[int, Result] = {}
    by_fence: dict[int, int] = {}
    for _, number, event in enumerate_events(events):
        if isinstance(event, Offered):
            offers[number] = event
            by_fence[event.fence] = number
        elif isinstance(event, Reported | Faulted):
            results[by_fence.get(event.fence, event.fence)] = event.result
    return tuple(
        StepDetails(
            **asdict(step),
            dispatch_id=dispatch_id(run_id, offers[step.n].fence) if step.n in offers else "",
            role=offers[step.n].role if step.n in offers else "",
            result=results.get(step.n),
        )
        for step in steps(events)
    )


class _StepBuilder:
    """Builds the steps by number. `open_steps` maps the fences of unanswered steps to numbers."""

    def __init__(self) -> None:
        self.steps: dict[int, Step] = {}
        self.open_steps: dict[int, int] = {}

    def apply(self, number: int, event: RunEvent) -> None:
        match event:
            case Offered(step_id=step_id, fence=fence, attempt=attempt, at=at):
                self.open_steps[fence] = number
                self.steps[number] = Step(n=number, place=step_id, attempt=attempt, offered_at=at)
            case Claimed(fence=fence, agent=agent, at=at):
                n = self.open_steps[fence]
                self.steps[n] = replace(self.steps[n], agent=agent, claimed_at=at)
            case Reported() | Faulted() | Lost() | TimedOut():
                self.end_step(event)
            case HandedOff(already_done=True, source=step_id, target=target, at=at):
                self.steps[number] = replace(
                    Step(
                        n=number,
                        place=step_id,
                        attempt=0,
                        outcome="already_done",
                        reason=f"{target} has done this already",
                    ),
                    ended_at=at,
                )
            case Moved(source=source, cancels=cancels, at=at):
                self.cancel_steps({source, *cancels}, at)
            case Ended(at=at):
                self.cancel_steps({self.steps[n].place for n in self.open_steps.values()}, at)
            case _:
                pass

    def end_step(self, event: Reported | Faulted | Lost | TimedOut) -> None:
        """End a step. In a guarded run, without offers, the fence is the step's number."""
        n = self.open_steps.pop(event.fence, event.fence)
        outcome, reason, text = _step_outcome(event)
        step = self.steps.get(n, Step(n=n, place=event.step_id, attempt=1))
        self.steps[n] = replace(
            step,
            agent=event.agent or step.agent,
            outcome=outcome,
            reason=reason,
            text=text,
            ended_at=event.at,
        )

    def cancel_steps(self, step_ids: set[str], at: datetime) -> None:
        for fence, n in list(self.open_steps.items()):
            if self.steps[n].place in step_ids:
                self.steps[n] = replace(self.steps[n], outcome="cancelled", ended_at=at)
                del self.open_steps[fence]


def _step_outcome(event: Reported | Faulted | Lost | TimedOut) -> tuple[str, str, str]:
    """Return (outcome, reason, text)."""
    match event:
        case Reported(result=result):
            outcome = result.outcome.value if result.outcome is not None else "reported"
            return outcome, result.reason, result.text
        case Faulted(fault=fault, message=message, result=result):
            return fault, message, result.text
        case Lost(reason=reason):
            return "lost", reason, ""
        case TimedOut(clock=clock):
            return "timed_out", f"the {clock} clock ran out", ""
        case _:
            assert_never(event)


def attempts(events: Events) -> dict[str, int]:
    """Count the dispatches that an agent claimed, per node or agent, over the whole run."""
    return _count_by_step_id(offer.step_id for offer in _claimed_offers(events))


def retries(events: Events) -> dict[str, int]:
    """Count the claimed dispatches that were not the first of their visit."""
    return _count_by_step_id(
        offer.step_id for offer in _claimed_offers(events) if offer.attempt > 1
    )


def _claimed_offers(events: Events) -> Iterator[Offered]:
    fences = {event.fence for event in events if isinstance(event, Claimed)}
    for event in events:
        if isinstance(event, Offered) and event.fence in fences:
            yield event


def _count_by_step_id(step_ids: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(step_ids).items()))


def warnings(events: Events) -> tuple[RunWarning, ...]:
    return tuple(
        RunWarning(code=event.code, message=event.message, step=event.step or step, at=event.at)
        for _, step, event in enumerate_events(events)
        if isinstance(event, Warned)
    )


def unguarded(events: Events) -> str:
    """Return why only the hard limits judge a guarded run since an error of its guard; else
    empty.
    """
    warnings = (event for event in events if isinstance(event, Warned) and event.unguarded)
    return next((event.message for event in warnings), "")


def count_nudges(events: Events) -> int:
    return sum(isinstance(event, Warned) and event.nudge is not None for event in events)


def count_waits(events: Events) -> int:
    return sum(
        isinstance(event, Reported) and event.weighed.news is News.WAITING for event in events
    )


def would_have(events: Events) -> tuple[WouldHaveDone, ...]:
    """Return what the rules would have done in a dry run."""
    return tuple(
        WouldHaveDone(rung=event.rung, rule=event.rule.value, step=event.step or step)
        for _, step, event in enumerate_events(events)
        if isinstance(event, Warned) and event.rule is not None
    )


def last_progress(events: Events) -> LastProgress | None:
    last: LastProgress | None = None
    by_fence = {
        offer.fence: step
        for _, step, offer in enumerate_events(events)
        if isinstance(offer, Offered)
    }
    for event in events:
        if isinstance(event, Reported) and event.weighed.progress:
            step = by_fence.get(event.fence, event.fence)
            last = LastProgress(
                step=step, agent=event.agent, what=event.weighed.progress, at=event.at
            )
    return last


def last_command(events: Events) -> LastCommand | None:
    last: LastCommand | None = None
    by_fence = {
        offer.fence: step
        for _, step, offer in enumerate_events(events)
        if isinstance(offer, Offered)
    }
    failure_counts: Counter[str] = Counter()
    for event in events:
        if not isinstance(event, Reported):
            continue
        signatures = iter(event.weighed.signatures)
        for check in event.result.evidence.checks:
            signature = next(signatures, "") if check.exit_code else ""
            failure_counts[signature] += 1
            last = LastCommand(
                command=check.command,
                exit_code=check.exit_code,
                signature=signature,
                seen=failure_counts[signature] if signature else 0,
                step=by_fence.get(event.fence, event.fence),
            )
    return last
