"""Replays a recorded run under other stop rules. No agent runs.

Theory of operation. Some events of a run came from outside (a result, a lost lease, a clock that
ran out, an act of a person); the others followed from them. Replay passes the outside events, in
order and at their recorded times, to the same functions that decided live, under the other limits,
and compares the decided events with the record:

    the same events                    the run goes on as recorded
    a handoff that is not on record    one of the two was redirected; nothing is recorded beyond
    an end that is not on record       the other rules would have stopped the run there
    no end where the record has one    they would have let it go on; nothing is recorded beyond

Until the two differ, the state is the fold of the recorded events, with progress assessed again:
what counts as progress depends on the limits. The clocks of dispatches, approvals and pauses are
not stop rules: they fire as recorded, whatever the settings say today. The maximal running time is
a stop rule: its clock fires when it is due under the other limits.

In a guarded run every event comes from outside and was judged there (`guarded_handlers.py`).
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, cast

from msgspec.structs import replace

from handrail.kernel.definition.limits import Limits
from handrail.kernel.definition.plan import Plan
from handrail.kernel.run import clocks, human_commands, team, workflow
from handrail.kernel.run.commands import Answer
from handrail.kernel.run.decision_builder import DecisionBuilder
from handrail.kernel.run.events import (
    Answered,
    Asked,
    Claimed,
    ClocksPushed,
    Ended,
    Faulted,
    HandedOff,
    HeardOf,
    Lost,
    Migrated,
    Moved,
    Offered,
    Patched,
    Paused,
    Reasked,
    Reported,
    Resumed,
    RunEvent,
    Started,
    TimedOut,
    Warned,
)
from handrail.kernel.run.evolve import evolve
from handrail.kernel.run.evolve import replay as replay_events
from handrail.kernel.run.state import PendingApproval, Person, PositionPhase, Run, Stop
from handrail.kernel.stop.rules import RULE_ORDER, StopRule
from handrail.replay.guarded_handlers import GUARDED_HANDLERS
from handrail.replay.rule_overrides import RuleOverrides, limits_with_overrides
from handrail.views.steps import started_event

PlanLookup = Callable[[str, int], Plan]
"""Returns the plan of a version of a definition."""

EXTERNAL_ENDS = frozenset(
    {StopRule.HUMAN_DEADLINE, StopRule.PAUSE_DEADLINE, StopRule.CLOSED, StopRule.AGENT_LOST}
)
"""Ends that no limit causes."""
UNPOSTPONABLE_ENDS = frozenset(
    rule for rule in StopRule if RULE_ORDER[rule] > RULE_ORDER[StopRule.AGENT_LOST]
)
"""Ends that other limits cannot postpone."""
END_DISTANCE_EVENTS_MAX = 3
"""The distance from a refused handoff to the end that it causes, warnings included."""


class ReplayOutcome:
    """The outcome of a replay. `run` is the last state, ended if the rules or an outside event
    ended it. `continues_past_end`: the run would go on after its recorded end. `mismatch_seq` is
    the number of the first event that does not follow from the definition, else 0."""

    def __init__(
        self, run: Run, *, continues_past_end: bool = False, mismatch_seq: int = 0
    ) -> None:
        self.run, self.continues_past_end, self.mismatch_seq = run, continues_past_end, mismatch_seq


def replay_recording(
    recording: Sequence[RunEvent], plans: PlanLookup, overrides: RuleOverrides | None = None
) -> ReplayOutcome:
    """Replay the recording under these rules, or by default under its own."""
    return _Replayer(recording, plans, overrides).replay()


class _Replayer:
    """`next_index` is the index of the next recorded event, `run` the state before that event."""

    def __init__(
        self, recording: Sequence[RunEvent], plans: PlanLookup, overrides: RuleOverrides | None
    ) -> None:
        first = started_event(recording)
        assert first.step_id, "recorded by an engine"
        self.events, self.plans, self.overrides = list(recording), plans, overrides
        self.plan = plans(first.definition_id, first.version)
        self.run: Run = None  # pyright: ignore[reportAttributeAccessIssue] - none until Started
        self.next_index = 0
        self.checked_deadline: tuple[datetime, datetime | None] = (first.at, None)
        self.handlers = {**HANDLERS, **GUARDED_HANDLERS} if self.plan.is_guarded else HANDLERS
        self.recorded_limits = first.limits
        self.concludes = False

    def replay(self) -> ReplayOutcome:
        while self.next_index < len(self.events):
            event = self.events[self.next_index]
            if isinstance(event, IGNORED_EVENTS):
                self._apply(event)
                continue
            builder = self._decide(event)
            end_index = self.next_index + len(builder.events)
            if builder.events and self.events[self.next_index : end_index] == builder.events:
                self.run, self.next_index = builder.run, end_index  # the usual case
            elif (outcome := self._compare(builder.events)) is not None:
                return outcome
        return ReplayOutcome(self.run)

    def _apply(self, event: RunEvent) -> None:
        self.run = evolve(self.run, event)
        self.next_index += 1

    def _decide(self, event: RunEvent) -> DecisionBuilder:
        """Decide what follows from this event, itself included, under the limits in force."""
        deadline = self._duration_deadline(event)
        if deadline is not None and deadline <= event.at and self._is_before_clock(deadline, event):
            # A recorded duration stop keeps its time; a new one happens at the deadline.
            is_recorded_late = isinstance(event, Ended) and (
                event.stop.rule is StopRule.MAX_DURATION or self.run.concluding is not None
            )
            at = (
                event.at if is_recorded_late else max(deadline, self.events[self.next_index - 1].at)
            )
            builder = DecisionBuilder(self.plan, self.run, at)
            clocks.stop_for_duration(builder)
        else:
            builder = _ReplayBuilder(self.plan, self.run, event.at, self._budget_records(event))
            self.handlers.get(type(event), _ignore)(self, builder, event)
        return builder

    def _budget_records(self, event: RunEvent) -> list[Warned]:
        """Return what was known of budgets when the decision after this event was made."""
        records: list[Warned] = []
        if isinstance(event, Offered):
            return records
        for upcoming in self.events[self.next_index + 1 :]:
            if upcoming.at != event.at or isinstance(upcoming, LATER_DECISIONS):
                break
            if isinstance(upcoming, Warned) and upcoming.budgets:
                records.append(upcoming)
        return records

    def _duration_deadline(self, event: RunEvent) -> datetime | None:
        """Return when the running time ends. Clocks that fire at once were checked together."""
        if self.next_index == 0 or isinstance(event, ClocksPushed):
            return None
        if (
            self.plan.is_guarded
            and self.run.limits.max_duration == self.recorded_limits.max_duration
        ):
            return None  # the program's own clock judged it
        if self.checked_deadline[0] != event.at or not isinstance(event, CLOCK_EVENTS):
            self.checked_deadline = (event.at, clocks.duration_deadline(self.run))
        return self.checked_deadline[1]

    def _is_before_clock(self, deadline: datetime, event: RunEvent) -> bool:
        """Whether the deadline passed before the clock that this event reports ran out."""
        match event:
            case (
                TimedOut(step_id=step_id, clock="queue" | "work")
                | Asked(approval=PendingApproval(step_id=step_id))
            ):
                position = self.run.positions[step_id]
                if position.phase is PositionPhase.WAITING and position.wait is not None:
                    return deadline <= position.wait.due
                wait_limits = self.plan.node_waits.get(step_id, self.plan.default_waits)
                return (
                    deadline
                    <= position.since + wait_limits[position.phase is PositionPhase.CLAIMED]
                )
            case Ended(stop=Stop(rule=StopRule.WAIT_DEADLINE)):
                waits = [position.wait for position in self.run.positions.values()]
                return all(wait is None or deadline <= wait.due for wait in waits)
            case Ended(stop=Stop(rule=StopRule.HUMAN_DEADLINE)):
                return deadline <= min(
                    approval.deadline for approval in self.run.pending_approvals.values()
                )
            case _:
                return True

    def _compare(self, produced: list[RunEvent]) -> ReplayOutcome | None:
        """Apply the recorded events that match; return the outcome at the first difference."""
        for i, event in enumerate(produced):
            if isinstance(event, Warned):
                continue
            while self.next_index < len(self.events) and isinstance(
                self.events[self.next_index], Warned
            ):
                self._apply(self.events[self.next_index])
            recorded = self.events[self.next_index] if self.next_index < len(self.events) else None
            if recorded is None or _comparison_key(event) != _comparison_key(recorded):
                return self._diverge(produced[i:])
            self._apply(_reassess(recorded, event))
        return self._diverge([]) if not produced else None

    def _diverge(self, produced: list[RunEvent]) -> ReplayOutcome:
        """Return the outcome at a difference: a new end, a missing end, or a mismatch. No agent is
        there to conclude a run that only the other rules stop, and no person to let it go on."""
        if any(isinstance(event, Ended) for event in produced):
            return ReplayOutcome(replay_events(produced, self.run))
        stops = [stop for stop in map(_postponed_stop, produced) if stop is not None]
        if stops:
            builder = DecisionBuilder(self.plan, replay_events(produced, self.run), produced[-1].at)
            builder.end(stops[0])
            return ReplayOutcome(builder.run)
        upcoming = self.events[self.next_index : self.next_index + END_DISTANCE_EVENTS_MAX]
        if any(map(_postponed_stop, upcoming)):
            return ReplayOutcome(self.run, continues_past_end=True)
        end_rules = [event.stop.rule for event in upcoming if isinstance(event, Ended)]
        is_redirected = any(map(_is_redirect, (*produced[:1], *upcoming[:1])))
        if is_redirected or (end_rules and end_rules[0] not in UNPOSTPONABLE_ENDS):
            return ReplayOutcome(self.run, continues_past_end=True)
        return ReplayOutcome(self.run, mismatch_seq=self.next_index + 1)

    def limits_for(self, event: Started | Migrated, context: dict[str, Any]) -> Limits:
        if self.overrides is None:
            return event.limits
        return limits_with_overrides(self.plan, self.overrides, context.get("task_scope"))


def _is_redirect(event: RunEvent) -> bool:
    return isinstance(event, HandedOff) and bool(event.proposed)


def _postponed_stop(event: RunEvent) -> Stop | None:
    """Return the stop that the event postpones: for a conclusion, or for a person's word."""
    if isinstance(event, Asked):
        return event.approval.stop
    return event.concluding if isinstance(event, Offered) else None


