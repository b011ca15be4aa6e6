"""Record guarded runs in a Handrail database, where they are runs like any other.

There are two ways. `record_run` writes a whole run that has ended, in one transaction: a program
that is killed leaves no record. `begin_run`, `record_events` and `open_approval` are the server's
side of a run that is reported while it goes on (`server_recorder.py`). The same team again is the
same version; a new agent or edge makes the next version, and the run goes on under that.

Times of a live run are those of the program, corrected by the difference of the clocks and kept
between the last event and now. Each report has a key, which is written together with its events: a
repeated report, to whichever server, is recognised. A program that is silent for too long has lost
its run, even if no clock has fired before it came back.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace
from uuid_utils import uuid7

from handrail.client.guard_calls import GuardedEvent, GuardedRunStatus
from handrail.engine.commit.projection import CachedRun, cache_run, encode, rebuild_run
from handrail.engine.commit.stream_change import RunChange
from handrail.engine.engine import Engine
from handrail.engine.opening import open as open_engine
from handrail.engine.pagination import refuse
from handrail.engine.services.definitions import check_guarded
from handrail.guard.event_validation import (
    AGENTS_MAX,
    EDGES_MAX,
    exceeds_limits,
    find_problem,
    normalize_events,
)
from handrail.guard.history_builder import (
    GUARDED_ROLE_PREFIX,
    HistoryBuilder,
    build_history,
    team_definition,
    with_terminator,
)
from handrail.kernel.decision import prepare_types
from handrail.kernel.definition.limits import ASKS_MAX, Limits
from handrail.kernel.definition.plan import Plan, check_definition
from handrail.kernel.json_values import find_json_problem
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import Ended, Migrated, RunEvent, Started
from handrail.kernel.run.evolve import evolve, replay
from handrail.kernel.run.machine import next_due
from handrail.kernel.run.state import Run
from handrail.store.engine_store import IdempotencyKeyRow, StoreError, iso, parse_iso

prepare_types(GuardedRunStatus)

HistoryUpdate = Callable[[HistoryBuilder, Plan, datetime], Awaitable[str]]
"""Adds to the history of a run; returns the id of the approval that it opened, if any."""

WRITE_ATTEMPTS_MAX = 8
"""Attempts for one report to a run that others change at the same moment."""
KNOWN_TEAM_SHARE_MAX = 0.5
"""Share of a team's limits: a team seen before with more begins anew, to leave the run room."""
HEARTBEATS_PER_SILENCE = 3
"""Heartbeats recorded within the time that a program may be silent."""
KEY_PREFIX = "guard:"
"""Prefix that separates the idempotency keys of guards from others."""


def record_run(events: Sequence[RunEvent], database: str, team: str) -> str:
    """Write the run with these events and return its id there. Raises StoreError."""
    with open_engine(database, visit=True) as opened:
        return opened.do(_write_run(opened.engine, events, team))


async def _write_run(engine: Engine, events: Sequence[RunEvent], team: str) -> str:
    first = events[0]
    assert isinstance(first, Started), "a guarded run begins with it"
    document = team_definition(team, first.limits, events)
    document = with_terminator(document, events, document["start"])
    stored_definition = await engine.define(document)
    plan, _ = check_definition(document, engine.settings.kernel)
    assert plan is not None, "it has just been defined"
    run_id = uuid7().hex
    started = replace(
        first,
        run_id=run_id,
        bead_id=uuid7().hex,
        definition_id=stored_definition.id,
        version=stored_definition.version,
        step_id=document["start"],
    )
    history_events = build_history([started, *events[1:]])
    if not await _commit(engine, _run_change(plan, None, replay(history_events), history_events)):
        raise StoreError(f"run '{run_id}' was not written: another one has its id; try again")
    return run_id


async def begin_run(
    engine: Engine,
    team: str,
    limits: Limits,
    *,
    by: str,
    title: str = "",
    agent: str = "",
    paths: tuple[str, ...] | None = None,
    key: str = "",
) -> GuardedRunStatus:
    """Begin a run that is reported while it goes on; `agent` has the turn first.

    Refused: not_guarded, unusable.
    """
    _refuse_if_unusable(find_json_problem([team, title, agent, paths or ()]))
    earlier = await _earlier_answer(engine, key, by)
    if earlier is not None:
        return earlier
    known_document = await _known_team(engine, team)
    start = {"start": agent} if agent else {}
    document = team_definition(team, limits, (), {**known_document, **start})
    if _team_share(document) > KNOWN_TEAM_SHARE_MAX:
        document = team_definition(team, limits, (), start)  # without what was known
    stored_definition = await engine.define(document, by=by, workflow_id=team, only_guarded=True)
    started = Started(
        at=engine.clock(),
        run_id=uuid7().hex,
        bead_id=uuid7().hex,
        definition_id=stored_definition.id,
        version=stored_definition.version,
        kind="team",
        step_id=document["start"],
        limits=limits,
        title=title or team,
        filed_by=by,
        paths=paths,
    )
    run = evolve(None, started)
    change = _run_change(await _load_plan(engine, run), None, run, [started])
    change.keys = _key_rows(engine, key, by, _run_status(run))
    if not await _commit(engine, change):
        raise StoreError(f"run '{run.id}' was not written: another one has its id; try again")
    return _run_status(run)


