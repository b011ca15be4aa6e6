"""Group commit: decide commands in memory, write them in one transaction, then answer.

    jobs -> load what is not in memory -> decide -> commit -> answer, start work, deliver messages

Rules
1. Commands that arrive during a commit make the next batch: a lone run pays one commit a step, a
   thousand runs share one.
2. A store that is called inline has one batch at a time. A store with its own thread has two: while
   one is committed, the next is decided, of other runs.
3. No caller is answered, and no agent starts, before the commit. If it fails, nothing has happened.
4. A write loses if another engine changed its run: the run is loaded again and its commands are
   decided again, at most WRITE_CONFLICTS_MAX times.
5. A cached run is a copy. It is dropped when the run comes to rest, when memory is full, and after
   every commit that did not go well; the database is the truth.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from time import perf_counter

from handrail.engine.commit.batch import Batch, Command, CommandJob, CommandResult, Outage
from handrail.engine.commit.budget_book import BudgetBook
from handrail.engine.commit.channel_change import CHANNEL_STREAM_PREFIX, ChannelStreamChange
from handrail.engine.commit.lock_change import LOCK_STREAM_PREFIX, Granted, decode_lock_command
from handrail.engine.commit.plan_cache import PlanCache
from handrail.engine.commit.run_change import (
    CachedRun,
    RunChange,
    cache_run,
    decode_run_message,
    is_at_rest,
    rebuild_run,
)
from handrail.engine.dispatch.matcher import AgentSlot, DispatchMatcher
from handrail.engine.environment import Clock, StoreAccess
from handrail.engine.errors import EngineBusyError
from handrail.engine.log_events import log_event
from handrail.engine.notifier import ChangeNotifier, CommitCompleted
from handrail.engine.spending import SpendingRecord
from handrail.kernel import lock as locks
from handrail.kernel.run import commands as c
from handrail.store.rows import (
    BeadRow,
    CommitOutcomeUnknownError,
    CommitRow,
    DispatchRow,
    IdempotencyKeyRow,
    MessageRow,
    RunRow,
    StoreError,
    StreamWrite,
    iso,
)

log = logging.getLogger("handrail.engine")

BATCH_COMMANDS_MAX = 500
PIPELINED_BATCH_COMMANDS_MAX = 400
"""Commands of a batch where the next batch is decided during a commit."""
COMMITS_IN_FLIGHT_MAX = 2
QUEUED_COMMANDS_MAX = 100_000
WRITE_CONFLICTS_MAX = 8
CACHED_RUNS_MAX = 20_000
STORE_RETRY_SECONDS = 0.1
"""Wait of a free slot before it queries an unavailable database again."""


class OwnCommits:
    """The latest commits without another engine's between them; the database numbers all
    commits. An engine that is alone need not read what it wrote itself."""

    def __init__(self) -> None:
        self._first = self._last = 0

    def add(self, commit: CommitRow | None) -> None:
        """Add a commit, in the order in which commits are made. None: nothing was written."""
        if commit is not None:
            self._first = self._first if commit.n == self._last + 1 else commit.n
            self._last = commit.n

    def covers(self, after: int, last: int) -> bool:
        """Whether this engine made all commits after `after`, up to `last`."""
        return last == after or (self._first <= after + 1 and last <= self._last)


class GroupCommitter:
    def __init__(
        self,
        access: StoreAccess,
        clock: Clock,
        plans: PlanCache,
        matcher: DispatchMatcher,
        notifier: ChangeNotifier,
    ) -> None:
        self._access, self._store = access, access.store
        self._budgets = SpendingRecord(access.store)
        self.clock, self.plans, self.matcher, self._notifier = clock, plans, matcher, notifier
        self.cached_runs: dict[str, CachedRun] = {}
        """Active runs. Each is a copy; the database is the truth."""
        self.outages: list[Outage] = []
        self._jobs: deque[CommandJob] = deque()
        self._work_available = asyncio.Event()
        self._idle = asyncio.Event()
        self._commits_in_flight: dict[asyncio.Task[None], Batch] = {}
        self._roles_to_recheck: set[str] = set()
        """Roles without further offers in the database, but perhaps in the commit in flight."""
        self._failure: BaseException | None = None
        self._messages_in_delivery: set[str] = set()
        self.uncertain_claims: list[DispatchRow] = []
        """Claims that may be on disk although no agent works on them: a commit broke, and its
        outcome could not be determined."""
        self._flushes: list[asyncio.Future[None]] = []
        self.own_commits = OwnCommits()

    # Submitting

    def submit(self, job: CommandJob) -> None:
        """Queue a job; its `on_done` gets the outcome. Raises `EngineBusyError` if the queue is
        full."""
        if len(self._jobs) >= QUEUED_COMMANDS_MAX:
            raise EngineBusyError(
                f"{QUEUED_COMMANDS_MAX} commands wait already; send fewer at a time"
            )
        self.enqueue(job)

    def enqueue(self, job: CommandJob) -> None:
        """Like `submit`, for jobs that are bounded elsewhere: results of dispatches, messages."""
        if self._failure is not None:
            raise _as_store_error(self._failure)
        self._jobs.append(job)
        self.wake()

    async def execute(
        self,
        stream: str,
        command: Command,
        *,
        key: IdempotencyKeyRow | None = None,
        bead: BeadRow | None = None,
    ) -> CommandResult:
        """Submit a command and wait for the answer. Raises what prevented its decision or
        storage."""
        future: asyncio.Future[CommandResult] = asyncio.get_running_loop().create_future()

        def resolve(result: CommandResult | Exception) -> None:
            if future.done():  # the caller has gone
                return
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        self.submit(CommandJob(stream, command, resolve, key, bead=bead))
        return await future

    @property
    def failed(self) -> bool:
        return self._failure is not None

    def wake(self) -> None:
        """Wake the loop: there is a job, a free slot, or perhaps a waiting dispatch."""
        if self._failure is None:
            self._idle.clear()
            self._work_available.set()

    # The loop

    async def run_forever(self) -> None:
        """Commit batches while the engine is open. A failure reaches every waiting caller."""
        try:
            while True:
                self._work_available.clear()
                if self._failure is not None:
                    raise self._failure
                jobs, flushes, self._flushes = self._next_jobs(), self._flushes, []
                if jobs or self.matcher.capacity_to_fill():
                    self._idle.clear()
                    await self._process_batch(jobs)
                    await asyncio.sleep(0)  # answered callers go on, and fill the next batch
                elif not flushes:
                    if not self._commits_in_flight:
                        self._idle.set()
                    await self._work_available.wait()
                if flushes:
                    await asyncio.gather(*self._commits_in_flight, return_exceptions=True)
                    self._complete_flushes(flushes)
        except Exception as error:
            self._failure = error
            raise
        finally:
            await asyncio.gather(*self._commits_in_flight, return_exceptions=True)
            if self._failure is not None:
                while self._jobs:
                    self._notify(self._jobs.popleft(), _as_store_error(self._failure))
            self._complete_flushes(self._flushes)
            self._idle.set()

    def _complete_flushes(self, flushes: Sequence[asyncio.Future[None]]) -> None:
        for flush in flushes:
            if not flush.done():
                flush.set_result(None)

    async def wait_idle(self) -> None:
        """Wait until nothing is left to commit."""
        await self._idle.wait()

    async def flush(self) -> None:
        """Wait until the commits now in flight are settled, however many follow."""
        if self._failure is not None:
            raise _as_store_error(self._failure)
        flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushes.append(flushed)
        self.wake()
        await flushed

    async def wait_in_flight(self) -> None:
        """Wait until the outcome of the commits now in flight is known."""
        if self._commits_in_flight:
            await asyncio.wait(tuple(self._commits_in_flight))

    def _next_jobs(self) -> list[CommandJob]:
        """Take the oldest jobs whose streams are not in flight."""
        if not self._commits_in_flight:
            jobs_max = BATCH_COMMANDS_MAX if self._store.inline else PIPELINED_BATCH_COMMANDS_MAX
            return [self._jobs.popleft() for _ in range(min(len(self._jobs), jobs_max))]
        busy_streams = self._streams_in_flight()
        jobs: list[CommandJob] = []
        rest: deque[CommandJob] = deque()
        for job in self._jobs:
            is_free = len(jobs) < PIPELINED_BATCH_COMMANDS_MAX and job.stream not in busy_streams
            (jobs if is_free else rest).append(job)
        self._jobs = rest
        return jobs

    def _streams_in_flight(self) -> set[str]:
        """Streams that are being committed."""
        return {stream for batch in self._commits_in_flight.values() for stream in batch.changes}

    async def _process_batch(self, jobs: Sequence[CommandJob]) -> None:
        batch = Batch(jobs, self.cached_runs, self.plans.get_to_start, self.matcher, self.outages)
        try:
            offers = await self._reserve_dispatches()
            await self._load(batch, offers)
            if self.plans.name_budgets and (names := batch.budget_names(offers)):
                states = await self._access.call(self._budgets.states, names, self.clock())
                batch.book = BudgetBook(states)
            writes = batch.decide(offers, self.clock())
            self._jobs.extendleft(reversed(batch.postponed))
            if unconfirmed := batch.unconfirmed_answers():
                loaded_runs = await self._access.call(self._store.runs.load, unconfirmed)
                heads = {stream: stored.row.head for stream, stored in loaded_runs.items()}
                batch.stale = {
                    s for s in unconfirmed if heads.get(s) != self.cached_runs[s].row.head
                }
        except StoreError as error:
            self._fail_batch(batch, error)
            await asyncio.sleep(STORE_RETRY_SECONDS if not jobs else 0)
            return
        except Exception as error:
            self._fail_batch(batch, _as_store_error(error))
            raise
        if self._store.inline or not writes:
            await self._commit(batch, writes)
            return
        if len(self._commits_in_flight) >= COMMITS_IN_FLIGHT_MAX:
            await asyncio.wait(self._commits_in_flight, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(self._commit(batch, writes))
        self._commits_in_flight[task] = batch
        task.add_done_callback(self._on_commit_done)

    def _on_commit_done(self, task: asyncio.Task[None]) -> None:
        del self._commits_in_flight[task]
        self.matcher.maybe_waiting.update(self._roles_to_recheck)
        self._roles_to_recheck.clear()
        self._work_available.set()
        if not task.cancelled():
            self._failure = self._failure or task.exception()

    async def _commit(self, batch: Batch, writes: Sequence[StreamWrite]) -> None:
        try:
            written = await self._write_batch(writes) if writes else ()
        except StoreError as error:
            self._fail_batch(batch, error)
        except Exception as error:
            self._fail_batch(batch, _as_store_error(error))
            raise
        else:
            self._settle(batch, writes, written)

    async def _write_batch(self, writes: Sequence[StreamWrite]) -> Sequence[bool]:
        at, started_at = iso(self.clock()), perf_counter()
        try:
            commit, written = await self._access.call(self._store.commit, writes, at)
        except CommitOutcomeUnknownError as unsure:
            log_event(log, "commit_unsure")
            try:
                return await self._access.call(self._find_written, writes)
            except StoreError:
                self.uncertain_claims += [row for w in writes for row in w.dispatches if row.agent]
                raise unsure from None
        self.own_commits.add(commit)
        if self._notifier.listeners:
            self._notifier.listeners.notify(
                CommitCompleted(len(writes), perf_counter() - started_at)
            )
        return written

    def _find_written(self, writes: Sequence[StreamWrite]) -> list[bool]:
        """After a broken commit: which entries are on disk, once the commit cannot arrive any
        more."""
        self._store.check_commit_settled()
        written: list[bool] = []
        for write in writes:
            entries = self._store.journal.read(write.entry.stream, write.entry.seq - 1, 1)
            written.append(bool(entries) and entries[0].hash == write.entry.hash)
        return written

    # Loading

    async def _reserve_dispatches(self) -> list[DispatchRow]:
        """Reserve dispatches that waited in the database for a slot that is free now."""
        rows: list[DispatchRow] = []
        for role, free in self.matcher.capacity_to_fill().items():
            skipped = self.matcher.skipped.get(role, ())
            limit = free + len(skipped)
            # Before the query: what lands during the query need not be in its result.
            self.matcher.maybe_waiting.discard(role)
            self._roles_to_recheck.update((role,) if self._commits_in_flight else ())
            try:
                reserved = await self._access.call(self._store.dispatches.reserve, role, limit)
            except StoreError:
                self.matcher.maybe_waiting.add(role)
                raise
            if len(reserved) >= limit:
                self.matcher.maybe_waiting.add(role)
            rows += [row for row in reserved if (row.execution_id, row.fence) not in skipped]
        busy_streams = self._streams_in_flight()
        self._roles_to_recheck.update(row.role for row in rows if row.execution_id in busy_streams)
        return [row for row in rows if row.execution_id not in busy_streams]

    async def _load(self, batch: Batch, offers: Sequence[DispatchRow]) -> None:
        """Load everything that the batch names."""
        jobs = [job for job in batch.jobs if job.stream not in self.cached_runs]
        unknown = {job.stream for job in jobs}
        unknown.update(row.execution_id for row in offers if not self._has_offer(row))
        lock_names = [
            s.removeprefix(LOCK_STREAM_PREFIX) for s in unknown if s.startswith(LOCK_STREAM_PREFIX)
        ]
        new = {job.stream for job in jobs if isinstance(job.command, c.Start)}
        retried = {job.stream for job in jobs if job.conflicts}
        runs = [
            s
            for s in unknown - (new - retried)
            if not s.startswith((LOCK_STREAM_PREFIX, CHANNEL_STREAM_PREFIX))
        ]
        loaded_runs = await self._access.call(self._store.runs.load, runs) if runs else {}
        await self._load_plans(batch, [stored.row for stored in loaded_runs.values()])
        for stream, stored in loaded_runs.items():
            try:
                run = rebuild_run(stored.row, stored.tail)
                self.cached_runs[stream] = cache_run(self.plans.get_for_run(run), run, stored.row)
                batch.loaded_streams.add(stream)
            except Exception as error:  # a failing run fails alone
                batch.fail_stream(stream, error)
        lock_rows = (
            await self._access.call(self._store.locks.load, lock_names) if lock_names else {}
        )
        for name in lock_names:
            batch.add_lock(LOCK_STREAM_PREFIX + name, lock_rows.get(name), self.clock())
        if channel_streams := [s for s in unknown if s.startswith(CHANNEL_STREAM_PREFIX)]:
            await self._load_channels(batch, channel_streams)
        for job in batch.jobs:
            if job.key is not None:
                first_answer = await self._access.call(
                    self._store.idempotency_keys.get, job.key.key, job.key.actor
                )
                if first_answer is not None:
                    batch.duplicates[job] = first_answer

    async def _load_channels(self, batch: Batch, streams: Sequence[str]) -> None:
        """Load channels, and what their members hold elsewhere at this moment."""
        names = [stream.removeprefix(CHANNEL_STREAM_PREFIX) for stream in streams]
        rows = await self._access.call(self._store.channels.load, names)
        changes: list[ChannelStreamChange] = []
        for stream, name in zip(streams, names, strict=True):
            try:
                changes.append(ChannelStreamChange(stream, rows.get(name)))
            except Exception as error:  # a failing channel fails alone
                batch.fail_stream(stream, error)
        agents = {agent for change in changes for agent in change.agent_ids()}
        agents.update(batch.joining_agents())
        agent_loads = (
            await self._access.call(self._store.channels.get_agent_loads, sorted(agents))
            if agents
            else {}
        )
        for change in changes:
            change.agent_loads = agent_loads
            batch.add_channel(change, self.clock())

    def _has_offer(self, row: DispatchRow) -> bool:
        """Whether the run is cached, and the cached run knows of this offer."""
        cached = self.cached_runs.get(row.execution_id)
        return cached is not None and cached.run.find_position(row.fence) is not None

    async def _load_plans(self, batch: Batch, rows: Sequence[RunRow]) -> None:
        """Load the definitions of the loaded runs, and of those that begin or change theirs."""
        versions = {(row.workflow_id, row.workflow_version) for row in rows}
        for job in batch.jobs:
            if isinstance(job.command, _COMMANDS_WITH_DEFINITION) and job.command.version:
                versions.add((job.command.definition_id, job.command.version))
        if versions:
            self.plans.trim(versions)
        for workflow_id, version in versions:
            if not self.plans.has(workflow_id, version):
                row = await self._access.call(self._store.definitions.get, workflow_id, version)
                on_record = row is None or await self._access.call(
                    self._store.definitions.is_on_record, row
                )
                self.plans.add(workflow_id, version, row, on_record=on_record)

    # Settling

    def _settle(self, batch: Batch, writes: Sequence[StreamWrite], written: Sequence[bool]) -> None:
        """Settle a commit, except lost writes: cache runs, start claimed dispatches, answer,
        notify."""
        conflicted = {
            w.entry.stream for w, is_written in zip(writes, written, strict=True) if not is_written
        }
        conflicted |= batch.stale
        dropped = conflicted | batch.errors.keys()
        for change in batch.changes.values():
            if isinstance(change, RunChange):
                self._cache_run(change, dropped)
        for change, slot, fence in batch.claims:
            if change.stream in dropped:
                self._release_slot(slot)
            else:
                slot.on_claimed(change.stream, fence)
        self._reply_all(batch, conflicted)
        for change in batch.changes.values():
            if change.events and change.stream not in dropped:
                for message in change.messages:
                    self.deliver(message)
                if isinstance(change, RunChange):
                    self._notifier.run_changed(change)
                elif isinstance(change, ChannelStreamChange):
                    self._notifier.channel_changed(change)

    def _reply_all(self, batch: Batch, conflicted: set[str]) -> None:
        retries: list[CommandJob] = []
        for job in batch.jobs:
            if job.stream not in conflicted:
                self._reply(batch, job)
            elif self._can_retry(job):
                retries.append(job)
        self._jobs.extendleft(reversed(retries))

    def _cache_run(self, change: RunChange, dropped: set[str]) -> None:
        cached = change.after or change.before
        if cached is None or change.stream in dropped or is_at_rest(cached):
            self.cached_runs.pop(change.stream, None)
            return
        self.cached_runs[change.stream] = cached
        if len(self.cached_runs) > CACHED_RUNS_MAX:
            self.cached_runs.pop(next(iter(self.cached_runs)))

    def _release_slot(self, slot: AgentSlot) -> None:
        self.matcher.release(slot)
        self.matcher.maybe_waiting.update(slot.roles)

    def _can_retry(self, job: CommandJob) -> bool:
        job.conflicts += 1
        job.refusal, job.fault = None, ""
        if job.conflicts <= WRITE_CONFLICTS_MAX:
            return True
        self._messages_in_delivery.discard(job.message_id)
        self._notify(
            job,
            EngineBusyError(
                f"'{job.stream}': {WRITE_CONFLICTS_MAX} write conflicts in a row; retry"
            ),
        )
        return False

    def _reply(self, batch: Batch, job: CommandJob) -> None:
        if job.message_id:
            self._finish_message(batch, job)
        if job.on_done is None:
            return
        error = batch.errors.get(job.stream)
        if error is not None:
            job.on_done(error)
            return
        change = batch.changes.get(job.stream)
        duplicate_of = batch.duplicates.get(job) if job.key is not None else None
        after = change.after if isinstance(change, RunChange) else None
        job.on_done(
            CommandResult(
                run=change.run if change is not None else None,
                row=after.row if after is not None else None,
                refusal=job.refusal,
                fault=job.fault,
                duplicate_of=duplicate_of,
                channel=change if isinstance(change, ChannelStreamChange) else None,
            )
        )

    def _notify(self, job: CommandJob, result: CommandResult | Exception) -> None:
        if job.on_done is not None:
            job.on_done(result)

    def _fail_batch(self, batch: Batch, error: StoreError) -> None:
        """Nothing was written: fail every job of the batch, and drop its cached runs."""
        for _, slot, _ in batch.claims:
            self._release_slot(slot)
        for stream in batch.changes:
            self.cached_runs.pop(stream, None)
        for job in batch.jobs:
            self._messages_in_delivery.discard(job.message_id)
            self._notify(job, error)

    # Messages

    def deliver(self, message: MessageRow) -> None:
        """Deliver a message to its stream; maintenance finds undelivered messages later."""
        if message.id in self._messages_in_delivery:
            return
        to_lock = message.target.startswith(LOCK_STREAM_PREFIX)
        command = (decode_lock_command if to_lock else decode_run_message)(message.body)
        self._messages_in_delivery.add(message.id)
        self.enqueue(CommandJob(message.target, command, message_id=message.id))

    def _finish_message(self, batch: Batch, job: CommandJob) -> None:
        """Clear a message that changed nothing; return a lock that its run no longer wants."""
        self._messages_in_delivery.discard(job.message_id)
        change = batch.changes.get(job.stream)
        if job.stream in batch.errors or (change is not None and job.message_id in change.consumed):
            return
        if isinstance(job.command, Granted) and job.refusal is not None:
            self._messages_in_delivery.add(job.message_id)
            self.enqueue(
                CommandJob(
                    LOCK_STREAM_PREFIX + job.command.repository,
                    locks.Withdraw(run=job.stream, step=job.command.place),
                    message_id=job.message_id,
                )
            )
            return
        self._access.call_soon(self._store.messages.delete, job.message_id)


_COMMANDS_WITH_DEFINITION = (c.Start, c.Migrate, c.Observe)


def _as_store_error(error: BaseException) -> StoreError:
    return StoreError(f"the engine has failed: {error}")
