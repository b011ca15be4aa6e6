"""The core of an engine: it opens, commits commands, notifies waiters, fails as a whole, closes."""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Coroutine
from threading import Lock
from typing import Any, TypeVar

from handrail.engine.clock import Clock
from handrail.engine.commit.batch import CommandResult
from handrail.engine.commit.committer import GroupCommitter
from handrail.engine.commit.plan_cache import PlanCache
from handrail.engine.commit.projection import encode, rebuild_run
from handrail.engine.commit.stream_change import RunChange
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.dispatch.local_executor import LocalExecutor
from handrail.engine.dispatch.matcher import DispatchMatcher
from handrail.engine.errors import RefusedError
from handrail.engine.listeners import EngineClosed, Listeners
from handrail.engine.log_events import log_event
from handrail.engine.maintenance.loop import Maintenance
from handrail.engine.queries.journal import read_events
from handrail.engine.settings import EngineSettings
from handrail.engine.waiters import KeyedWaiters
from handrail.kernel.decision import Refusal
from handrail.kernel.definition.plan import Plan
from handrail.kernel.run import commands as c
from handrail.kernel.run.effects import CancelDispatch
from handrail.kernel.run.machine import Run
from handrail.kernel.run.state import Position
from handrail.store.engine_store import IdempotencyKeyRow, NoteRow, StoreError, iso
from handrail.store.store import Store

log = logging.getLogger("handrail.engine")

T = TypeVar("T")
IDEMPOTENCY_KEY_CHARS_MAX = 255
NOTE_BYTES_MAX = 50_000
"""Bytes of a refused result that a note keeps; of a larger one, its beginning and its digest."""
HISTORY_EVENTS_SHORT = 200
"""Events that are read at once where the store is near."""
ANY_STREAM = ""
"""The waiters' key for every run."""
FOREIGN_ENTRIES_MAX = 1_000
"""Foreign entries that each maintenance pass reads, to find out whom to notify."""


