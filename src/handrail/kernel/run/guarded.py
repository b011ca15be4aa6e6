"""The commands of guarded runs: begin one, record what its guard saw, ask people for its program.

A guarded run takes place in another program, where a guard judges each step by the same rules. Only
the program that began the run may report it. Its report becomes the history that a team's run has
(`guarded_history.py`), if a guard can have seen it (`guarded_events.py`).

The definition is the team as its runs have shown it so far. A report that shows more is refused
(`team_grown`) until the caller has stored a version with it, and names that version.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from handrail.kernel.decision import Refusal
from handrail.kernel.definition.limits import ASKS_MAX
from handrail.kernel.definition.plan import Plan
from handrail.kernel.run.commands import Ask, Observe, StartGuarded
from handrail.kernel.run.decision_builder import DecisionBuilder, refuse
from handrail.kernel.run.events import (
    Ended,
    GuardedEvent,
    HandedOff,
    HeardOf,
    Migrated,
    Reported,
    Started,
)
from handrail.kernel.run.guarded_events import (
    GUARDED_ROLE_PREFIX,
    exceeds_limits,
    find_problem,
    finishing_agent,
    normalize_events,
)
from handrail.kernel.run.guarded_history import GuardedHistory
from handrail.kernel.run.state import ApprovalKind, Position, Run

ASK_SECONDS_MAX = 30 * 86_400
HEARTBEATS_PER_SILENCE = 3
"""Heartbeats recorded within the time that a program may be silent."""
TEAM_GROWN = "team_grown"
"""The code of the refusal that a new version of the team cures."""


def start(builder: DecisionBuilder, command: StartGuarded) -> Refusal | None:
    plan = builder.plan
    if not _is_guarded_team(plan):
        message = f"'{plan.definition.name}' is no guarded team"
        return refuse("not_guarded", message, "give the guarded run another name")
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
        )
    )
    GuardedHistory(builder).add_events(command.events)
    return None


def check_reporter(builder: DecisionBuilder, command: Observe | Ask) -> Refusal | None:
    """Refuse a report of a run that is not guarded, or another's, or has ended."""
    run, by = builder.run, command.by
    if not _is_guarded_team(builder.plan):
        message = f"run '{run.id}' is no guarded run: its agents answer for themselves"
        return refuse("not_guarded", message, "begin one with POST /guarded-runs")
    if run.filed_by != by:
        message = f"run '{run.id}' was begun by {run.filed_by}, not by {by}"
        return refuse("not_allowed", message, "use the token that it was begun with")
    if run.stop is not None:
        message = f"run '{run.id}' has ended ({run.terminal_status}): {run.stop.reason}"
        return refuse("ended", message, "stop the program")
    return None


def _is_guarded_team(plan: Plan) -> bool:
    return plan.is_guarded and all(
        agent.role == GUARDED_ROLE_PREFIX + agent.id for agent in plan.team.agents
    )


def check_author(command: Observe) -> Refusal | None:
    """Refuse a report in which a person closes the run."""
    if not any(isinstance(event, Ended) and event.by for event in command.events):
        return None
    message = f"only people close a run, and {command.by} tells of a program"
    return refuse("not_allowed", message, "leave the name out, or close it by an override")


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
            )
        )
    if not _fits_team(builder.plan, events, position.step_id):
        return _refuse_grown(run)
    dated = _correct_times(events, command.sent_at or builder.now, since, builder.now)
    GuardedHistory(draft, since).add_events(dated)
    if exceeds_limits(draft.run):
        return _refuse_unusable(
            f"run '{run.id}' has had more handoffs or steps than its limits allow"
        )
    builder.run = draft.run
    builder.events += draft.events
    return None


def ask(builder: DecisionBuilder, command: Ask) -> Refusal | None:
    run = builder.run
    refusal = check_reporter(builder, command) or _refuse_if_waiting(run)
    if refusal is not None:
        return refusal
    if run.asks >= ASKS_MAX:
        message = f"run '{run.id}' has asked people {ASKS_MAX} times"
        return refuse("too_many_asks", message, "decide without them")
    if not 0 < command.seconds <= ASK_SECONDS_MAX:
        return refuse("bad_seconds", f"nobody can wait for {command.seconds} s")
    (position,) = run.positions.values()
    builder.open_approval(
        position,
        ApprovalKind.CLARIFICATION,
        command.text,
        deadline_seconds=command.seconds,
        own=True,
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
    message = f"run '{run.id}' waits for a person"
    return refuse("asked", message, "wait until it is answered, or let go on")


def _refuse_unusable(problem: str) -> Refusal:
    message = f"it cannot be recorded: {problem}"
    return refuse("unusable", message, "correct it and send it again")


def _refuse_grown(run: Run) -> Refusal:
    message = (
        f"the events show more of the team than version {run.version} of '{run.definition_id}'"
    )
    return refuse(TEAM_GROWN, message, "store the next version, and name it")


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