def _comparison_key(event: RunEvent) -> tuple[object, ...]:
    """Return the fields to compare. Texts and figures are left out: their wording may have changed
    since, or they follow from the limits."""
    fields = COMPARED_FIELDS.get(type(event), ())
    postponed = _postponed_stop(event) is not None
    return type(event), postponed, *(getattr(event, name) for name in fields)


COMPARED_FIELDS: dict[type[RunEvent], tuple[str, ...]] = {
    Offered: ("step_id", "fence"),
    Reported: ("step_id", "fence", "asking"),
    Faulted: ("step_id", "fence"),
    Lost: ("step_id", "fence"),
    TimedOut: ("step_id", "fence"),
    HandedOff: ("source", "target", "accepted", "already_done"),
    Moved: ("source", "targets", "enters", "cancels"),
}


class _ReplayBuilder(DecisionBuilder):
    """Knows of budgets what was recorded."""

    def __init__(self, plan: Plan, run: Run, now: datetime, records: list[Warned]) -> None:
        super().__init__(plan, run, now, tuple(s for record in records for s in record.budgets))
        self._records = records

    def record_budgets(self) -> None:
        records, self._records = self._records, []
        for record in records:
            self.emit(record)


def _reassess(recorded: RunEvent, produced: RunEvent) -> RunEvent:
    """Return the recorded event, with the parts that follow from the limits replaced."""
    if isinstance(recorded, Reported) and isinstance(produced, Reported):
        recorded = replace(recorded, wait=produced.wait)
    if isinstance(recorded, Reported | Faulted) and isinstance(produced, Reported | Faulted):
        return replace(recorded, weighed=produced.weighed)
    return produced if isinstance(recorded, Started | Migrated | Ended) else recorded