async def record_events(
    engine: Engine,
    run_id: str,
    events: Sequence[GuardedEvent],
    *,
    by: str,
    sent_at: datetime,
    key: str = "",
) -> GuardedRunStatus:
    """Record what the guard has seen since the last report.

    Refused: unknown_run, not_guarded, not_allowed, ended, asked, unusable.
    """
    if any(isinstance(event, Ended) and event.by for event in events):
        problem = f"only people close a run, and {by} tells of a program"
        refuse("not_allowed", problem, "leave the name out, or close it by an override")

    async def add_events(history: HistoryBuilder, plan: Plan, now: datetime) -> str:
        if not events:
            _record_heartbeat(history, plan, now)
            return ""
        _check_not_waiting(history.run)
        _refuse_if_unusable(find_problem(events, history.run.limits))
        normalized = normalize_events(events)
        await _extend_definition(engine, history, normalized, by)
        history.add_events(_correct_times(normalized, sent_at, history.since, now))
        if exceeds_limits(history.run):
            _refuse_if_unusable(
                f"run '{run_id}' has had more handoffs or steps than its limits allow"
            )
        return ""

    return await _update_run(engine, run_id, add_events, by, key)


def _record_heartbeat(history: HistoryBuilder, plan: Plan, now: datetime) -> None:
    """Record a heartbeat where one is due. A pause has a clock of its own."""
    (position,) = history.run.positions.values()
    interval_seconds = plan.settings.guard_silence / HEARTBEATS_PER_SILENCE
    if history.run.paused_at is None and (now - position.since).total_seconds() >= interval_seconds:
        history.add_heartbeat(now)


async def open_approval(
    engine: Engine, run_id: str, question: str, seconds: float, *, by: str, key: str = ""
) -> GuardedRunStatus:
    """Open an approval, whose answer the guarded program waits for.

    Refused: as `record_events`, and too_many_asks, asked.
    """
    _refuse_if_unusable(find_json_problem([question]))

    async def add_approval(history: HistoryBuilder, plan: Plan, now: datetime) -> str:
        _check_not_waiting(history.run)
        if history.run.asks >= ASKS_MAX:
            message = f"run '{run_id}' has asked people {ASKS_MAX} times"
            refuse("too_many_asks", message, "decide without them")
        return history.add_approval(question, now, seconds).id

    return await _update_run(engine, run_id, add_approval, by, key)


async def _update_run(
    engine: Engine, run_id: str, update: HistoryUpdate, by: str, key: str
) -> GuardedRunStatus:
    for _ in range(WRITE_ATTEMPTS_MAX):
        earlier = await _earlier_answer(engine, key, by)
        if earlier is not None:
            return earlier
        rows = await engine.committer.call_store(engine.store.load_runs, [run_id])
        if run_id not in rows:
            refuse("unknown_run", f"there is no run '{run_id}'", "`handrail runs` lists them")
        row = rows[run_id].row
        run = rebuild_run(row, rows[run_id].tail)
        plan = await _load_plan(engine, run)
        _check_run(run, plan, by)
        due = next_due(plan, run)
        if due is not None and due <= engine.clock():
            await engine.command(run_id, c.Tick())  # fire due clocks before the report is applied
            continue
        history = HistoryBuilder(run, parse_iso(row.updated_at))
        approval_id = await update(history, plan, max(engine.clock(), history.since))
        status = _run_status(history.run, approval_id)
        if not history.events:
            return status
        change = _run_change(
            await _load_plan(engine, history.run),
            cache_run(plan, run, row),
            history.run,
            history.events,
        )
        change.keys = _key_rows(engine, key, by, status)
        if await _commit(engine, change):
            return status
    raise StoreError(f"run '{run_id}' is changed by others all the time; try again")


def _check_run(run: Run, plan: Plan, by: str) -> None:
    if not (
        plan.is_guarded
        and all(agent.role == GUARDED_ROLE_PREFIX + agent.id for agent in plan.team.agents)
    ):
        message = f"run '{run.id}' is no guarded run: its agents answer for themselves"
        refuse("not_guarded", message, "begin one with POST /guarded-runs")
    if run.filed_by != by:
        message = f"run '{run.id}' was begun by {run.filed_by}, not by {by}"
        refuse("not_allowed", message, "use the token that it was begun with")
    if run.has_ended:
        assert run.stop is not None, "an end has its reason"
        message = f"run '{run.id}' has ended ({run.terminal_status}): {run.stop.reason}"
        refuse("ended", message, "stop the program")


