"""Replays the events of a guarded run under other limits.

A guarded run takes place in another program. Nothing in it follows from the definition, which
contains only what the guard has seen of the team; the guard judged each handoff and each result as
it came, and the replay judges them in the same way. Recorded times come from another clock: the
running time is taken from a stop that states it, unless that limit has changed.

A run that concludes is stopped a step before its recorded end. The record does not mark that step,
but its form does: it is the last, says nothing but a text, and the rule that ends the run fires
before it. Under rules by which the run would have concluded there too, it is taken as recorded.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Protocol, cast

from msgspec.structs import replace

from handrail.kernel.definition.limits import Limits
from handrail.kernel.definition.plan import Plan
from handrail.kernel.result import NO_EVIDENCE
from handrail.kernel.run.decision_builder import DecisionBuilder
from handrail.kernel.run.events import (
    Asked,
    Claimed,
    Ended,
    HandedOff,
    Migrated,
    Moved,
    Offered,
    Reported,
    RunEvent,
    Started,
    Warned,
)
from handrail.kernel.run.evolve import evolve
from handrail.kernel.stop.ledger import assess_result
from handrail.kernel.stop.rules import (
    RULE_ORDER,
    RULES,
    RULES_BY_NAME,
    FiredRule,
    RuleContext,
    StopRule,
    is_handoff_made,
    judge_step,
)

DURATION_RULES = frozenset({StopRule.MAX_DURATION})
BEFORE_STEP_RULES = frozenset(row.rule for row in RULES if row.on_step is not None)
"""Rules that fire before a step; that step is not on record."""
ACTS = (Offered, Claimed, Reported, HandedOff, Ended)
"""What a program does; all else is a record, or a person's act."""
ENDS_WITHOUT_LIMIT = frozenset(row.rule for row in RULES if not row.limit)
"""Ends that no limit causes: by the program, by a person, or by neither."""


class ReplayContext(Protocol):
    """A replay in progress: `next_index` is the index of the current event. `concludes` once the
    rest of the record is a conclusion."""

    events: list[RunEvent]
    next_index: int
    plan: Plan
    recorded_limits: Limits
    concludes: bool

    def limits_for(self, event: Started | Migrated, context: dict[str, Any]) -> Limits: ...
    def plans(self, workflow_id: str, version: int, /) -> Plan: ...


def _on_recorded(replayer: ReplayContext, builder: DecisionBuilder, event: Asked | Moved) -> None:
    builder.emit(event)


def _on_migrated(replayer: ReplayContext, builder: DecisionBuilder, event: Migrated) -> None:
    replayer.plan = builder.plan = replayer.plans(event.definition_id, event.version)
    builder.emit(replace(event, limits=replayer.limits_for(event, builder.run.context)))


def _on_offered(replayer: ReplayContext, builder: DecisionBuilder, event: Offered) -> None:
    """Judge a further step of a turn; the first was judged with the handoff that led to it. A
    conclusion was preceded by the handoff that is recorded as refused after it."""
    if replayer.concludes:  # what ended the run came with the step before
        builder.emit(event)
        return
    is_further_step = builder.run.positions[event.step_id].fence > 0
    fired = _judge_next_step(replayer, builder) if is_further_step else []
    start, *later = _conclusion(replayer.events) or (None,)
    for act in later if event is start else ():
        if isinstance(act, HandedOff):
            fired = [*builder.judge_handoff(act.source, act.target), *fired]
    if fired and not _concludes(replayer, builder, fired):
        _stop_run(replayer, builder, fired, builder.run.final_agent)
    else:
        builder.emit(event)


def _on_reported(replayer: ReplayContext, builder: DecisionBuilder, event: Reported) -> None:
    if replayer.concludes:
        builder.emit(event)
        return
    run, agent = builder.run, event.agent
    evidence, goal = event.result.evidence, event.weighed.goal
    assessment = assess_result(
        run.ledger,
        run.limits,
        agent,
        evidence,
        task=goal.removeprefix(f"{agent}/") if goal != agent else "",
        milestone=event.phase,
        paths=None if run.paths is None else frozenset(run.paths),
    )
    step = run.positions[event.step_id].step
    builder.emit(replace(event, weighed=assessment))
    fired = builder.judge_result(agent, event.result, step, waited=_recorded_wait(replayer))
    if fired:
        _stop_run(replayer, builder, fired, agent)


def _recorded_wait(replayer: ReplayContext) -> float:
    """Return the seconds since the first wait, as far as a stop states them."""
    recorded_end = _recorded_end(replayer, 2)
    if recorded_end is None or recorded_end.stop.rule is not StopRule.WAIT_DEADLINE:
        return 0.0
    seconds = recorded_end.stop.seen
    return seconds if isinstance(seconds, int | float) else 0.0


