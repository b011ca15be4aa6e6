"""Record guarded runs in a Handrail database, where they are runs like any other.

There are two ways. `record_run` writes a whole run that has ended, in one transaction: a program
that is killed leaves no record. `begin_run`, `record_events` and `open_approval` are the server's
side of a run that is reported while it goes on (`server_recorder.py`). The kernel decides what is
recorded (`kernel/run/guarded.py`); this module keeps the team's definition. The same team again is
the same version; a new agent or edge makes the next version, and the run goes on under that.

Each report has a key, which is written together with its events: a repeated report, to whichever
server, is recognised.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from handrail.engine.engine import Engine
from handrail.engine.errors import RefusedError, StoreError, refuse
from handrail.engine.ids import uuid7
from handrail.engine.opening import open as open_engine
from handrail.guard.team_definition import guard_events, team_definition, team_share
from handrail.kernel.decision import prepare_types
from handrail.kernel.definition.limits import Limits
from handrail.kernel.input_checks import find_json_problem
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import GuardedEvent, RunEvent, Started
from handrail.kernel.run.guarded import AGENTS_MAX, EDGES_MAX, TEAM_GROWN
from handrail.kernel.run.state import RunStatus, Stop
from handrail.kernel.stop.ledger import Ledger
from handrail.views.guarded_run import (
    GuardedRunStatus,
    decode_guarded_run_status,
    guarded_run_status,
)

prepare_types(Ledger)

GROWTH_ATTEMPTS_MAX = 8
"""Attempts for one report to a run whose team others extend at the same moment."""
KNOWN_TEAM_SHARE_MAX = 0.5
"""Share of a team's limits: a team seen before with more begins anew, to leave the run room."""
KEY_PREFIX = "guard:"
"""Prefix that separates the idempotency keys of guards from others."""


def record_run(events: Sequence[RunEvent], database: str, team: str) -> str:
    """Write the run with these events and return its id there. Raises StoreError."""
    with open_engine(database, visit=True) as opened:
        return opened.do(_write_run(opened.engine, events, team))


async def _write_run(engine: Engine, events: Sequence[RunEvent], team: str) -> str:
    first = events[0]
    assert isinstance(first, Started), "a guarded run begins with it"
    stored_definition = await engine.define(team_definition(team, first.limits, events))
    command = c.StartGuarded(
        run_id=uuid7().hex,
        bead_id=uuid7().hex,
        definition_id=stored_definition.id,
        version=stored_definition.version,
        title=first.title,
        paths=first.paths,
        limits=first.limits,
        carried=first.carried,
        started_at=first.at,
        events=tuple(guard_events(events)),
        dry_run=first.dry_run,
        budgets=first.budgets,
    )
    await engine.runs.execute(command.run_id, command)
    return command.run_id


async def begin_run(
    engine: Engine,
    team: str,
    limits: Limits,
    *,
    by: str,
    title: str = "",
    agent: str = "",
    paths: tuple[str, ...] | None = None,
    carried: dict[str, Any] | None = None,
    dry_run: bool = False,
    traceparent: str = "",
    key: str = "",
) -> GuardedRunStatus:
    """Begin a run that is reported while it goes on; `agent` has the turn first, `carried` is what
    earlier runs of its thread counted, and `traceparent` the program's span.

    Refused: not_guarded, unusable.
    """
    _refuse_if_unusable(find_json_problem([team, title, agent, paths or (), carried or {}]))
    earlier = await engine.stored_answers.get(KEY_PREFIX + key, by) if key else None
    if earlier is not None:
        return decode_guarded_run_status(earlier.answer)
    start = {"start": agent} if agent else {}
    known_document = await _known_team(engine, team)
    document = team_definition(team, limits, (), {**known_document, **start})
    if team_share(document) > KNOWN_TEAM_SHARE_MAX:
        document = team_definition(team, limits, (), start)  # without what was known
    stored_definition = await engine.define(document, by=by, workflow_id=team, only_guarded=True)
    command = c.StartGuarded(
        run_id=uuid7().hex,
        bead_id=uuid7().hex,
        definition_id=stored_definition.id,
        version=stored_definition.version,
        title=title or team,
        filed_by=by,
        paths=paths,
        limits=limits,
        carried=_read_ledger(carried),
        dry_run=dry_run,
        traceparent=traceparent,
    )
    status = GuardedRunStatus(id=command.run_id, status=RunStatus.RUNNING)
    answer = msgspec.json.encode(status).decode()
    key_row = engine.stored_answers.row(KEY_PREFIX + key, by, engine.clock(), answer)
    result = await engine.runs.execute(command.run_id, command, key=key_row if key else None)
    return (
        status
        if result.duplicate_of is None
        else decode_guarded_run_status(result.duplicate_of.answer)
    )


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
    command = c.Observe(by=by, events=tuple(events), sent_at=sent_at)
    for _ in range(GROWTH_ATTEMPTS_MAX):
        try:
            return await _submit(engine, run_id, command, key)
        except RefusedError as refused:
            if refused.refusal.code != TEAM_GROWN:
                raise
            command = await _extend_team(engine, run_id, command)
    raise StoreError(f"run '{run_id}' is changed by others all the time; try again")


