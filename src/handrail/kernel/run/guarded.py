"""The commands of guarded runs: begin one, record what its guard saw, ask people for its program.

A guarded run takes place in another program, where a guard judges each step by the same rules. Only
the program that began the run may report it.

The reporter is a program with an operator's credential, perhaps not a guard at all. It says which
agent did what, and how its run ended; it cannot speak for people, nor for the server, nor for more
than its own limits allow. `find_problem` refuses what no guard can have seen, `normalize_events`
drops all that a guard does not say.

`GuardedHistory` makes of the rest the history that a team's run has: the turns, each step offered,
claimed and reported, each handoff, the end with its reason. A step and the handoff that follows it
are one result, reported at the handoff. Where several agents worked at once, their steps stand
under the agent whose turn it was; a handoff by another one is preceded by a move of the turn to it.
A step is recorded once it has its result: until then only the turn is known, so that no other agent
can claim it, and nothing has to be revoked. There are exactly as many steps as the guard has
counted: one for each turn, and one more for each further result in it. A turn that has its result
is handed over, asks a person and ends without another one.

The definition is the team as its runs have shown it so far. A report that shows more is refused
(`team_grown`) until the caller has stored a version with it, and names that version.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from handrail.kernel.decision import Refusal, refuse
from handrail.kernel.definition.limits import ASKS_MAX, Limits
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.definition.plan import Plan
from handrail.kernel.input_checks import (
    VALUE_ITEMS_MAX,
    find_bad_figures,
    find_json_problem,
    result_bytes_max,
)
from handrail.kernel.result import FIGURE_MAX, Outcome, Result
from handrail.kernel.run.commands import Ask, Observe, StartGuarded
from handrail.kernel.run.decision_builder import DecisionBuilder
from handrail.kernel.run.events import (
    GUARD_ERROR,
    Claimed,
    Ended,
    GuardedEvent,
    HandedOff,
    HeardOf,
    Migrated,
    Moved,
    Offered,
    Reported,
    RunEvent,
    Started,
    Warned,
    nudge_event,
    warning_key,
)
from handrail.kernel.run.state import STOP_OPTIONS, ApprovalKind, Position, Run
from handrail.kernel.stop.budgets import BUDGETS_MAX
from handrail.kernel.stop.ladder import CONCLUSION_CHARS_MAX, is_due
from handrail.kernel.stop.ledger import continue_thread
from handrail.kernel.stop.rules import RULES_BY_NAME, Nudge, StopRule, terminal_status_of

NAME_CHARS_MAX = 200
"""Characters of the name of an agent, or of a milestone."""
AGENTS_MAX, EDGES_MAX = 200, 1_000
"""Per team: each new one makes a version of its definition."""
RUNGS = ("nudge", "ask", "conclude", "stop")
"""What a rule may do, in the order in which it comes to it."""
WARNINGS_MAX = 100
"""Warnings of one stretch, of those that are given once."""
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
        budgets=event.budgets[:BUDGETS_MAX],
    )


def _normalize_handed_off(event: HandedOff) -> HandedOff:
    return replace(event, task="", already_done=False, number=0, proposed=(), rule=None)


def _normalize_ended(event: Ended) -> Ended:
    return event


def _normalize_warned(event: Warned) -> Warned:
    """Keep the nudge, whose text follows from it, or what the guard warns of."""
    if event.nudge is not None:
        return nudge_event(event.at, event.nudge)
    return replace(event, step_id="", budgets=())


NORMALIZERS: dict[type[Any], Callable[[Any], GuardedEvent]] = {
    Reported: _normalize_reported,
    HandedOff: _normalize_handed_off,
    Warned: _normalize_warned,
    Ended: _normalize_ended,
}


def find_problem(events: Sequence[GuardedEvent], limits: Limits) -> str:
    """Return why no guard can have reported this; empty if one can."""
    bytes_max = result_bytes_max(_steps_max(limits))
    for event, next_event in zip(events, [*events[1:], None], strict=True):
        if event.at.tzinfo is None:
            return f"the time {event.at.isoformat()} of an event has no time zone; send it in UTC"
        if isinstance(event, Ended) and next_event is not None:
            return "an event follows the one that ends the run; send it last"
        is_refused = isinstance(event, HandedOff) and not event.accepted
        if is_refused and not isinstance(next_event, Ended):
            return "a refused handoff is not followed by the end of the run; send the end, too"
        problem = _content_problem(event, bytes_max) or VALIDATORS[type(event)](event)
        if problem:
            return problem
    return ""


def _content_problem(event: GuardedEvent, bytes_max: int) -> str:
    """Describe what cannot be stored. Nearly every event is plain, which its JSON shows."""
    try:
        encoded = _encode(event)
    except (TypeError, ValueError, RecursionError) as error:
        return f"an event cannot be encoded as JSON: {error}"
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
    counted_handoffs = ledger.handoffs - ledger.handoffs_before - ledger.first_visits
    steps = ledger.steps - ledger.steps_before
    return counted_handoffs > handoffs or steps > max(1, _steps_max(limits))


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
        return f"an end has the rule '{rule}', which a guard cannot apply"
    statuses = {terminal_status_of(rule, goal_met=goal_met) for goal_met in (False, True)}
    if rule is StopRule.COMPLETED:
        statuses = {TerminalStatus.DONE_SUCCESS}
    if event.status not in statuses:
        return f"an end by the rule '{rule}' cannot have the status '{event.status}'"
    figures = [figure for figure in (stop.limit, stop.seen) if isinstance(figure, int | float)]
    if not all(-FIGURE_MAX <= figure <= FIGURE_MAX for figure in figures):
        return f"limit or seen of the stop is not within {-FIGURE_MAX:,} and {FIGURE_MAX:,}"
    if len(stop.conclusion) > CONCLUSION_CHARS_MAX:
        return f"the stop's conclusion has more than {CONCLUSION_CHARS_MAX:,} characters"
    return ""


def _nudge_problem(nudge: Nudge) -> str:
    if not RULES_BY_NAME[nudge.rule].on_ladder:
        return f"no rule '{nudge.rule}' nudges"
    if not all(0 <= figure <= FIGURE_MAX for figure in (nudge.count, nudge.limit, nudge.left)):
        return "a nudge has a figure that is too large or negative"
    return ""


def _warning_problem(event: Warned) -> str:
    if event.nudge is not None:
        return _nudge_problem(event.nudge)
    if not 0 <= event.step <= STEPS_MAX:
        return "a warning is of no step that a run can have"
    if not warning_key(event) or event.rung not in ("", *RUNGS):
        return f"a guard does not warn of '{event.code[:40]}'"
    if problem := _name_problem(event.subject):
        return problem
    if event.unguarded and event.code != GUARD_ERROR:
        return f"'{event.code[:40]}' is no error of a guard"
    if event.rule is not None and event.code != f"would_{event.rung}":
        return f"'{event.code[:40]}' is no warning of a dry run"
    return ""


VALIDATORS: dict[type[Any], Callable[[Any], str]] = {
    Reported: _result_problem,
    HandedOff: _handoff_problem,
    Warned: _warning_problem,
    Ended: _end_problem,
}


class GuardedHistory:
    """Writes the history of what a guard saw into a decision, from the time `since` on."""

    def __init__(self, builder: DecisionBuilder, since: datetime | None = None) -> None:
        (position,) = builder.run.positions.values()
        self._builder = builder
        self._active_agent, self._since = position.step_id, since or position.since
        self._has_result = position.fence > 0
        """Whether the holder's turn has its first result."""
        self._outcome_reported = False
        """Whether the holder's last result says already what comes next."""

    def add_events(self, events: Sequence[GuardedEvent]) -> None:
        for n, event in enumerate(events, 1):
            if isinstance(event, Reported):
                later = (events[i] for i in range(n, len(events)))
                act = next((event for event in later if not isinstance(event, Warned)), None)
                self._add_reported(event, act)
            elif isinstance(event, HandedOff):
                self._add_handed_off(event)
            elif isinstance(event, Warned):
                self._add_warned(event)
            else:
                self._add_ended(event)

    def _add_reported(self, event: Reported, next_event: GuardedEvent | None) -> None:
        self._begin_step(event.at)
        at, result = event.at, replace(event.result, outcome=Outcome.CONTINUE)
        if isinstance(next_event, HandedOff) and next_event.source == self._active_agent:
            at, result = next_event.at, _handoff_result(result, next_event)
            self._outcome_reported = True
        elif isinstance(next_event, Ended) and next_event.stop.rule is StopRule.COMPLETED:
            at, result = next_event.at, _terminate_result(result, next_event)
            self._outcome_reported = True
        self._end_step(at, result, event)

    def _add_handed_off(self, event: HandedOff) -> None:
        if event.source != self._active_agent:
            self._move_position(event)
        if not (self._outcome_reported or self._has_result):
            self._begin_step(event.at)
            self._end_step(event.at, _handoff_result(Result(), event))
        self._outcome_reported = False
        self._builder.emit(
            replace(event, number=self._builder.run.ledger.handoffs + 1 if event.accepted else 0)
        )
        if event.accepted:
            self._active_agent, self._since, self._has_result = event.target, event.at, False

    def _add_warned(self, event: Warned) -> None:
        """Record a warning, after the result that it follows; drop more than a guard gives."""
        ledger = self._builder.run.ledger
        is_new = warning_key(event) not in ledger.warned and len(ledger.warned) < WARNINGS_MAX
        if is_due(ledger, event.nudge) if event.nudge is not None else is_new:
            times = [event.at, *(last.at for last in self._builder.events[-1:])]
            self._builder.emit(replace(event, at=max(times)))

    def _add_ended(self, event: Ended) -> None:
        if event.stop.rule is StopRule.COMPLETED:
            if not (self._outcome_reported or self._has_result):
                self._begin_step(event.at)
                self._end_step(event.at, _terminate_result(Result(), event))
            event = replace(
                event, stop=replace(event.stop, rule=StopRule.TERMINATED, agent=self._active_agent)
            )
        elif not self._has_result and event.stop.rule is StopRule.AGENT_LOST:
            self._begin_step(event.at)
        self._builder.emit(event)

    def _begin_step(self, at: datetime) -> None:
        """Begin a step of the holder, at the time of its turn, or else now."""
        if not self._has_result:
            at = self._since
        step_id, fence = self._active_agent, self._builder.run.fence + 1
        self._builder.emit(Offered(at=at, step_id=step_id, fence=fence, attempt=1, role=step_id))
        self._builder.emit(Claimed(at=at, step_id=step_id, fence=fence, agent=step_id))

    def _end_step(self, at: datetime, result: Result, reported: Reported | None = None) -> None:
        event = Reported(
            at=at,
            step_id=self._active_agent,
            fence=self._builder.run.fence,
            agent=self._active_agent,
            result=result,
        )
        if reported is not None:
            event = replace(
                event,
                agent=reported.agent,
                weighed=reported.weighed,
                phase=reported.phase,
                budgets=reported.budgets,
            )
        self._builder.emit(event)
        self._has_result = True

    def _move_position(self, event: HandedOff) -> None:
        """Move the turn to an agent that worked in parallel to the holder.

        For the guard it is the same turn, whose step is counted.
        """
        self._builder.emit(
            Moved(
                at=event.at,
                source=self._active_agent,
                targets=(event.source,),
                outcome="beside",
                reason="several agents worked at once",
                enters=(event.source,),
                cancels=(self._active_agent,),
                spends=event.source,  # a move, not a handoff
            )
        )
        self._active_agent, self._since = event.source, event.at


