"""The steps of a run, by number, and what can be said of each: attempts, warnings, progress.

Theory of operation. A step is a dispatch, or the earlier answer of a once-only task that was given
again (K19); the ledger counts them, a stop's evidence cites them ("step 7"), and `numbered` counts
them here in the same way. A dispatch is known by its fence from its offer until it is answered,
lost, timed out or cancelled.

Two recorders write the same events. The engine's begin at a place and have an `Offered` for each
dispatch. Those of the in-process guard begin nowhere (`Started.place` is empty) and have handoffs
and results only: each accepted handoff begins a step, and a result's `fence` is its step.
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
from handrail.kernel.shown import Command, Progress, Step, Warning_

Events = Sequence[RunEvent]


class FullStep(Step, frozen=True, kw_only=True):
    """A step with all that came of it. `dispatch_id` is empty where nothing was dispatched."""

    dispatch_id: str
    role: str
    result: Result | None
    """As it came, also one that could not be used; None if nothing came."""


def started(events: Events) -> Started:
    first = events[0] if events else None
    assert isinstance(first, Started), "a run begins with Started"
    return first


def numbered(events: Events) -> Iterator[tuple[int, int, RunEvent]]:
    """Each event with its sequence number and the last step begun by then."""
    guarded = not started(events).place
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
    """Every step with what became of it, by number."""
    book = _StepBook()
    for _, number, event in numbered(events):
        book.take(number, event)
    return tuple(book.found[n] for n in sorted(book.found))


def full_steps(events: Events) -> tuple[FullStep, ...]:
    """Every step with its result in full, by number."""
    run_id = started(events).run_id
    offers: dict[int, Offered] = {}
    results: dict[int, Result] = {}
    by_fence: dict[int, int] = {}
    for _, number, event in numbered(events):
        if isinstance(event, Offered):
            offers[number] = event
            by_fence[event.fence] = number
        elif isinstance(event, Reported | Faulted):
            results[by_fence.get(event.fence, event.fence)] = event.result
    return tuple(
        FullStep(
            **asdict(step),
            dispatch_id=dispatch_id(run_id, offers[step.n].fence) if step.n in offers else "",
            role=offers[step.n].role if step.n in offers else "",
            result=results.get(step.n),
        )
        for step in steps(events)
    )


def dispatch_id(run_id: str, fence: int) -> str:
    """How a dispatch is named outside, as a question is RUN.qN."""
    return f"{run_id}.d{fence}"


class _StepBook:
    """Steps by number; `open` are those that somebody may still answer, by fence."""

    def __init__(self) -> None:
        self.found: dict[int, Step] = {}
        self.open: dict[int, int] = {}

    def take(self, number: int, event: RunEvent) -> None:
        match event:
            case Offered(place=place, fence=fence, attempt=attempt, at=at):
                self.open[fence] = number
                self.found[number] = Step(n=number, place=place, attempt=attempt, offered_at=at)
            case Claimed(fence=fence, agent=agent, at=at):
                n = self.open[fence]
                self.found[n] = replace(self.found[n], agent=agent, claimed_at=at)
            case Reported() | Faulted() | Lost() | TimedOut():
                self.end(event)
            case HandedOff(already_done=True, source=place, target=target, at=at):
                told = f"{target} has done this already"
                step = Step(n=number, place=place, attempt=0, outcome="already_done", reason=told)
                self.found[number] = replace(step, ended_at=at)
            case Moved(source=source, cancels=cancels, at=at):
                self.cancel({source, *cancels}, at)
            case Ended(at=at):
                self.cancel({self.found[n].place for n in self.open.values()}, at)
            case _:
                pass

    def end(self, event: Reported | Faulted | Lost | TimedOut) -> None:
        """Under guard nothing is offered, and the fence is the step's number."""
        n = self.open.pop(event.fence, event.fence)
        outcome, reason, text = _ending(event)
        step = self.found.get(n, Step(n=n, place=event.place, attempt=1))
        agent = event.agent or step.agent
        self.found[n] = replace(
            step, agent=agent, outcome=outcome, reason=reason, text=text, ended_at=event.at
        )

    def cancel(self, places: set[str], at: datetime) -> None:
        for fence, n in list(self.open.items()):
            if self.found[n].place in places:
                self.found[n] = replace(self.found[n], outcome="cancelled", ended_at=at)
                del self.open[fence]


def _ending(event: Reported | Faulted | Lost | TimedOut) -> tuple[str, str, str]:
    """(outcome, reason, text)"""
    match event:
        case Reported(result=result):
            said = result.outcome.value if result.outcome is not None else "reported"
            return said, result.reason, result.text
        case Faulted(fault=fault, message=message, result=result):
            return fault, message, result.text
        case Lost(reason=reason):
            return "lost", reason, ""
        case TimedOut(clock=clock):
            return "timed_out", f"the {clock} clock ran out", ""
        case _:
            assert_never(event)


def attempts(events: Events) -> dict[str, int]:
    """Dispatches per node or agent, over the whole run."""
    return _per_place(event.place for event in events if isinstance(event, Offered))


def retries(events: Events) -> dict[str, int]:
    """Of the dispatches those that were not the first of their visit."""
    tried_again = (e.place for e in events if isinstance(e, Offered) and e.attempt > 1)
    return _per_place(tried_again)


def _per_place(places: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(places).items()))


def warnings(events: Events) -> tuple[Warning_, ...]:
    return tuple(
        Warning_(code=event.code, message=event.message, step=step, at=event.at)
        for _, step, event in numbered(events)
        if isinstance(event, Warned)
    )


def last_progress(events: Events) -> Progress | None:
    found: Progress | None = None
    by_fence = {e.fence: step for _, step, e in numbered(events) if isinstance(e, Offered)}
    for event in events:
        if isinstance(event, Reported) and event.weighed.progress:
            step = by_fence.get(event.fence, event.fence)
            what = event.weighed.progress
            found = Progress(step=step, agent=event.agent, what=what, at=event.at)
    return found


def last_command(events: Events) -> Command | None:
    found: Command | None = None
    by_fence = {e.fence: step for _, step, e in numbered(events) if isinstance(e, Offered)}
    seen: Counter[str] = Counter()
    for event in events:
        if not isinstance(event, Reported):
            continue
        signatures = iter(event.weighed.signatures)
        for check in event.result.evidence.checks:
            signature = next(signatures, "") if check.exit_code else ""
            seen[signature] += 1
            found = Command(
                command=check.command,
                exit_code=check.exit_code,
                signature=signature,
                seen=seen[signature] if signature else 0,
                step=by_fence.get(event.fence, event.fence),
            )
    return found
