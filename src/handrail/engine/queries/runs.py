"""Runs as they are read: their state, from memory where they are active, else from the database;
in lists, in full, step by step, event by event, and with all that a page shows beside one."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from handrail.engine.commit.plan_cache import PlanCache
from handrail.engine.commit.run_change import CachedRun, decode_events, rebuild_run
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.environment import Clock, StoreAccess
from handrail.engine.errors import EventsGoneError, refuse, require_known
from handrail.engine.pagination import check_cursor, check_limit, refuse_cursor, to_page
from handrail.engine.queries.why import explain, load_surroundings, wait_reasons
from handrail.engine.settings import EngineSettings
from handrail.kernel.definition.plan import Plan
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.state import Position, Run
from handrail.store.rows import StoredEntry, iso, parse_iso
from handrail.store.runs import RunListRow
from handrail.store.store import Store
from handrail.views.beads import BeadView
from handrail.views.event_view import EventView, event_view
from handrail.views.report import RunReport, build_report
from handrail.views.run_view import (
    RUN_IDS_MAX,
    NoteView,
    RunDetails,
    RunExplanation,
    RunItem,
    RunSummary,
    RunView,
    WaitReason,
    run_summary,
    run_view,
)
from handrail.views.steps import StepDetails, step_details
from handrail.views.view_types import PAGE_ITEMS_DEFAULT, Page, TransitionView

PAGE_ENTRIES = 1_000
QUERY_CHARS_MAX = 200
CURSOR_SEPARATOR = ":"
"""Separates the run and the number of its event in a cursor."""


def read_events(store: Store, run_id: str, seq: int) -> list[RunEvent]:
    """Return the events of a run up to `seq`."""
    events: list[RunEvent] = []
    while len(events) < seq:
        entries = store.journal.read(run_id, len(events), PAGE_ENTRIES)
        if not entries or not all(entry.body for entry in entries):
            raise EventsGoneError(
                f"run '{run_id}': only {len(events)} events are stored; `handrail verify` says why"
            )
        for entry in entries:
            events += decode_events(entry.body)
    return events[:seq]


class RunReader:
    """Reads runs, their plans and their events."""

    def __init__(
        self, access: StoreAccess, plans: PlanCache, cached_runs: Mapping[str, CachedRun]
    ) -> None:
        self._access, self._plans, self._cached_runs = access, plans, cached_runs

    async def state(self, run_id: str) -> Run:
        """The run as it stands on disk. Refused: unknown_run."""
        return require_known(
            await self.find(run_id), "unknown_run", run_id, "`handrail runs` lists them"
        )

    def cached(self, run_id: str) -> Run | None:
        """An active run, if it is in memory."""
        cached = self._cached_runs.get(run_id)
        return cached.run if cached is not None else None

    async def find(self, run_id: str) -> Run | None:
        return next(iter(await self.load([run_id])), None)

    async def load(self, run_ids: list[str]) -> list[Run]:
        """The runs that exist, as they stand on disk."""
        loaded_runs = await self._access.call(self._access.store.runs.load, run_ids)
        return [rebuild_run(stored.row, stored.tail) for stored in loaded_runs.values()]

    async def history(self, run: Run) -> list[RunEvent]:
        """All events of the run."""
        if self._access.has_short_history(run):
            return read_events(self._access.store, run.id, run.seq)
        return await self._access.query(lambda store: read_events(store, run.id, run.seq))

    async def plan_of(self, run: Run) -> Plan:
        """The run's definition, from memory or from the database."""
        cached = self._cached_runs.get(run.id)
        if cached is not None:
            return cached.plan
        version = run.definition_id, run.version
        if not self._plans.has(*version):
            row = await self._access.call(self._access.store.definitions.get, *version)
            on_record = row is None or await self._access.call(
                self._access.store.definitions.is_on_record, row
            )
            self._plans.add(*version, row, on_record=on_record)
        return self._plans.get_for_run(run)

    def cached_dispatch(self, run_id: str, fence: int) -> Dispatch | None:
        """An open dispatch of a run in memory."""
        cached = self._cached_runs.get(run_id)
        position = cached.run.find_position(fence) if cached is not None else None
        if cached is None or position is None:
            return None
        return self._dispatch(cached.plan, cached.run, position)

    async def open_dispatch(self, run_id: str, fence: int) -> Dispatch | None:
        """An open dispatch, from memory, else from the database."""
        cached = self.cached_dispatch(run_id, fence)
        if cached is not None:
            return cached
        run = await self.find(run_id)
        position = run.find_position(fence) if run is not None else None
        if run is None or position is None:
            return None
        return self._dispatch(await self.plan_of(run), run, position)

    def _dispatch(self, plan: Plan, run: Run, position: Position) -> Dispatch:
        """A dispatch. Its history and files are read when its agent wants them."""
        return Dispatch(
            plan,
            run,
            position,
            lambda: read_events(self._access.store_for(run), run.id, run.seq),
            lambda: self._access.store_for(run).beads.list_files(run.bead_id),
        )