def _handoff_result(result: Result, event: HandedOff) -> Result:
    return replace(result, outcome=Outcome.HANDOFF, to=event.target, reason=event.reason)


def _terminate_result(result: Result, event: Ended) -> Result:
    return replace(result, outcome=Outcome.TERMINATE, reason=event.stop.reason)


ASK_SECONDS_MAX = 30 * 86_400
HEARTBEATS_PER_SILENCE = 3
"""Heartbeats recorded within the time that a program may be silent."""
TEAM_GROWN = "team_grown"
"""The code of the refusal that a new version of the team cures."""


def start(builder: DecisionBuilder, command: StartGuarded) -> Refusal | None:
    plan = builder.plan
    if not _is_guarded_team(plan):
        return refuse(
            "not_guarded",
            f"a definition named '{plan.definition.name}' exists and is not of a guarded program",
            "use another name for the guarded run",
        )
    builder.emit(
        Started(
            at=command.started_at or builder.now,
            run_id=command.run_id,
            bead_id=command.bead_id,
            definition_id=command.definition_id,
            version=command.version,
            kind="team",
            step_id=plan.team.start,
            limits=command.limits,
            title=command.title,
            filed_by=command.filed_by,
            paths=command.paths,
            carried=None if command.carried is None else continue_thread(command.carried),
            dry_run=command.dry_run,
            traceparent=command.traceparent,
            budgets=command.budgets[:BUDGETS_MAX],
            filed=command.filed,
            definition_digest=plan.digest,
        )
    )
    GuardedHistory(builder).add_events(command.events)
    return None


