"""A guarded run in a Handrail database: `runs`, `show`, `report`, `why`, `replay` and the page know
it like any other.

Two ways. `record` writes a whole run that has ended, in one transaction: of a program that is
killed nothing is on record. `begin`, `tell` and `ask` are a server's side of a run that is told of
while it goes on (`live.py`). The same team again is the same version; one that shows an agent or a
way that nobody knew is the next version, and the run goes on under it.

Times of a run that goes on are those of the program, put right by the difference of the clocks and
kept within what has happened and now. A word is told under a key, which is written together with
what it says: told again, to whichever server, it is known. A program that is silent for too long
has lost its run, whether or not anybody looked at the clock before it came back.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace
from uuid_utils import uuid7

from handrail.client.guard_calls import Heard, Seen
from handrail.engine.definitions import check_guarded
from handrail.engine.engine import Engine
from handrail.engine.opening import open as open_engine
from handrail.engine.pages import refuse
from handrail.engine.project import Kept, encode, kept, loaded
from handrail.engine.works import RunWork
from handrail.guard.meant import AGENTS_MAX, WAYS_MAX, meant, more_than_allowed, why_not_meant
from handrail.guard.story import APART, Story, definition, ended_by, history
from handrail.kernel.decision import learn
from handrail.kernel.limits import ASKS_MAX, Limits
from handrail.kernel.plain import why_not_plain
from handrail.kernel.plan import Plan, check
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import Ended, Migrated, RunEvent, Started
from handrail.kernel.run.evolve import evolve, replay
from handrail.kernel.run.machine import next_due
from handrail.kernel.run.state import Run
from handrail.store.port import KeyRow, StoreError, iso, moment

learn(Heard)

Tells = Callable[[Story, Plan, datetime], Awaitable[str]]
"""Adds to the story of a run; the id of the question that was asked, if one was."""

TRIES = 8
"""Of one word to a run that others change at the same moment."""
ROOM = 0.5
"""Of what a team may have: one that had more before begins anew, for the run has to have room."""
SIGNS = 3
"""Signs of life that are put on record within the time that a program may be silent."""
KEY = "guard:"
"""Before the keys of what guards tell, so that they lie apart from others."""


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
    if not await _written(engine, _work(plan, None, replay(story), story)):
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
    key: str = "",
) -> Heard:
    """A run that is told of while it goes on; `agent` has the turn first. Refused: not_guarded,
    unusable."""
    _usable(why_not_plain([team, title, agent, paths or ()]))
    before = await _before(engine, key, by)
    if before is not None:
        return before
    known = await _known(engine, team)
    start = {"start": agent} if agent else {}
    document = definition(team, limits, (), {**known, **start})
    if _share(document) > ROOM:
        document = definition(team, limits, (), start)  # it is seen anew
    defined = await engine.define(document, by=by, workflow_id=team, only_guarded=True)
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
    work = _work(await _plan(engine, run), None, run, [started])
    work.keys = _keys(engine, key, by, _heard(run))
    if not await _written(engine, work):
        raise StoreError(f"run '{run.id}' was not written: another one has its id; try again")
    return _heard(run)


async def tell(
    engine: Engine, run_id: str, events: Sequence[Seen], *, by: str, at: datetime, key: str = ""
) -> Heard:
    """What the guard has seen since. Refused: unknown_run, not_guarded, not_allowed,
    ended, asked, unusable."""
    if any(isinstance(event, Ended) and event.by for event in events):
        told = f"only people close a run, and {by} tells of a program"
        refuse("not_allowed", told, "leave the name out, or close it by an override")

    async def more(story: Story, plan: Plan, now: datetime) -> str:
        if not events:
            _live_on(story, plan, now)
            return ""
        _check_free(story.run)
        _usable(why_not_meant(events, story.run.limits))
        told = meant(events)
        await _grown(engine, story, told, by)
        story.go_on(_timed(told, at, story.since, now))
        if more_than_allowed(story.run):
            _usable(f"run '{run_id}' has had more handoffs or steps than its limits allow")
        return ""

    return await _told(engine, run_id, more, by, key)


def _live_on(story: Story, plan: Plan, now: datetime) -> None:
    """A sign of life is put on record where it is needed. A pause has a clock of its own."""
    (token,) = story.run.tokens.values()
    quiet = plan.settings.guard_silence / SIGNS
    if story.run.paused_at is None and (now - token.since).total_seconds() >= quiet:
        story.live_on(now)


async def ask(
    engine: Engine, run_id: str, question: str, seconds: float, *, by: str, key: str = ""
) -> Heard:
    """A question to a person, whose answer the guarded program waits for. Refused: as `tell`, and
    too_many_asks, asked."""
    _usable(why_not_plain([question]))

    async def asked(story: Story, plan: Plan, now: datetime) -> str:
        _check_free(story.run)
        if story.run.asks >= ASKS_MAX:
            told = f"run '{run_id}' has asked people {ASKS_MAX} times"
            refuse("too_many_asks", told, "decide without them")
        return story.ask(question, now, seconds).id

    return await _told(engine, run_id, asked, by, key)


async def _told(engine: Engine, run_id: str, tells: Tells, by: str, key: str) -> Heard:
    for _ in range(TRIES):
        before = await _before(engine, key, by)
        if before is not None:
            return before
        found = await engine.keeper.io(engine.store.load, [run_id])
        if run_id not in found:
            refuse("unknown_run", f"there is no run '{run_id}'", "`handrail runs` lists them")
        row = found[run_id].subject
        run = loaded(row, found[run_id].tail)
        plan = await _plan(engine, run)
        _check(run, plan, by)
        due = next_due(plan, run)
        if due is not None and due <= engine.clock():
            await engine.command(run_id, c.Tick())  # before anything else is heard of it
            continue
        story = Story(run, moment(row.updated_at))
        question = await tells(story, plan, max(engine.clock(), story.since))
        heard = _heard(story.run, question)
        if not story.events:
            return heard
        work = _work(await _plan(engine, story.run), kept(plan, run, row), story.run, story.events)
        work.keys = _keys(engine, key, by, heard)
        if await _written(engine, work):
            return heard
    raise StoreError(f"run '{run_id}' is changed by others all the time; try again")


def _check(run: Run, plan: Plan, by: str) -> None:
    if not (plan.guarded and all(one.role == APART + one.id for one in plan.team.agents)):
        told = f"run '{run.id}' is no guarded run: its agents answer for themselves"
        refuse("not_guarded", told, "begin one with POST /guarded-runs")
    if run.filed_by != by:
        told = f"run '{run.id}' was begun by {run.filed_by}, not by {by}"
        refuse("not_allowed", told, "use the token that it was begun with")
    if run.ended:
        assert run.stop is not None, "an end has its reason"
        told = f"run '{run.id}' has ended ({run.terminal_status}): {run.stop.reason}"
        refuse("ended", told, "stop the program")


def _check_free(run: Run) -> None:
    if run.questions or run.paused_at is not None:
        told = f"run '{run.id}' waits for a person"
        refuse("asked", told, "wait until it is answered, or let go on")


async def _grown(engine: Engine, story: Story, events: Sequence[Seen], by: str) -> None:
    """If these events show more of the team than is known, the run goes on under that."""
    run = story.run
    known = await _document(engine, run)
    document = definition(known["name"], run.limits, events, known)
    document = ended_by(document, events, story.holder)
    if document == known:
        return
    if _share(document) > 1:
        _usable(f"the team has more than {AGENTS_MAX} agents, or {WAYS_MAX:,} ways between them")
    defined = await engine.define(document, by=by, workflow_id=run.definition_id, only_guarded=True)
    story.migrate(
        Migrated(
            at=story.since,
            by="",  # nobody's act
            reason="the guard has seen more of the team",
            definition_id=defined.id,
            version=defined.version,
            limits=run.limits,
        )
    )


def _share(document: dict[str, Any]) -> float:
    """How much of what a team may have this one has."""
    ways = sum(len(agent["hands_off_to"]) for agent in document["agents"])
    return max(len(document["agents"]) / AGENTS_MAX, ways / WAYS_MAX)


async def _document(engine: Engine, run: Run) -> dict[str, Any]:
    found = await engine.keeper.io(engine.store.definition, run.definition_id, run.version)
    assert found is not None, "a run's definition is never removed"
    return msgspec.json.decode(found.definition, type=dict[str, Any])


async def _plan(engine: Engine, run: Run) -> Plan:
    """Its definition; one that was used before is known."""
    version = run.definition_id, run.version
    if not engine.plans.knows(*version):
        found = await engine.keeper.io(engine.store.definition, *version)
        engine.plans.add(*version, found)
    return engine.plans.get(*version)


def _work(plan: Plan, before: Kept | None, run: Run, events: Sequence[RunEvent]) -> RunWork:
    work = RunWork(run.id, plan, before)
    work.run, work.events = run, tuple(events)
    return work


async def _written(engine: Engine, work: RunWork) -> bool:
    """Whether nobody was faster; then whoever waits for the run, or listens, is told."""
    _, won = await engine.keeper.io(engine.store.commit, [work.write()], iso(engine.clock()))
    if won[0]:
        engine.wrote(work)
    return won[0]


async def _before(engine: Engine, key: str, by: str) -> Heard | None:
    """What was answered to this word before."""
    found = await engine.kept_answer(KEY + key, by) if key else None
    return msgspec.json.decode(found.answer, type=Heard) if found is not None else None


def _keys(engine: Engine, key: str, by: str, heard: Heard) -> tuple[KeyRow, ...]:
    if not key:
        return ()
    answer = encode(heard).decode()
    at = iso(engine.clock())
    return (KeyRow(key=KEY + key, actor=by, digest="", answer=answer, created_at=at),)


async def _known(engine: Engine, team: str) -> dict[str, Any]:
    """The team as it was seen before; nothing if it never was."""
    found = await engine.keeper.io(engine.store.definition, team)
    if found is None:
        return {}
    return check_guarded(found, team)


def _usable(why: str) -> None:
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