class RunQueries:
    """Lists and shows runs."""

    def __init__(
        self,
        access: StoreAccess,
        reader: RunReader,
        get_bead: Callable[[str], Awaitable[BeadView]],
        clock: Clock,
        settings: EngineSettings,
    ) -> None:
        self._access, self._store, self._reader = access, access.store, reader
        self._get_bead, self._clock, self._settings = get_bead, clock, settings

    async def list(
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
        limit: int = PAGE_ITEMS_DEFAULT,
    ) -> Page[RunItem]:
        """List runs, the newest first. `q` is in the title, or begins the id of the run or its
        bead."""
        before, limit = check_cursor(cursor) or None, check_limit(limit)
        if q is not None and (len(q) > QUERY_CHARS_MAX or not q.isprintable()):
            refuse(
                "bad_query",
                f"the search text has more than {QUERY_CHARS_MAX} characters, or unprintable ones",
                "look for a part of a title, or the beginning of an id",
            )
        rows = await self._access.query(
            lambda store: store.runs.list(
                bead_id=bead_id,
                status=status,
                terminal_status=terminal_status,
                workflow_id=workflow_id,
                text=q or None,
                since=_iso_or_none(since),
                ended_since=_iso_or_none(ended_since),
                ended_before=_iso_or_none(ended_before),
                before=before,
                limit=limit + 1,
            )
        )
        now = self._clock()
        return to_page(rows, limit, lambda row: _to_item(row, now))

    async def view(self, run_id: str) -> RunView:
        """Return the run as it stands, with all that is shown of it. Refused: unknown_run."""
        run = await self._reader.state(run_id)
        return run_view(
            await self._reader.plan_of(run), run, await self._reader.history(run), self._clock()
        )

    async def summary(self, run: Run) -> RunSummary:
        """Return what is shown of a run without reading its events."""
        return run_summary(await self._reader.plan_of(run), run, self._clock())

    async def summaries(self, ids: Sequence[str]) -> tuple[RunSummary, ...]:
        """Return the summaries of many runs; unknown ids are left out. Refused: bad_limit."""
        if len(ids) > RUN_IDS_MAX:
            refuse(
                "bad_limit",
                f"{len(ids)} ids in one request; at most {RUN_IDS_MAX}",
                "split them over several requests",
            )
        return tuple([await self.summary(run) for run in await self._reader.load([*ids])])

    async def events(
        self, run_id: str, after_seq: int = 0, limit: int = PAGE_ITEMS_DEFAULT
    ) -> Sequence[EventView]:
        """Return the run's events after `after_seq`, as they are shown. Refused: unknown_run."""
        limit = check_limit(limit)
        events = await self._access.query(
            lambda store: _read_events(store, run_id, max(0, after_seq), limit)
        )
        if not events and not after_seq:
            await self._reader.state(run_id)  # refuses an unknown run
        return events

    async def bead_history(
        self, bead_id: str, cursor: str = "", limit: int = PAGE_ITEMS_DEFAULT
    ) -> Page[EventView]:
        """Return the events of all runs of a bead, in order."""
        run_id, seq = _parse_cursor(check_cursor(cursor))
        limit = check_limit(limit)
        events = await self._access.query(
            lambda store: _read_bead_events(store, bead_id, run_id, seq, limit + 1)
        )
        return to_page(
            events,
            limit,
            lambda event: event,
            lambda event: f"{event['execution_id']}{CURSOR_SEPARATOR}{event['seq']}",
        )

    async def steps(self, run_id: str) -> tuple[StepDetails, ...]:
        """Return every dispatch of the run with its result in full. Refused: unknown_run."""
        return step_details(await self._history(run_id))

    async def notes(self, run_id: str) -> tuple[NoteView, ...]:
        """Return the refused inputs of the run, the first 100. Refused: unknown_run."""
        rows, _ = await self._access.query(lambda store: store.runs.list_notes(run_id))
        if not rows:
            await self._reader.state(run_id)
        return tuple(
            NoteView(
                at=parse_iso(row.at),
                actor=row.actor,
                code=row.code,
                said=msgspec.json.decode(row.body),
            )
            for row in rows
        )

    async def transitions(self, run_id: str) -> tuple[TransitionView, ...]:
        """Return the transitions of the run, and who caused them. Refused: unknown_run."""
        rows = await self._access.query(lambda store: store.runs.list_transitions(run_id))
        if not rows:
            await self._reader.state(run_id)
        return tuple(
            TransitionView(
                id=str(number),
                from_node_id=row.from_node_id,
                to_node_id=row.to_node_id,
                outcome=row.outcome,
                reason=row.reason,
                actor=row.actor,
                timestamp=parse_iso(row.timestamp),
            )
            for number, row in rows
        )

    async def report(self, run_id: str) -> RunReport:
        """Report what happened and why it stopped, from its events alone. Refused: unknown_run."""
        return build_report(await self._history(run_id))

    async def why(self, run_id: str) -> RunExplanation:
        """Explain why the run stopped, waits or is not worked on, and what to do. Refused:
        unknown_run."""
        run = await self._reader.state(run_id)
        return await self._explain_run(run, build_report(await self._reader.history(run)))

    async def _explain_run(self, run: Run, report: RunReport) -> RunExplanation:
        waiting = await self._wait_reasons(run)
        newest = await self._access.call(self._store.definitions.get, report.definition_id)
        version = newest.version if newest is not None else report.version
        guarded = (await self._reader.plan_of(run)).is_guarded
        if guarded:
            version = report.version  # only its own program migrates it
        _, refused_count = await self._access.call(self._store.runs.list_notes, run.id)
        return explain(report, waiting, version, refused_count, guarded=guarded)

    async def waits(self, run_id: str) -> tuple[WaitReason, ...]:
        """Explain what each open position of the run waits for; nothing if it has ended."""
        return await self._wait_reasons(await self._reader.state(run_id))

    async def details(self, run_id: str) -> RunDetails:
        """Return the run, its bead, its steps, its report, and why it waits: a client that follows
        a run asks once per change. Refused: unknown_run."""
        run = await self._reader.state(run_id)
        events = await self._reader.history(run)
        run_report = build_report(events)
        return RunDetails(
            run=run_view(await self._reader.plan_of(run), run, events, self._clock()),
            bead=await self._get_bead(run.bead_id),
            steps=step_details(events),
            report=replace(run_report, steps=()),
            why=await self._explain_run(run, run_report),
        )

    async def _history(self, run_id: str) -> Sequence[RunEvent]:
        return await self._reader.history(await self._reader.state(run_id))

    async def _wait_reasons(self, run: Run) -> tuple[WaitReason, ...]:
        plan, now = await self._reader.plan_of(run), self._clock()
        surroundings = await self._access.call(
            load_surroundings, self._store, plan, run, now, self._settings.offline_after
        )
        return wait_reasons(plan, run, surroundings)