def check_reporter(builder: DecisionBuilder, command: Observe | Ask) -> Refusal | None:
    """Refuse a report of a run that is not guarded, or another's, or has ended."""
    run, by = builder.run, command.by
    if not _is_guarded_team(builder.plan):
        return refuse(
            "not_guarded",
            f"run '{run.id}' is not a guarded run: its agents report their own results",
            "start a guarded run with POST /guarded-runs",
        )
    if run.filed_by != by:
        return refuse(
            "not_allowed",
            f"run '{run.id}' was started by {run.filed_by}, not by {by}",
            f"send the API token of {run.filed_by}",
        )
    if run.stop is not None:
        return refuse(
            "ended",
            f"run '{run.id}' has ended ({run.terminal_status}): {run.stop.reason}",
            "stop the program",
        )
    return None


def _is_guarded_team(plan: Plan) -> bool:
    return plan.is_guarded and all(
        agent.role == GUARDED_ROLE_PREFIX + agent.id for agent in plan.team.agents
    )


def check_author(command: Observe) -> Refusal | None:
    """Refuse a report in which a person closes the run."""
    if not any(isinstance(event, Ended) and event.by for event in command.events):
        return None
    return refuse(
        "not_allowed",
        f"{command.by} reports a program and may not record that a person closed the run",
        "leave `by` out of the end, or close the run with an override",
    )