def _check_not_waiting(run: Run) -> None:
    if run.pending_approvals or run.paused_at is not None:
        message = f"run '{run.id}' waits for a person"
        refuse("asked", message, "wait until it is answered, or let go on")


async def _extend_definition(
    engine: Engine, history: HistoryBuilder, events: Sequence[GuardedEvent], by: str
) -> None:
    """Move the run to an extended definition if these events show more of the team."""
    run = history.run
    known_document = await _load_document(engine, run)
    document = team_definition(known_document["name"], run.limits, events, known_document)
    document = with_terminator(document, events, history.active_agent)
    if document == known_document:
        return
    if _team_share(document) > 1:
        _refuse_if_unusable(
            f"the team has more than {AGENTS_MAX} agents, or {EDGES_MAX:,} ways between them"
        )
    stored_definition = await engine.define(
        document, by=by, workflow_id=run.definition_id, only_guarded=True
    )
    history.add_migration(
        Migrated(
            at=history.since,
            by="",  # no person's act
            reason="the guard has seen more of the team",
            definition_id=stored_definition.id,
            version=stored_definition.version,
            limits=run.limits,
        )
    )


def _team_share(document: dict[str, Any]) -> float:
    """Return the share of a team's limits that this definition uses."""
    edges = sum(len(agent["hands_off_to"]) for agent in document["agents"])
    return max(len(document["agents"]) / AGENTS_MAX, edges / EDGES_MAX)


async def _load_document(engine: Engine, run: Run) -> dict[str, Any]:
    row = await engine.committer.call_store(
        engine.store.get_definition, run.definition_id, run.version
    )
    assert row is not None, "a run's definition is never removed"
    return msgspec.json.decode(row.definition, type=dict[str, Any])


async def _load_plan(engine: Engine, run: Run) -> Plan:
    """Load the run's plan; plans used before are cached."""
    version = run.definition_id, run.version
    if not engine.plans.has(*version):
        row = await engine.committer.call_store(engine.store.get_definition, *version)
        engine.plans.add(*version, row)
    return engine.plans.get(*version)


def _run_change(
    plan: Plan, previous: CachedRun | None, run: Run, events: Sequence[RunEvent]
) -> RunChange:
    change = RunChange(run.id, plan, previous)
    change.run, change.events = run, tuple(events)
    return change


async def _commit(engine: Engine, change: RunChange) -> bool:
    """Commit the change, then wake waiters and subscribers; False after a write conflict."""
    _, accepted = await engine.committer.call_store(
        engine.store.commit, [change.build_write()], iso(engine.clock())
    )
    if accepted[0]:
        engine.notify_run_changed(change)
    return accepted[0]


async def _earlier_answer(engine: Engine, key: str, by: str) -> GuardedRunStatus | None:
    """Return what was answered to an earlier report with this key."""
    stored = await engine.stored_answer(KEY_PREFIX + key, by) if key else None
    return msgspec.json.decode(stored.answer, type=GuardedRunStatus) if stored is not None else None


def _key_rows(
    engine: Engine, key: str, by: str, reply: GuardedRunStatus
) -> tuple[IdempotencyKeyRow, ...]:
    if not key:
        return ()
    answer = encode(reply).decode()
    at = iso(engine.clock())
    return (
        IdempotencyKeyRow(key=KEY_PREFIX + key, actor=by, digest="", answer=answer, created_at=at),
    )


async def _known_team(engine: Engine, team: str) -> dict[str, Any]:
    """Return the team as seen before; an empty dictionary if it never was."""
    row = await engine.committer.call_store(engine.store.get_definition, team)
    if row is None:
        return {}
    return check_guarded(row, team)


def _refuse_if_unusable(problem: str) -> None:
    if problem:
        refuse("unusable", f"it cannot be recorded: {problem}", "correct it and send it again")


def _correct_times(
    events: Sequence[GuardedEvent], sent_at: datetime, since: datetime, now: datetime
) -> Sequence[GuardedEvent]:
    """Shift times to the server's clock; `at` is the reporter's time now; none precedes the
    last.
    """
    corrected: list[GuardedEvent] = []
    for event in events:
        age = min(max(sent_at - event.at, timedelta()), now - since)
        since = now - age
        corrected.append(replace(event, at=since))
    return corrected


def _run_status(run: Run, approval_id: str = "") -> GuardedRunStatus:
    return GuardedRunStatus(id=run.id, status=run.status, stop=run.stop, question=approval_id)
