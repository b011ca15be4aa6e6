"""Runs as they are shown: in lists, in full, step by step, event by event."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from handrail.engine.journal import PAGE
from handrail.engine.pages import LIMIT, Page, bad_cursor, checked_cursor, checked_limit, refuse
from handrail.engine.project import loaded
from handrail.engine.runs import WithRuns
from handrail.engine.why import Why, explained, look
from handrail.kernel.event_shown import ShownEvent, shown_event
from handrail.kernel.report import Report, report
from handrail.kernel.run.state import Run
from handrail.kernel.shown import Shown, Transition
from handrail.kernel.steps import FullStep, full_steps
from handrail.kernel.view import RunSummary, RunView, run_summary, run_view
from handrail.store.office import Office, RunRow
from handrail.store.port import Note, Recorded, TransitionShown, iso, moment

TEXT_MAX = 200
IDS_MAX = 100
BETWEEN = ":"
"""Stands in a cursor between the run and the number of its event."""


class RunItem(Shown):
    """A run in a list."""

    id: str
    bead_id: str
    title: str
    workflow_id: str
    workflow_version: int
    current_node_id: str | None
    status: str
    terminal_status: str | None
    stop_rule: str | None
    priority: int
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    duration: float


class NoteView(Shown):
    """What was refused and is kept as evidence: a late, doubled or foreign result, an answer to
    what is settled, a forged name. `said` is what was sent."""

    at: datetime
    actor: str
    code: str
    said: Any


class WithReading(WithRuns):
    """An engine whose runs can be looked at."""

    async def executions(
        self,
        *,
        bead_id: str | None = None,
        status: str | None = None,
        terminal_status: str | None = None,
        workflow_id: str | None = None,
        q: str | None = None,
        since: datetime | None = None,
        ended_since: datetime | None = None,
        ended_before: datetime | None = None,
        cursor: str = "",
        limit: int = LIMIT,
    ) -> Page[RunItem]:
        """The newest first. `q` is in the title, or begins the id of the run or its bead."""
        before, limit = checked_cursor(cursor) or None, checked_limit(limit)
        if q is not None and (len(q) > TEXT_MAX or not q.isprintable()):
            told = f"what is looked for is longer than {TEXT_MAX} characters, or no plain text"
            refuse("bad_query", told, "look for a part of a title, or the beginning of an id")
        rows = await self._slowly(
            lambda store: store.runs(
                bead_id=bead_id,
                status=status,
                terminal_status=terminal_status,
                workflow_id=workflow_id,
                text=q or None,
                since=_iso(since),
                ended_since=_iso(ended_since),
                ended_before=_iso(ended_before),
                before=before,
                limit=limit + 1,
            )
        )
        now = self.clock()
        items = tuple(_item(row, now) for row in rows[:limit])
        return Page(items=items, next_cursor=items[-1].id if len(rows) > limit else None)

    async def view(self, run_id: str) -> RunView:
        """The run as it stands, with everything that is shown of it. Refused: unknown_run."""
        run = await self.state(run_id)
        return run_view(await self.plan_of(run), run, await self._story(run), self.clock())

    async def summary(self, run: Run) -> RunSummary:
        """What is shown of a run without a look at its events."""
        return run_summary(await self.plan_of(run), run, self.clock())

    async def summaries(self, ids: Sequence[str]) -> tuple[RunSummary, ...]:
        """The same of many runs; those that nobody knows are left out. Refused: bad_limit."""
        if len(ids) > IDS_MAX:
            told = f"at most {IDS_MAX} runs are told of at a time, not {len(ids)}"
            refuse("bad_limit", told, "ask for some, then for the others")
        found = await self._io(self.store.load, list(ids))
        runs = [loaded(one.subject, one.tail) for one in found.values()]
        return tuple([await self.summary(run) for run in runs])

    async def history_of(
        self, run_id: str, after_seq: int = 0, limit: int = LIMIT
    ) -> list[ShownEvent]:
        """Its events after that one, as they are shown. Refused: unknown_run."""
        limit = checked_limit(limit)
        found = await self._slowly(lambda store: _events(store, run_id, max(0, after_seq), limit))
        if not found and not after_seq:
            await self.state(run_id)  # which refuses a run that nobody knows
        return found

    async def bead_history(
        self, bead_id: str, cursor: str = "", limit: int = LIMIT
    ) -> Page[ShownEvent]:
        """The events of all runs of a bead, in order."""
        run_id, seq = _after(checked_cursor(cursor))
        limit = checked_limit(limit)
        found = await self._slowly(
            lambda store: _events_of_bead(store, bead_id, run_id, seq, limit + 1)
        )
        items = tuple(found[:limit])
        more = len(found) > limit
        last = f"{items[-1]['execution_id']}{BETWEEN}{items[-1]['seq']}" if more else None
        return Page(items=items, next_cursor=last)

    async def steps(self, run_id: str) -> tuple[FullStep, ...]:
        """Every dispatch of the run with its result in full. Refused: unknown_run."""
        return full_steps(await self.history(run_id))

    async def notes(self, run_id: str) -> tuple[NoteView, ...]:
        """What was refused and changed nothing: the first 100 of the run. Refused: unknown_run."""
        rows, _ = await self._slowly(lambda store: store.notes(run_id))
        if not rows:
            await self.state(run_id)
        return tuple(_note(row) for row in rows)

    async def transitions(self, run_id: str) -> tuple[Transition, ...]:
        """Where the run went, and who sent it. Refused: unknown_run."""
        rows = await self._slowly(lambda store: store.transitions(run_id))
        if not rows:
            await self.state(run_id)
        return tuple(_transition(row) for row in rows)

    async def report_of(self, run_id: str) -> Report:
        """What happened and why it stopped, from its events alone. Refused: unknown_run."""
        return report(await self.history(run_id))

    async def explain(self, run_id: str) -> Why:
        """Why the run stopped, waits or is not worked on, and what to do. Refused: unknown_run."""
        run = await self.state(run_id)
        return await self._why(run, report(await self._story(run)))

    async def _why(self, run: Run, told: Report) -> Why:
        waiting = await look(self.keeper, run, self.settings.offline_after)
        newest = await self._io(self.store.definition, told.definition_id)
        version = newest.version if newest is not None else told.version
        guarded = (await self.plan_of(run)).guarded
        if guarded:
            version = told.version  # nobody takes it to another one but its program
        _, refused = await self._io(self.store.notes, run.id)
        return explained(told, waiting, version, refused, guarded=guarded)


def _iso(at: datetime | None) -> str | None:
    return None if at is None else iso(at)


def _item(row: RunRow, now: datetime) -> RunItem:
    began = moment(row.created_at)
    ended = moment(row.ended_at) if row.ended_at is not None else None
    return RunItem(
        id=row.id,
        bead_id=row.bead_id,
        title=row.title,
        workflow_id=row.workflow_id,
        workflow_version=row.workflow_version,
        current_node_id=row.current_node_id,
        status=row.status,
        terminal_status=row.terminal_status,
        stop_rule=row.stop_rule,
        priority=row.priority,
        created_at=began,
        updated_at=moment(row.updated_at),
        ended_at=ended,
        duration=((ended or max(now, began)) - began).total_seconds(),
    )


def _note(row: Note) -> NoteView:
    said = msgspec.json.decode(row.body)
    return NoteView(at=moment(row.at), actor=row.actor, code=row.code, said=said)


def _transition(row: TransitionShown) -> Transition:
    return Transition(
        id=str(row.id),
        from_node_id=row.from_node_id,
        to_node_id=row.to_node_id,
        outcome=row.outcome,
        reason=row.reason,
        actor=row.actor,
        timestamp=moment(row.timestamp),
    )


def _events(store: Office, run_id: str, after: int, limit: int) -> list[ShownEvent]:
    found: list[ShownEvent] = []
    while len(found) < limit:
        entries = store.journal(run_id, after, min(PAGE, limit))
        for entry in entries:
            found += [shown for shown in shown_entry(entry) if shown["seq"] > after]
        if not entries:
            break
        after = entries[-1].seq
    return found[:limit]


def shown_entry(entry: Recorded) -> list[ShownEvent]:
    """The events of a run's entry; none if it was archived."""
    events: list[dict[str, Any]] = msgspec.json.decode(entry.body) if entry.body else []
    first = entry.seq - entry.count + 1
    return [shown_event(entry.stream, seq, event) for seq, event in enumerate(events, first)]


def _events_of_bead(
    store: Office, bead_id: str, run_id: str, seq: int, limit: int
) -> list[ShownEvent]:
    found = _events(store, run_id, seq, limit) if run_id else []
    while len(found) < limit:
        runs = store.runs_of(bead_id, run_id, 1)
        if not runs:
            break
        run_id = runs[0].id
        found += _events(store, run_id, 0, limit - len(found))
    return found


def _after(cursor: str) -> tuple[str, int]:
    if not cursor:
        return "", 0
    run_id, _, seq = cursor.rpartition(BETWEEN)
    if not run_id or not (seq.isascii() and seq.isdigit()) or len(seq) > 15:
        bad_cursor(cursor)
    return run_id, int(seq)