def observe(builder: DecisionBuilder, command: Observe) -> Refusal | None:
    run = builder.run
    if (refusal := check_reporter(builder, command)) is not None:
        return refusal
    (position,) = run.positions.values()
    if not command.events:
        _record_heartbeat(builder, position)
        return None
    if (refusal := _refuse_if_waiting(run)) is not None:
        return refusal
    if problem := find_problem(command.events, run.limits):
        return _refuse_unusable(problem)
    events = normalize_events(command.events)
    draft = DecisionBuilder(builder.plan, run, builder.now)
    since = command.last_event_at or position.since
    if command.version:
        if (command.definition_id, command.extends) != (run.definition_id, run.version):
            return _refuse_grown(run)
        draft.emit(
            Migrated(
                at=since,
                by="",  # no person's act
                reason="the guard has seen more of the team",
                definition_id=command.definition_id,
                version=command.version,
                limits=run.limits,
                definition_digest=builder.plan.digest,
            )
        )
    if not _fits_team(builder.plan, events, position.step_id):
        return _refuse_grown(run)
    GuardedHistory(draft, since).add_events(
        _correct_times(events, command.sent_at or builder.now, since, builder.now)
    )
    if exceeds_limits(draft.run):
        return _refuse_unusable(
            f"run '{run.id}' has had more handoffs or steps than its limits allow"
        )
    builder.run = draft.run
    builder.events += draft.events
    return None