# What each outside event causes


def _advance(builder: DecisionBuilder) -> None:
    if not builder.run.has_ended:
        (team if builder.run.kind == "team" else workflow).advance(builder)


def _ignore(replayer: _Replayer, builder: DecisionBuilder, event: RunEvent) -> None:
    """Ignore an event that does not come from outside."""


def _on_started(replayer: _Replayer, builder: DecisionBuilder, event: Started) -> None:
    builder.emit(replace(event, limits=replayer.limits_for(event, event.context)))
    _advance(builder)


def _on_claimed(replayer: _Replayer, builder: DecisionBuilder, event: Claimed) -> None:
    builder.emit(event)


def _on_human_act(
    replayer: _Replayer, builder: DecisionBuilder, event: Paused | Resumed | Patched | ClocksPushed
) -> None:
    builder.emit(event)
    _advance(builder)


def _on_moved(replayer: _Replayer, builder: DecisionBuilder, event: Moved) -> None:
    """Apply a move that is a person's act."""
    if event.renews:
        builder.emit(event)
        _advance(builder)


def _on_migrated(replayer: _Replayer, builder: DecisionBuilder, event: Migrated) -> None:
    replayer.plan = builder.plan = replayer.plans(event.definition_id, event.version)
    builder.emit(replace(event, limits=replayer.limits_for(event, builder.run.context)))
    upcoming = replayer.events[replayer.next_index + 1 : replayer.next_index + 2]
    for move in [event for event in upcoming if isinstance(event, Moved)]:  # no clock in between
        builder.emit(move)
        _advance(builder)