class EngineCore:
    """The parts of an engine, and how commands reach them."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        settings: EngineSettings,
        engine_id: str,
        visiting: bool = False,
    ) -> None:
        self.store, self.clock, self.settings, self.id = store, clock, settings, engine_id
        self.visiting = visiting
        self.matcher = DispatchMatcher()
        self.plans = PlanCache(settings.kernel)
        self.committer = GroupCommitter(store, clock, self.plans, self.matcher)
        self.committer.on_run_changed = self._on_run_changed
        self.listeners = self.committer.listeners = Listeners()
        self.maintenance = Maintenance(self.committer, clock, settings, engine_id)
        self.maintenance.on_foreign_commits = self._on_foreign_commits
        self.local_executor = LocalExecutor(
            self.committer, self._cached_dispatch, self._add_note_soon
        )
        self._change_waiters: KeyedWaiters[None] = KeyedWaiters()
        self._end_waiters: KeyedWaiters[Run] = KeyedWaiters()
        self._tasks: list[asyncio.Task[None]] = []
        self.failure: BaseException | None = None
        self._closed = asyncio.Event()
        self._reader: Store | None = None
        self._reader_lock = Lock()
        self._notified_commit: int | None = None
        """The last foreign commit of which waiters were notified."""
        self._has_background = False
        """Whether maintenance looks for foreign commits by itself."""

    async def tick(self) -> None:
        """Check all clocks, leases and messages now, with all that follows from them."""
        self._check_open()
        await self.maintenance.run_once()
        await self.committer.wait_idle()

    async def wait_closed(self) -> BaseException | None:
        """Wait until the engine is closed; return the error if the engine failed."""
        await self._closed.wait()
        return self.failure

    async def visit(self) -> None:
        """Called by `handrail.open`: perform what is asked, and nothing else."""
        self.maintenance.has_peers = True  # a cached run may be out of date at any time
        self._spawn(self.committer.run_forever())

    async def open(self, *, dead_engines: list[str] | None, background: bool) -> None:
        """Called by `handrail.open`. An engine that is alone clears up after dead engines."""
        await self.maintenance.record_outage(
            is_alone=dead_engines is not None
        )  # by the heartbeats of the dead
        for engine_id in dead_engines or ():
            await self._call_store(self.store.delete_engine, engine_id)
        await self._call_store(self.store.heartbeat_engine, self.id, iso(self.clock()))
        self._spawn(self.committer.run_forever())
        if background:
            self._has_background = True
            self._spawn(self.maintenance.run_forever())
        else:
            await self.maintenance.run_once()

    async def close(self) -> None:
        """Called by `handrail.open`. Stop claimed work; the next engine that opens offers it
        again."""
        self.matcher.close()  # a slot that becomes free now gets nothing new
        await self.local_executor.close()
        if self.failure is None:
            await self.committer.wait_idle()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self.visiting:
            await self._record_shutdown()
        if self.listeners:
            self.listeners.notify(EngineClosed(self.clock()))
        self.committer.close()
        self._close_reader()
        self.store.close()
        self._closed.set()

    async def _record_shutdown(self) -> None:
        """Record that this engine was alive until now, under a name that no engine has."""
        try:
            await self._call_store(self.store.heartbeat_engine, "", iso(self.clock()))
            await self._call_store(self.store.delete_engine, self.id)
        except StoreError as error:
            log_event(log, "database_away", reason=str(error))

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        task.add_done_callback(self._on_task_done)
        self._tasks.append(task)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """Fail the engine when one of its loops dies: half an engine is useless."""
        if task.cancelled() or task.exception() is None:
            return
        self.failure = task.exception()
        log_event(log, "engine_failed", reason=str(self.failure), error=self.failure)
        self._closed.set()
        error = StoreError(f"the engine has failed: {self.failure}")
        self._change_waiters.fail_all(error)
        self._end_waiters.fail_all(error)

    async def _call_store(self, function: Callable[..., T], *args: object) -> T:
        try:
            return await self.committer.call_store(function, *args)
        except StoreError:
            self._check_open()  # a failed or closed engine is the better explanation
            raise

    @property
    def reader(self) -> Store:
        """The store for long reads."""
        with self._reader_lock:
            if self._reader is None:
                self._reader = self.store.open_reader()
            return self._reader

    def _close_reader(self) -> None:
        """Close the reader. An abandoned query may be opening it on a thread just now. Later
        queries find the store, which is closed."""
        with self._reader_lock:
            reader, self._reader = self._reader, self.store
        if reader is not None and reader is not self.store:
            reader.close()

    async def _query(self, query: Callable[[Store], T]) -> T:
        """Run a query on the reader, on a thread: no other caller waits for it."""
        self._check_open()
        if self.store.inline and self.reader is self.store:
            return query(self.store)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda: query(self.reader))

    async def _on_foreign_commits(self) -> None:
        """Called by maintenance: notify waiters of what other engines may have changed. If too much
        was written to read it quickly, notify all."""
        keys = self._change_waiters.keys() | self._end_waiters.keys()
        if not keys:
            return
        head = await self._call_store(self.store.get_last_commit)
        await (
            self.committer.wait_in_flight()
        )  # after this `own_commits` has all own commits up to the head
        last_commit, notified = head.n if head is not None else 0, self._notified_commit
        if notified is not None and self.committer.own_commits.covers(notified, last_commit):
            self._notified_commit = last_commit
            return
        if notified is not None and keys != {ANY_STREAM}:
            entries = await self._call_store(self.store.read_feed, notified, FOREIGN_ENTRIES_MAX)
            if 0 < len(entries) < FOREIGN_ENTRIES_MAX:
                keys = {ANY_STREAM, *(entry.stream for entry in entries)}
        self._notified_commit = last_commit
        for key in keys:
            self._change_waiters.notify(key, None)
        if ended_keys := keys & self._end_waiters.keys():
            loaded_runs = await self._call_store(self.store.load_runs, list(ended_keys))
            for key, stored in loaded_runs.items():
                if stored.row.ended_at is not None:
                    self._end_waiters.notify(key, rebuild_run(stored.row, stored.tail))

    async def execute(
        self,
        run_id: str,
        command: c.RunCommand,
        *,
        key: IdempotencyKeyRow | None = None,
        priority: int = 0,
    ) -> CommandResult:
        """Decide and commit a command. Refused: as the kernel says, and key_reused."""
        self._check_open()
        if self.visiting:  # a commit is a sign of life: record the outage before it
            await self.maintenance.record_outage(is_alone=False)
        try:
            result = await self.committer.execute(run_id, command, key=key, priority=priority)
        except StoreError:
            if isinstance(command, c.Start) and await self._has_started(command):
                return CommandResult()
            self._check_open()
            raise
        if (
            result.duplicate_of is not None
            and key is not None
            and result.duplicate_of.digest != key.digest
        ):
            message = f"the key '{key.key}' was used for another request"
            raise RefusedError(Refusal(code="key_reused", message=message, hint="take a new key"))
        if result.refusal is not None and result.duplicate_of is None:
            raise RefusedError(result.refusal)
        return result

    async def _has_started(self, start: c.Start) -> bool:
        """Whether the run began after all: the connection broke, but the start was on disk. Refused
        if its bead has another run."""
        try:
            active_run_id = await self._call_store(self.store.get_active_run_id, start.bead_id)
        except StoreError:
            return False  # the caller raises the first error
        if active_run_id is not None and active_run_id != start.run_id:
            message = f"bead '{start.bead_id}' has the active run '{active_run_id}'"
            hint = "wait for its end, or close it"
            raise RefusedError(Refusal(code="bead_busy", message=message, hint=hint))
        return active_run_id is not None

    def _check_open(self) -> None:
        if self.failure is not None:
            raise StoreError(f"the engine has failed: {self.failure}") from self.failure
        if self._closed.is_set():
            raise StoreError("the engine is closed; open it again")

    def _idempotency_row(
        self, key: str, actor: str, request: object, answer: dict[str, str]
    ) -> IdempotencyKeyRow | None:
        if not key:
            return None
        if len(key) > IDEMPOTENCY_KEY_CHARS_MAX or not key.isprintable():
            message = (
                f"the key {key[:40]!r} is longer than {IDEMPOTENCY_KEY_CHARS_MAX} characters, "
                "or no plain text"
            )
            raise RefusedError(Refusal(code="bad_key", message=message, hint="take a UUID"))
        return IdempotencyKeyRow(
            key=key,
            actor=actor,
            digest=hashlib.sha256(encode(request)).hexdigest(),
            answer=encode(answer).decode(),
            created_at=iso(self.clock()),
        )

    def _refused_note(self, run_id: str, report: c.Report, code: str) -> NoteRow:
        at, body = iso(self.clock()), _bounded_report(encode(report))
        return NoteRow(execution_id=run_id, at=at, actor=report.agent, code=code, body=body)

    def _add_note_soon(self, run_id: str, report: c.Report, code: str) -> None:
        self.committer.call_store_soon(
            self.store.add_note, self._refused_note(run_id, report, code)
        )

    def _cached_dispatch(self, run_id: str, fence: int) -> Dispatch | None:
        run = self.committer.cached_run(run_id)
        position = run.find_position(fence) if run is not None else None
        if run is None or position is None:
            return None
        return self._build_dispatch(self.committer.plan_of(run), run, position)

    def _build_dispatch(self, plan: Plan, run: Run, position: Position) -> Dispatch:
        """Build a dispatch. History and files are read when an agent asks for them."""
        return Dispatch(
            plan,
            run,
            position,
            lambda: read_events(self._store_for(run), run.id, run.seq),
            lambda: self._store_for(run).list_files(run.bead_id),
        )

    def _store_for(self, run: Run) -> Store:
        """Choose the store: a short run is read faster here than through the reader."""
        return self.store if self._has_short_history(run) else self.reader

    def _has_short_history(self, run: Run) -> bool:
        return self.store.inline and run.seq <= HISTORY_EVENTS_SHORT

    def _on_run_changed(self, change: RunChange) -> None:
        """Handle a changed run, after the commit."""
        for effect in change.effects:
            if isinstance(effect, CancelDispatch):
                self.local_executor.cancel(change.stream, effect.fence)
        self._change_waiters.notify(change.stream, None)
        self._change_waiters.notify(ANY_STREAM, None)
        if change.run is not None and change.run.has_ended:
            self._end_waiters.notify(change.stream, change.run)
        if self.listeners:
            self.listeners.notify(change)

    async def state(self, run_id: str) -> Run:
        """Return the run as it stands on disk."""
        loaded_runs = await self._call_store(self.store.load_runs, [run_id])
        if run_id not in loaded_runs:
            raise RefusedError(_unknown_run(run_id))
        return rebuild_run(loaded_runs[run_id].row, loaded_runs[run_id].tail)

    async def plan_of(self, run: Run) -> Plan:
        """Return the run's definition, from memory or from the database."""
        version = run.definition_id, run.version
        if self.committer.cached_run(run.id) is None and not self.committer.plans.has(*version):
            self.committer.plans.add(
                *version, await self._call_store(self.store.get_definition, *version)
            )
        return self.committer.plan_of(run)

    async def command(
        self, run_id: str, command: c.RunCommand, *, key: IdempotencyKeyRow | None = None
    ) -> Run:
        """Execute any command of the kernel; return the run after it. The caller vouches for the
        author."""
        result = await self.execute(run_id, command, key=key)
        return result.run if result.run is not None else await self.state(run_id)


def _unknown_run(run_id: str) -> Refusal:
    message = f"there is no run '{run_id}'"
    return Refusal(code="unknown_run", message=message, hint="`handrail runs` lists them")


def _bounded_report(report: bytes) -> str:
    """Cut a refused report to the size of a note: its sender may send any amount."""
    if len(report) <= NOTE_BYTES_MAX:
        return report.decode()
    beginning = report[:NOTE_BYTES_MAX].decode(errors="ignore")
    summary = {
        "bytes": len(report),
        "sha256": hashlib.sha256(report).hexdigest(),
        "begins": beginning,
    }
    return encode(summary).decode()