def ask(builder: DecisionBuilder, command: Ask) -> Refusal | None:
    run = builder.run
    if (refusal := check_reporter(builder, command) or _refuse_if_waiting(run)) is not None:
        return refusal
    if run.asks >= ASKS_MAX:
        return refuse(
            "too_many_asks",
            f"run '{run.id}' has asked people {ASKS_MAX} times, which is the limit",
            "go on without asking, or end the run",
        )
    if not 0 < command.seconds <= ASK_SECONDS_MAX:
        return refuse(
            "bad_seconds",
            f"an answer cannot be waited for {command.seconds:g} seconds",
            f"set more than 0 and at most {ASK_SECONDS_MAX:,} seconds",
        )
    (position,) = run.positions.values()
    if (stop := command.stop) is not None:
        if not (run.limits.ladder.ask and RULES_BY_NAME[stop.rule].is_soft):
            return refuse(
                "not_asked",
                f"run '{run.id}' asks no person whether it goes on after '{stop.rule}'",
                "end it, or begin it with ladder.ask",
            )
        builder.open_approval(
            position,
            ApprovalKind.ESCALATION,
            command.text,
            deadline_seconds=command.seconds,
            options=STOP_OPTIONS,
            stop=stop,
        )
        return None
    builder.open_approval(
        position,
        ApprovalKind.CLARIFICATION,
        command.text,
        deadline_seconds=command.seconds,
        own=True,
        options=command.options,
    )
    return None


def _record_heartbeat(builder: DecisionBuilder, position: Position) -> None:
    """Record a heartbeat where one is due. A pause has a clock of its own."""
    interval_seconds = builder.plan.settings.guard_silence / HEARTBEATS_PER_SILENCE
    is_due = (builder.now - position.since).total_seconds() >= interval_seconds
    if builder.run.paused_at is None and is_due:
        builder.emit(HeardOf(at=builder.now, step_id=position.step_id))


def _refuse_if_waiting(run: Run) -> Refusal | None:
    if not run.pending_approvals and run.paused_at is None:
        return None
    return refuse(
        "asked",
        f"run '{run.id}' takes no events: it waits for a person's answer or is paused",
        "send the events again after the answer, or when the run is resumed",
    )


def _refuse_unusable(problem: str) -> Refusal:
    return refuse(
        "unusable",
        f"the events cannot be recorded: {problem}",
        "correct the events and send them again",
    )


def _refuse_grown(run: Run) -> Refusal:
    return refuse(
        TEAM_GROWN,
        f"the events name agents or handoffs that version {run.version} of "
        f"'{run.definition_id}' does not have",
        "store a version of the definition that has them, and send its number with the events",
    )


def _fits_team(plan: Plan, events: Sequence[GuardedEvent], active_agent: str) -> bool:
    """Whether the team's definition holds all that these events show of it."""
    finisher = finishing_agent(events, active_agent)
    if finisher and finisher != plan.team.terminator:
        return False
    agents = {event.agent for event in events if isinstance(event, Reported)}
    edges = {(event.source, event.target) for event in events if isinstance(event, HandedOff)}
    return plan.agents.keys() >= {active_agent, *agents} and all(
        source in plan.agents and target in plan.agents[source].hands_off_to
        for source, target in edges
    )


def _correct_times(
    events: Sequence[GuardedEvent], sent_at: datetime, since: datetime, now: datetime
) -> list[GuardedEvent]:
    """Date the events by their age, as of `sent_at` by the reporter's clock; none precedes the
    last.
    """
    corrected: list[GuardedEvent] = []
    for event in events:
        age = min(max(sent_at - event.at, timedelta()), now - since)
        since = now - age
        corrected.append(replace(event, at=since))
    return corrected