def _iso_or_none(at: datetime | None) -> str | None:
    return None if at is None else iso(at)


def _to_item(row: RunListRow, now: datetime) -> RunItem:
    began = parse_iso(row.created_at)
    ended = parse_iso(row.ended_at) if row.ended_at is not None else None
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
        updated_at=parse_iso(row.updated_at),
        ended_at=ended,
        duration=((ended or max(now, began)) - began).total_seconds(),
    )


def _read_events(store: Store, run_id: str, after: int, limit: int) -> list[EventView]:
    events: list[EventView] = []
    while len(events) < limit:
        entries = store.journal.read(run_id, after, min(PAGE_ENTRIES, limit))
        for entry in entries:
            events += [event for event in entry_events(entry) if event["seq"] > after]
        if not entries:
            break
        after = entries[-1].seq
    return events[:limit]


def entry_events(entry: StoredEntry) -> list[EventView]:
    """The events of a run's entry; none if it was archived."""
    events: list[dict[str, Any]] = msgspec.json.decode(entry.body) if entry.body else []
    return [
        event_view(entry.stream, seq, event)
        for seq, event in enumerate(events, entry.seq - entry.count + 1)
    ]


def _read_bead_events(
    store: Store, bead_id: str, run_id: str, seq: int, limit: int
) -> list[EventView]:
    events = _read_events(store, run_id, seq, limit) if run_id else []
    while len(events) < limit:
        runs = store.runs.list_of_bead(bead_id, run_id, 1)
        if not runs:
            break
        run_id = runs[0].id
        events += _read_events(store, run_id, 0, limit - len(events))
    return events


def _parse_cursor(cursor: str) -> tuple[str, int]:
    if not cursor:
        return "", 0
    run_id, _, seq = cursor.rpartition(CURSOR_SEPARATOR)
    if not run_id or not (seq.isascii() and seq.isdigit()) or len(seq) > 15:
        refuse_cursor(cursor)
    return run_id, int(seq)
