"""A guarded run in a Handrail database: `runs`, `show`, `report`, `why`, `replay` and the page know
it like any other.

Two ways. `record` writes a whole run that has ended, in one transaction: of a program that is
killed nothing is on record. `begin`, `tell` and `ask` are a server's side of a run that is told of
while it goes on (`live.py`). The same team again is the same version; one that shows an agent or a
way that nobody knew is the next version, and the run goes on under it.

Times of a run that goes on are those of the program, put right by the difference of the clocks and
kept within what has happened and now.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace
from uuid_utils import uuid7

from handrail.client.guard_calls import Heard, Seen
from handrail.engine.engine import Engine
from handrail.engine.opening import open as open_engine
from handrail.engine.pages import refuse
from handrail.engine.project import kept, loaded, project
from handrail.guard.story import Story, definition, ended_by, history
from handrail.kernel.limits import ASKS_MAX, Limits
from handrail.kernel.plain import why_not_plain
from handrail.kernel.plan import Plan, check
from handrail.kernel.run.events import Ended, Migrated, RunEvent, Started
from handrail.kernel.run.evolve import evolve, replay
from handrail.kernel.run.state import Run
from handrail.store.port import Execution, StoreError, Write, iso, moment

TRIES = 8
"""Of one word to a run that others change at the same moment."""


def record(events: Sequence[RunEvent], database: str, team: str) -> str:
    """Writes the run that these events are of; its id there. Raises StoreError."""
    with open_engine(database, visit=True) as opened:
        return opened.do(_write(opened.engine, events, team))


async def _write(engine: Engine, events: Sequence[RunEvent], team: str) -> str:
    first = events[0]
    assert isinstance(first, Started), "a guarded run begins with it"
    document = definition(team, first.limits, events)
    document = ended_by(document, events, document["start"])
    defined = await engine.define(document)
    plan, _ = check(document, engine.settings.kernel)
    assert plan is not None, "it has just been defined"
    run_id = uuid7().hex
    started = replace(
        first,
        run_id=run_id,
        bead_id=uuid7().hex,
        definition_id=defined.id,
        version=defined.version,
        place=document["start"],
    )
    story = history([started, *events[1:]])
    write, _ = project(plan, None, replay(story), story)
    _, won = engine.store.commit([write], iso(engine.clock()))
    if not won[0]:
        raise StoreError(f"run '{run_id}' was not written: another one has its id; try again")
    return run_id


async def begin(
    engine: Engine,
    team: str,
    limits: Limits,
    *,
    by: str,
    title: str = "",
    agent: str = "",
    paths: tuple[str, ...] | None = None,
) -> Heard:
    """A run that is told of while it goes on; `agent` has the turn first. Refused: not_guarded,
    unusable."""
    _plain([team, title, agent, paths or ()])
    known = await _known(engine, team)
    if agent:
        known["start"] = agent
    document = definition(team, limits, (), known, apart=True)
    defined = await engine.define(document, by=by, workflow_id=team)
    started = Started(
        at=engine.clock(),
        run_id=uuid7().hex,
        bead_id=uuid7().hex,
        definition_id=defined.id,
        version=defined.version,
        kind="team",
        place=document["start"],
        limits=limits,
        title=title or team,
        filed_by=by,
        paths=paths,
    )
    run = evolve(None, started)
    write, _ = project(await _plan(engine, run), None, run, [started])
    if not await _commit(engine, write):
        raise StoreError(f"run '{run.id}' was not written: another one has its id; try again")
    engine.wrote(run)
    return _heard(run)


async def tell(
    engine: Engine, run_id: str, events: Sequence[Seen], *, by: str, at: datetime
) -> Heard:
    """What the guard has seen since. Refused: unknown_run, not_guarded, not_yours, ended,
    unusable."""
    _plain(msgspec.to_builtins(events))
    if any(isinstance(event, Ended) for event in events[:-1]):
        refuse("unusable", "something is told after the end of the run", "tell the end last")
    if any(event.at.tzinfo is None for event in events):
        refuse("unusable", "the time of an event has no zone", "tell times in UTC")

    def more(story: Story, now: datetime) -> str:
        story.go_on(_timed(events, at, story.since, now))
        return ""

    return await _told(engine, run_id, events, by, more)


async def ask(engine: Engine, run_id: str, question: str, seconds: float, *, by: str) -> Heard:
    """A question to a person, whose answer the guarded program waits for. Refused: as `tell`, and
    too_many_asks, asked."""
    _plain([question])

    def asked(story: Story, now: datetime) -> str:
        if story.run.asks >= ASKS_MAX:
            told = f"run '{run_id}' has asked people {ASKS_MAX} times"
            refuse("too_many_asks", told, "decide without them")
        return story.ask(question, now, seconds).id

    return await _told(engine, run_id, (), by, asked)


async def _told(
    engine: Engine,
    run_id: str,
    events: Sequence[Seen],
    by: str,
    tells: Callable[[Story, datetime], str],
) -> Heard:
    for _ in range(TRIES):
        found = await engine.keeper.io(engine.store.load, [run_id])
        if run_id not in found:
            refuse("unknown_run", f"there is no run '{run_id}'", "look at the list of runs")
        row = found[run_id].subject
        run = loaded(row, found[run_id].tail)
        document = await _document(engine, run)
        _check(run, document, by)
        story = Story(run, moment(row.updated_at))
        await _grown(engine, story, document, events, by)
        question = tells(story, max(engine.clock(), story.since))
        if not story.events:
            return _heard(run)
        if await _appended(engine, row, run, story):
            return _heard(story.run, question)
    raise StoreError(f"run '{run_id}' is changed by others all the time; try again")


async def _document(engine: Engine, run: Run) -> dict[str, Any]:
    found = await engine.keeper.io(engine.store.definition, run.definition_id, run.version)
    assert found is not None, "a run's definition is never removed"
    return msgspec.json.decode(found.definition, type=dict[str, Any])


def _check(run: Run, document: dict[str, Any], by: str) -> None:
    if not _is_guarded(document):
        told = f"run '{run.id}' is no guarded run: its agents answer for themselves"
        refuse("not_guarded", told, "begin one with POST /guarded-runs")
    if run.filed_by != by:
        told = f"run '{run.id}' was begun by {run.filed_by}, not by {by}"
        refuse("not_allowed", told, "use the token that it was begun with")
    if run.ended:
        assert run.stop is not None, "an end has its reason"
        told = f"run '{run.id}' has ended ({run.terminal_status}): {run.stop.reason}"
        refuse("ended", told, "stop the program")
    if run.questions or run.paused_at is not None:
        told = f"run '{run.id}' waits for a person"
        refuse("asked", told, "wait until it is answered, or let go on")


async def _grown(
    engine: Engine, story: Story, known: dict[str, Any], events: Sequence[Seen], by: str
) -> None:
    """If these events show more of the team than is known, the run goes on under that."""
    run = story.run
    if not events:
        return
    document = definition(known["name"], run.limits, events, known, apart=True)
    document = ended_by(document, events, story.holder)
    if document == known:
        return
    defined = await engine.define(document, by=by, workflow_id=run.definition_id)
    story.migrate(
        Migrated(
            at=story.since,
            by=by,
            reason="the guard has seen more of the team",
            definition_id=defined.id,
            version=defined.version,
            limits=run.limits,
        )
    )


async def _appended(engine: Engine, row: Execution, run: Run, story: Story) -> bool:
    plan = await _plan(engine, story.run)
    write, _ = project(plan, kept(plan, run, row), story.run, story.events)
    won = await _commit(engine, write)
    if won:
        engine.wrote(story.run)
    return won


async def _plan(engine: Engine, run: Run) -> Plan:
    """Its definition; one that was used before is known."""
    version = run.definition_id, run.version
    if not engine.plans.knows(*version):
        found = await engine.keeper.io(engine.store.definition, *version)
        engine.plans.add(*version, found)
    return engine.plans.get(*version)


async def _commit(engine: Engine, write: Write) -> bool:
    _, won = await engine.keeper.io(engine.store.commit, [write], iso(engine.clock()))
    return won[0]


async def _known(engine: Engine, team: str) -> dict[str, Any]:
    """The team as it was seen before; nothing if it never was."""
    found = await engine.keeper.io(engine.store.definition, team)
    if found is None or found.workflow_id != team:
        return {}
    document = msgspec.json.decode(found.definition, type=dict[str, Any])
    if not _is_guarded(document):
        told = f"there is a definition '{team}' that is no guarded team"
        refuse("not_guarded", told, "give the guarded run another name")
    return document


def _is_guarded(document: dict[str, Any]) -> bool:
    return bool(document.get("metadata", {}).get("guarded"))


def _plain(values: Any) -> None:  # noqa: ANN401 - any JSON
    why = why_not_plain(values)
    if why:
        refuse("unusable", f"it cannot be recorded: {why}", "correct it and send it again")


def _timed(events: Sequence[Seen], at: datetime, since: datetime, now: datetime) -> Sequence[Seen]:
    """As long ago as the teller says, which has `at` on its clock now; none before the last."""
    found: list[Seen] = []
    for event in events:
        ago = min(max(at - event.at, timedelta()), now - since)
        since = now - ago
        found.append(replace(event, at=since))
    return found


def _heard(run: Run, question: str = "") -> Heard:
    return Heard(id=run.id, status=run.status, stop=run.stop, question=question)
