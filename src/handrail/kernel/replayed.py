"""What a replay comes to: one value for each run, in words and figures, and their sum.

A *good* run is one that ended as `done_success`. It is *cut* if the other rules would have ended it
in another way: a false stop. What is saved is what the recording shows after the earlier stop.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum

from handrail.kernel.definition import TerminalStatus
from handrail.kernel.other_rules import Given
from handrail.kernel.replay import Plans, Walked, walk
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.evolve import replay as replay_events
from handrail.kernel.run.state import Run
from handrail.kernel.shown import Shown, StopShown, shown_stop

GOOD = TerminalStatus.DONE_SUCCESS


class Verdict(StrEnum):
    """How the run goes under the rules, against its recording."""

    SAME = "same"
    SOONER = "sooner"
    OTHERWISE = "otherwise"
    """At the same step, by another rule."""
    BEYOND = "beyond"
    """It goes on past its recorded end, and nobody knows how far."""
    OPEN = "open"
    """It has not ended, and these rules do not end it either."""
    UNLIKE = "unlike"
    """Its events do not follow from its definition, as this version of the program reads it."""


class Ending(Shown):
    terminal_status: str
    step: int
    at: datetime
    stop: StopShown


class Saved(Shown):
    """What came after the earlier stop."""

    steps: int = 0
    tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0


class Replayed(Shown):
    """One run under other rules. `told` says it in a sentence."""

    execution_id: str
    title: str
    workflow_id: str
    workflow_version: int
    verdict: Verdict
    told: str
    cut: bool
    recorded: Ending | None
    replayed: Ending | None
    saved: Saved


class Summary(Shown):
    """All of them. `cut` are good runs that the rules would have stopped; what they would have
    needed to their good end counts as nothing saved."""

    runs: int
    good: int
    cut: int
    verdicts: dict[str, int]
    saved: Saved


def replayed(recording: Sequence[RunEvent], plans: Plans, given: Given | None) -> Replayed:
    """What these rules would have made of the run; without any, those it was recorded under."""
    before, walked = replay_events(recording), walk(recording, plans, given)
    verdict = _verdict(before, walked)
    saves = verdict is Verdict.SOONER
    return Replayed(
        execution_id=before.id,
        title=before.title,
        workflow_id=before.definition_id,
        workflow_version=before.version,
        verdict=verdict,
        told=TOLD[verdict](before, walked),
        cut=is_cut(before, walked),
        recorded=_ending(before),
        replayed=_ending(walked.run),
        saved=_saved(before, walked.run, recording[-1].at) if saves else Saved(),
    )


def is_cut(before: Run, walked: Walked) -> bool:
    """Whether a good run would have been stopped."""
    after = walked.run.terminal_status
    return before.terminal_status is GOOD and after is not None and after is not GOOD


def summed(items: Iterable[Replayed]) -> Summary:
    found = tuple(items)
    saved = [one.saved for one in found if not one.cut]
    return Summary(
        runs=len(found),
        good=sum(
            one.recorded is not None and one.recorded.terminal_status == GOOD for one in found
        ),
        cut=sum(one.cut for one in found),
        verdicts={
            verdict.value: count
            for verdict in Verdict
            if (count := sum(one.verdict is verdict for one in found))
        },
        saved=Saved(
            steps=sum(one.steps for one in saved),
            tokens=sum(one.tokens for one in saved),
            cost=sum(one.cost for one in saved),
            seconds=sum(one.seconds for one in saved),
        ),
    )


def _verdict(before: Run, walked: Walked) -> Verdict:
    after = walked.run
    if walked.unlike:
        return Verdict.UNLIKE
    if walked.beyond:
        return Verdict.BEYOND
    if after.stop is None or after.ended_at is None:
        return Verdict.OPEN
    if before.stop is None or before.ended_at is None or after.ended_at < before.ended_at:
        return Verdict.SOONER
    if after.ledger.steps < before.ledger.steps:
        return Verdict.SOONER
    same = (after.stop.rule, after.terminal_status) == (before.stop.rule, before.terminal_status)
    return Verdict.SAME if same else Verdict.OTHERWISE


def _ending(run: Run) -> Ending | None:
    stop = shown_stop(run.stop)
    if stop is None or run.terminal_status is None or run.ended_at is None:
        return None
    return Ending(
        terminal_status=run.terminal_status.value,
        step=run.ledger.steps,
        at=run.ended_at,
        stop=stop,
    )


def _saved(before: Run, after: Run, last: datetime) -> Saved:
    assert after.ended_at is not None, "it was stopped"
    return Saved(
        steps=before.ledger.steps - after.ledger.steps,
        tokens=before.ledger.tokens - after.ledger.tokens,
        cost=float(before.ledger.cost - after.ledger.cost),
        seconds=(last - after.ended_at).total_seconds(),
    )


def _by(run: Run) -> str:
    return f"{run.stop.rule} ({run.terminal_status})" if run.stop is not None else "nothing"


def _same(before: Run, walked: Walked) -> str:
    return f"ends as recorded, by {_by(before)} at step {before.ledger.steps}"


def _sooner(before: Run, walked: Walked) -> str:
    after = walked.run
    of = f"step {after.ledger.steps} of {before.ledger.steps}"
    reason = after.stop.reason if after.stop is not None else ""
    good = "a good run is cut: " if is_cut(before, walked) else ""
    return f"{good}{_by(after)} stops it at {of}: {reason}"


def _otherwise(before: Run, walked: Walked) -> str:
    good = "a good run is cut: " if is_cut(before, walked) else ""
    step = before.ledger.steps
    return f"{good}{_by(walked.run)} ends it at step {step}, instead of {_by(before)}"


def _beyond(before: Run, walked: Walked) -> str:
    step = before.ledger.steps
    told = f"goes on past its recorded stop, {_by(before)} at step {step}"
    return f"{told}; there is no recording beyond step {step}"


def _open(before: Run, walked: Walked) -> str:
    return f"is still {before.status} at step {before.ledger.steps}, and these rules do not stop it"


def _unlike(before: Run, walked: Walked) -> str:
    of = f"version {before.version} of '{before.definition_id}'"
    told = f"cannot be replayed: event {walked.unlike} does not follow from {of}"
    return f"{told}; it may have been recorded by another version of Handrail"


TOLD = {
    Verdict.SAME: _same,
    Verdict.SOONER: _sooner,
    Verdict.OTHERWISE: _otherwise,
    Verdict.BEYOND: _beyond,
    Verdict.OPEN: _open,
    Verdict.UNLIKE: _unlike,
}