def _on_answered(replayer: _Replayer, builder: DecisionBuilder, event: Answered) -> None:
    approval = builder.run.pending_approvals[event.approval_id]
    builder.emit(event)
    if event.final:
        human_commands.DECISION_HANDLERS[event.decision](
            builder,
            approval,
            Answer(approval_id=approval.id, by=Person(name=event.by), text=event.text),
        )
    _advance(builder)


def _on_reported(replayer: _Replayer, builder: DecisionBuilder, event: Reported) -> None:
    stop = builder.run.concluding
    if stop is not None:
        team.conclude(builder, builder.run.positions[event.step_id], stop, event.result)
        return
    (team if builder.run.kind == "team" else workflow).report(
        builder, builder.run.positions[event.step_id], event.result
    )
    _advance(builder)


def _on_faulted(replayer: _Replayer, builder: DecisionBuilder, event: Faulted) -> None:
    position = builder.run.positions[event.step_id]
    if builder.run.kind == "team":
        team.handle_fault(builder, position, event.fault, event.message, event.result)
    else:
        workflow.handle_malformed(builder, position, event.message, event.result)
    _advance(builder)


def _on_lost(replayer: _Replayer, builder: DecisionBuilder, event: Lost) -> None:
    clocks.lose_dispatch(builder, builder.run.positions[event.step_id], event.reason)
    _advance(builder)


def _on_timed_out(replayer: _Replayer, builder: DecisionBuilder, event: TimedOut) -> None:
    deadline = replayer.checked_deadline[1]
    clocks.time_out_dispatch(builder, builder.run.positions[event.step_id], event.clock)
    if (
        builder.run.kind == "team"
        and deadline is not None
        and deadline <= event.at
        and not builder.run.has_ended
    ):
        clocks.stop_for_duration(builder)  # both clocks had run out by then
    _advance(builder)


def _on_asked(replayer: _Replayer, builder: DecisionBuilder, event: Asked) -> None:
    """An outside event only if the commit lock was not granted in time, or a wait passed its
    deadline."""
    position = builder.run.positions[event.approval.step_id]
    if position.phase is PositionPhase.WAITING:
        clocks.end_wait(builder, position)
    elif position.phase in workflow.ADVANCEABLE_PHASES:
        clocks.time_out_dispatch(builder, position, "queue")


def _on_offered(replayer: _Replayer, builder: DecisionBuilder, event: Offered) -> None:
    """An outside event only if the commit lock was granted, or an agent has waited."""
    position = builder.run.positions[event.step_id]
    if position.phase is PositionPhase.WAITING:
        clocks.end_wait(builder, position)
        _advance(builder)
    elif event.lock is not None:
        builder.offer_dispatch(builder.run.positions[event.step_id], event.role, event.lock)


def _on_ended(replayer: _Replayer, builder: DecisionBuilder, event: Ended) -> None:
    """An external end, or the commit lock was granted and no step was left."""
    if event.stop.rule in EXTERNAL_ENDS:
        builder.emit(event)
        return
    builder.end_if_spent()
    if builder.run.has_ended:
        return
    for position in builder.run.positions.values():
        if position.has_waited(event.at):
            clocks.end_wait(builder, position)
            _advance(builder)
            return
        if builder.run.kind == "workflow" and position.phase in workflow.ADVANCEABLE_PHASES:
            builder.offer_dispatch(position, position.role, 0)
            return


IGNORED_EVENTS = (Warned, Reasked, HeardOf)
"""Events that change nothing a rule reads."""
LATER_DECISIONS = (Offered, Claimed, Reported, Faulted, Lost)
"""Events after which what is known of budgets belongs to another decision."""
CLOCK_EVENTS = (TimedOut, Asked, Ended)
"""Events that report an expired clock, if they come from outside."""
HANDLERS = cast(
    "dict[type[RunEvent], Callable[[_Replayer, DecisionBuilder, Any], None]]",
    {
        Started: _on_started,
        Claimed: _on_claimed,
        Paused: _on_human_act,
        Resumed: _on_human_act,
        Patched: _on_human_act,
        ClocksPushed: _on_human_act,
        Moved: _on_moved,
        Migrated: _on_migrated,
        Answered: _on_answered,
        Reported: _on_reported,
        Faulted: _on_faulted,
        Lost: _on_lost,
        TimedOut: _on_timed_out,
        Asked: _on_asked,
        Offered: _on_offered,
        Ended: _on_ended,
    },
)