def _on_handed_off(replayer: ReplayContext, builder: DecisionBuilder, event: HandedOff) -> None:
    """Judge a handoff; one that completes a repetition is still made."""
    if replayer.concludes:
        builder.emit(event)
        return
    handoff_fired, step_fired = (
        builder.judge_handoff(event.source, event.target),
        _judge_next_step(replayer, builder),
    )
    accepted = not step_fired and is_handoff_made(handoff_fired)
    builder.emit(
        replace(event, accepted=accepted, number=builder.run.ledger.handoffs + 1 if accepted else 0)
    )
    if handoff_fired or step_fired:
        _stop_run(replayer, builder, [*handoff_fired, *step_fired], event.source)


def _on_ended(replayer: ReplayContext, builder: DecisionBuilder, event: Ended) -> None:
    if replayer.concludes or event.stop.rule in ENDS_WITHOUT_LIMIT:
        builder.emit(event)
        return
    # A rule against one more step takes precedence over the clock.
    rules = DURATION_RULES if event.stop.rule in DURATION_RULES else BEFORE_STEP_RULES
    fired = [
        fired_rule for fired_rule in _judge_next_step(replayer, builder) if fired_rule.rule in rules
    ]
    if fired and event.stop.rule in rules:
        _stop_run(replayer, builder, fired, event.stop.agent)


def _judge_next_step(replayer: ReplayContext, builder: DecisionBuilder) -> list[FiredRule]:
    """Return the rules that fire against one more step."""
    run = builder.run
    recorded_end = _recorded_end(replayer, 2)
    ended_by_duration = recorded_end is not None and recorded_end.stop.rule is StopRule.MAX_DURATION
    elapsed = recorded_end.stop.seen if recorded_end is not None and ended_by_duration else 0.0
    assert isinstance(elapsed, int | float), "it is a time"
    return judge_step(RuleContext(run.ledger, run.limits, step=run.ledger.steps, ran=elapsed))


def _stop_run(
    replayer: ReplayContext, builder: DecisionBuilder, fired: Sequence[FiredRule], agent: str
) -> None:
    """Stop the run, by the recorded end if its rule is the same: only the program knew its goal.
    The run goes on where its record concludes it."""
    if _concludes(replayer, builder, fired):
        return
    previous = builder.run
    builder.stop(list(fired), agent)
    stop, recorded_end = builder.run.stop, _recorded_end(replayer, len(builder.events))
    if recorded_end is not None and stop is not None and recorded_end.stop.rule is stop.rule:
        builder.run, builder.events[-1] = evolve(previous, recorded_end), recorded_end


def _concludes(
    replayer: ReplayContext, builder: DecisionBuilder, fired: Sequence[FiredRule]
) -> bool:
    """Whether what is recorded next is the conclusion of a run that these rules stop."""
    start, *_, end = _conclusion(replayer.events) or (None, None)
    rule = min((fired_rule.rule for fired_rule in fired), key=RULE_ORDER.__getitem__)
    if start is None or not isinstance(end, Ended) or end.stop.rule is not rule:
        return False
    decided = [event for event in builder.events if not isinstance(event, Warned)]
    upcoming = replayer.events[replayer.next_index + len(decided) :]
    is_next = next((event for event in upcoming if isinstance(event, ACTS)), None) is start
    is_made = not any(isinstance(event, HandedOff) and not event.accepted for event in decided)
    limits, recorded = builder.run.limits, replayer.recorded_limits
    concluded = recorded.ladder.conclude and RULES_BY_NAME[rule].on_ladder
    would_conclude = limits.ladder.conclude and (
        rule is not StopRule.MAX_STEPS or limits.max_steps == recorded.max_steps
    )
    replayer.concludes = is_next and is_made and concluded and would_conclude
    return replayer.concludes


def _conclusion(events: list[RunEvent]) -> list[RunEvent]:
    """Return the last step of a record and its end, if the step says nothing but a text."""
    acts: list[RunEvent] = []
    for event in reversed(events):
        if isinstance(event, ACTS):
            acts.insert(0, event)
        if isinstance(event, Offered):
            break
    match acts:
        case [Offered(), Claimed(), Reported() as report, *refused, Ended()]:
            is_bare = report.result.evidence == NO_EVIDENCE and not report.phase
            is_refused = not refused or (
                isinstance(refused[0], HandedOff) and not refused[0].accepted
            )
            return acts if is_bare and is_refused else []
        case _:
            return []


def _recorded_end(replayer: ReplayContext, events_max: int) -> Ended | None:
    """Return the recorded end if it is among the next `events_max` events."""
    upcoming = (replayer.events[i] for i in range(replayer.next_index, len(replayer.events)))
    acts = (event for event in upcoming if not isinstance(event, Warned))
    return next((event for event in islice(acts, events_max) if isinstance(event, Ended)), None)


GUARDED_HANDLERS = cast(
    "dict[type[RunEvent], Callable[[Any, DecisionBuilder, Any], None]]",
    {
        Asked: _on_recorded,
        Moved: _on_recorded,
        Migrated: _on_migrated,
        Offered: _on_offered,
        Reported: _on_reported,
        HandedOff: _on_handed_off,
        Ended: _on_ended,
    },
)