async def open_approval(
    engine: Engine,
    run_id: str,
    question: str,
    seconds: float,
    *,
    by: str,
    key: str = "",
    stop: Stop | None = None,
    options: tuple[str, ...] = (),
) -> GuardedRunStatus:
    """Open an approval, whose answer the guarded program waits for.

    Refused: as `record_events`, and too_many_asks, bad_seconds.
    """
    command = c.Ask(by=by, text=question, seconds=seconds, options=options, stop=stop)
    return await _submit(engine, run_id, command, key)


async def _submit(
    engine: Engine, run_id: str, command: c.Observe | c.Ask, key: str
) -> GuardedRunStatus:
    # The answer to a report that is decided follows from the decision.
    key_row = engine.stored_answers.row(KEY_PREFIX + key, command.by, engine.clock(), "")
    result = await engine.runs.execute(run_id, command, key=key_row if key else None)
    if result.duplicate_of is not None:
        return decode_guarded_run_status(result.duplicate_of.answer)
    assert result.run is not None, "it was accepted"
    return guarded_run_status(result.run, with_question=isinstance(command, c.Ask))


async def _extend_team(engine: Engine, run_id: str, command: c.Observe) -> c.Observe:
    """Store the team with what the events show of it; return the command with that version."""
    run = await engine.runs.state(run_id)
    known_document = (await engine.definitions.get(run.definition_id, run.version)).definition
    active_agent = next(iter(run.positions), "")
    document = team_definition(
        known_document["name"], run.limits, command.events, known_document, active_agent
    )
    if team_share(document) > 1:
        _refuse_if_unusable(
            f"the team has more than {AGENTS_MAX} agents, or {EDGES_MAX:,} ways between them"
        )
    stored_definition = await engine.define(
        document, by=command.by, workflow_id=run.definition_id, only_guarded=True
    )
    version = stored_definition.version if stored_definition.version != run.version else 0
    return replace(command, definition_id=run.definition_id, version=version, extends=run.version)


async def _known_team(engine: Engine, team: str) -> dict[str, Any]:
    """Return the team as seen before; an empty dictionary if it never was."""
    try:
        stored = await engine.definitions.get(team)
    except RefusedError:
        return {}
    is_guarded = stored.definition.get("metadata", {}).get("guarded")
    return stored.definition if stored.id == team and is_guarded else {}


def _read_ledger(carried: dict[str, Any] | None) -> Ledger | None:
    """Read what a guard carried over from earlier runs of a thread."""
    if carried is None:
        return None
    try:
        return msgspec.convert(carried, Ledger)
    except msgspec.ValidationError as error:
        message = f"what is carried from earlier runs is no ledger: {error}"
        refuse("unusable", message, "leave it out, or send what the guard wrote")


def _refuse_if_unusable(problem: str) -> None:
    if problem:
        refuse(
            "unusable", f"the run cannot be recorded: {problem}", "correct it and record it again"
        )
