"""Whole histories under the frozen rules: does `strict` still stop where it stopped?

`compare_history` folds the events of a run as `evolve` does, with the frozen ledger, and asks both
sets of rules at every result, handoff and step.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace
from tests.kernel.frozen_rules import ledger as frozen_ledger
from tests.kernel.frozen_rules import progress as frozen_progress
from tests.kernel.frozen_rules import rules as frozen_rules

from handrail.kernel.definition.limits import FINDING_PROFILES
from handrail.kernel.run.decision_builder import expected_paths
from handrail.kernel.run.events import (
    Faulted,
    HandedOff,
    Moved,
    Offered,
    Reported,
    RunEvent,
    Started,
)
from handrail.kernel.run.evolve import evolve
from handrail.kernel.run.state import Run, Wait
from handrail.kernel.stop import ledger as ledgers
from handrail.kernel.stop import rules

T = TypeVar("T")


class Comparison:
    """One history under both sets of rules: how many moments were compared, how many fired."""

    def __init__(self) -> None:
        self.moments = self.fired = 0
        self.differs = False
        """Something came that the frozen rules do not know: a claim that counts, or a wait."""


def compare_history(events: Iterable[RunEvent]) -> Comparison:
    """Raise AssertionError at the first moment at which the two sets of rules differ."""
    comparison, run, old = Comparison(), None, frozen_ledger.Ledger()
    for event in events:
        if run is None and not isinstance(event, Started):
            return comparison  # the beginning is missing
        before, run = run, evolve(run, event)
        if run.limits.profile in FINDING_PROFILES or run.limits.ladder.conclude:
            return comparison  # other rules, or one step fewer
        if before is None:
            continue
        if isinstance(event, HandedOff):
            _compare_handoff(comparison, before, old, event)
        advanced = _advance(comparison, before, old, event)
        if comparison.differs:
            return comparison
        old = advanced
        assert old == _as_frozen(run.ledger, frozen_ledger.Ledger)
        if isinstance(event, Reported | Faulted):
            _compare_result(comparison, before, run, old, event)
    return comparison


def _as_frozen(value: object, cls: type[T]) -> T:
    """The present value without the fields that the frozen class does not have."""
    return msgspec.convert(msgspec.to_builtins(value), cls)


def _advance(comparison: Comparison, before: Run, old: Any, event: RunEvent) -> Any:
    limits = before.limits
    match event:
        case Reported(wait=Wait()):
            comparison.differs = True
        case Offered():
            return replace(old, steps=old.steps + 1)
        case Reported() | Faulted():
            weighed = _assess(before, old, event)
            if weighed != _as_frozen(event.weighed, type(weighed)):
                assert not event.result.evidence.measured, (weighed, event.weighed)
                assert set(weighed.progress) <= set(event.weighed.progress)
                comparison.differs = True
                return old
            step, result = before.positions[event.step_id].step, event.result
            return frozen_ledger.add_result(
                old, limits, step, result.evidence, result.usage, weighed
            )
        case HandedOff(accepted=True):
            steps = 1 if event.already_done else 0
            return frozen_ledger.add_handoff(
                old, limits, event.source, event.target, event.reason, steps=steps
            )
        case Moved(renews=True):
            return frozen_ledger.renew(old)
        case Moved(spends="") if rules.counts_handoffs(limits):
            for target in event.targets:
                old = frozen_ledger.add_handoff(old, limits, event.source, target, event.reason)
    return old


def _assess(before: Run, old: Any, event: Reported | Faulted) -> Any:
    position = before.positions[event.step_id]
    return frozen_progress.assess_result(
        old,
        before.limits,
        position.step_id if before.kind == "team" else position.agent,
        event.result.evidence,
        task=position.task if before.kind == "team" or isinstance(event, Faulted) else "",
        milestone=event.phase if isinstance(event, Reported) else "",
        paths=expected_paths(before, event.result),
    )


def _compare_handoff(comparison: Comparison, before: Run, old: Any, event: HandedOff) -> None:
    source, target, limits = event.source, event.target, before.limits
    was = frozen_rules.judge_handoff(
        frozen_rules.RuleContext(
            old, limits, source=source, target=target,
            edge=frozen_ledger.find_edge(old, source, target),
        )
    )  # fmt: skip
    now = rules.judge_handoff(
        rules.RuleContext(
            before.ledger, limits, source=source, target=target,
            edge=ledgers.find_edge(before.ledger, source, target),
        )
    )  # fmt: skip
    _compare(comparison, was, now)


def _compare_result(
    comparison: Comparison, before: Run, run: Run, old: Any, event: Reported | Faulted
) -> None:
    position = before.positions[event.step_id]
    agent = position.step_id if before.kind == "team" else position.agent
    evidence, step, limits = event.result.evidence, position.step, before.limits
    then = frozen_rules.RuleContext(old, limits, agent=agent, evidence=evidence, step=step)
    context = rules.RuleContext(run.ledger, limits, agent=agent, evidence=evidence, step=step)
    _compare(comparison, frozen_rules.judge_result(then), rules.judge_result(context))
    _compare(comparison, frozen_rules.judge_step(then), rules.judge_step(context))


def _compare(comparison: Comparison, was: list[Any], now: list[rules.FiredRule]) -> None:
    assert was == [_as_frozen(fired, frozen_rules.FiredRule) for fired in now]
    comparison.moments += 1
    comparison.fired += bool(was)
