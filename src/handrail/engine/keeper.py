"""Group commit: commands from everywhere, decided in memory, on disk in one transaction, answered
after it.

    jobs -> load what is not in memory -> decide -> commit -> answer, start work, deliver messages

Rules
1. Whatever comes in while a commit is under way makes the next batch: a lone run pays one commit a
   step, a thousand runs share it.
2. A store that is called inline has one batch at a time. One that has its own thread has two: while
   one is being committed, the next is decided, of other runs.
3. Nobody is answered, and no agent starts, before the commit. If it fails, nothing has happened.
4. A write whose run was changed by another engine loses: its run is loaded again and its commands
   are decided anew, at most LOSSES_MAX times.
5. A run in memory is a copy. It is dropped when it comes to rest, when memory is full, and whenever
   a commit did not go well; the database is the truth.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TypeVar

from handrail.engine.batch import Answer, Batch, Job, Outage
from handrail.engine.channel_loading import load_channels
from handrail.engine.channel_work import CHANNEL, ChannelWork
from handrail.engine.clock import Clock
from handrail.engine.desk import Desk, Seat
from handrail.engine.listeners import Committed, Listeners
from handrail.engine.own import OwnCommits
from handrail.engine.plans import Plans
from handrail.engine.project import Kept, kept, loaded
from handrail.engine.threads import Threads
from handrail.engine.vocabulary import tell
from handrail.engine.works import (
    LOCK,
    Command,
    Granted,
    RunWork,
    decode_to_lock,
    decode_to_run,
    rested,
)
from handrail.kernel import lock as locks
from handrail.kernel.plan import Plan
from handrail.kernel.run import commands as c
from handrail.kernel.run.machine import Run
from handrail.store.port import (
    DispatchRow,
    Execution,
    KeyRow,
    Message,
    Store,
    StoreError,
    Unsure,
    Write,
    iso,
)

T = TypeVar("T")
log = logging.getLogger("handrail.engine")

BATCH_MAX = 500
PIECE_MAX = 400
"""Jobs of a batch where the next is decided while one is committed."""
FLYING_MAX = 2
QUEUE_MAX = 100_000
LOSSES_MAX = 8
RUNS_KEPT = 20_000
THREADS = 4
AWAY_SECONDS = 0.1
"""How long a free seat waits before it asks a database again that is away."""


class Busy(StoreError):  # noqa: N818 - a state, not a mistake
    """More is asked than the engine will hold."""


class Keeper:
    def __init__(self, store: Store, clock: Clock, plans: Plans, desk: Desk) -> None:
        self.store, self.clock, self.plans, self.desk = store, clock, plans, desk
        self.outages: list[Outage] = []
        self.heard: Callable[[RunWork], None] = _unheard
        """Called with every run that was changed, once it is on disk."""
        self.heard_channel: Callable[[ChannelWork], None] = _unheard
        self.listeners = Listeners()
        self._jobs: deque[Job] = deque()
        self._runs: dict[str, Kept] = {}
        self._woken = asyncio.Event()
        self._idle = asyncio.Event()
        self._threads = Threads(0 if store.inline else THREADS, "handrail-store")
        self._flying: dict[asyncio.Task[None], Batch] = {}
        self._missed: set[str] = set()
        """Roles of which nothing more was on offer, but perhaps in what was being committed."""
        self._wrong: BaseException | None = None
        self._delivering: set[str] = set()
        self.doubtful: list[DispatchRow] = []
        """Claims that may be on disk, though nobody works on them: a commit broke, and what became
        of it could not be seen."""
        self._turns: list[asyncio.Future[None]] = []
        self.own = OwnCommits()

    # Getting in

    def submit(self, job: Job) -> None:
        """The job's `done` will hear of it. Raises `Busy` if too many wait."""
        if len(self._jobs) >= QUEUE_MAX:
            raise Busy(f"{QUEUE_MAX} commands wait already; send fewer at a time")
        self.let_in(job)

    def let_in(self, job: Job) -> None:
        """As `submit`, for what is bounded elsewhere: results of dispatches, messages."""
        if self._wrong is not None:
            raise _failure(self._wrong)
        self._jobs.append(job)
        self.wake()

    async def ask(
        self, stream: str, command: Command, *, key: KeyRow | None = None, priority: int = 0
    ) -> Answer:
        """Submit, and wait for the answer. Raises what kept it from being decided or stored."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def done(answer: Answer | Exception) -> None:
            if future.done():  # whoever asked has gone
                return
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        self.submit(Job(stream, command, done, key, priority=priority))
        return await future

    @property
    def failed(self) -> bool:
        return self._wrong is not None

    def run(self, run_id: str) -> Run | None:
        """A run that goes on, if it is in memory."""
        known = self._runs.get(run_id)
        return known.run if known is not None else None

    def plan(self, run: Run) -> Plan:
        """Its definition."""
        known = self._runs.get(run.id)
        return known.plan if known is not None else self.plans.get(run.definition_id, run.version)

    def wake(self) -> None:
        """There is a job, a seat is free, or there may be something behind."""
        if self._wrong is None:
            self._idle.clear()
            self._woken.set()

    async def io(self, function: Callable[..., T], *values: object) -> T:
        """A store's method, on a thread if the store wants one."""
        return function(*values) if self.store.inline else await self._threads.do(function, *values)

    def close(self) -> None:
        self._threads.close()

    # The loop

    async def keep(self) -> None:
        """Runs as long as the engine is open. If it fails, nobody is left waiting."""
        try:
            while True:
                self._woken.clear()
                if self._wrong is not None:
                    raise self._wrong
                jobs, turns, self._turns = self._next_jobs(), self._turns, []
                if jobs or self.desk.wants():
                    self._idle.clear()
                    await self._batch(jobs)
                    await asyncio.sleep(0)  # those who were answered go on, and fill the next one
                elif not turns:
                    if not self._flying:
                        self._idle.set()
                    await self._woken.wait()
                if turns:
                    await asyncio.gather(*self._flying, return_exceptions=True)
                    self._take_turns(turns)
        except Exception as error:
            self._wrong = error
            raise
        finally:
            await asyncio.gather(*self._flying, return_exceptions=True)
            if self._wrong is not None:
                while self._jobs:
                    self._tell(self._jobs.popleft(), _failure(self._wrong))
            self._take_turns(self._turns)
            self._idle.set()

    def _take_turns(self, turns: Sequence[asyncio.Future[None]]) -> None:
        for turn in turns:
            if not turn.done():
                turn.set_result(None)

    async def settled(self) -> None:
        """Until nothing is left to commit."""
        await self._idle.wait()

    async def turned(self) -> None:
        """Until what is being committed now is settled, however much comes after it."""
        if self._wrong is not None:
            raise _failure(self._wrong)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        self.wake()
        await turn

    async def landed(self) -> None:
        """Until what is being committed now is known to be on disk, or not."""
        if self._flying:
            await asyncio.wait(tuple(self._flying))

    def _next_jobs(self) -> list[Job]:
        """The oldest jobs whose runs are not just being committed."""
        if not self._flying:
            most = BATCH_MAX if self.store.inline else PIECE_MAX
            return [self._jobs.popleft() for _ in range(min(len(self._jobs), most))]
        busy = self._in_flight()
        jobs: list[Job] = []
        rest: deque[Job] = deque()
        for job in self._jobs:
            free = len(jobs) < PIECE_MAX and job.stream not in busy
            (jobs if free else rest).append(job)
        self._jobs = rest
        return jobs

    def _in_flight(self) -> set[str]:
        """Streams that are just being committed."""
        return {stream for batch in self._flying.values() for stream in batch.works}

    async def _batch(self, jobs: Sequence[Job]) -> None:
        batch = Batch(jobs, self._runs, self.plans, self.desk, self.outages)
        try:
            offers = await self._reserved()
            await self._load(batch, offers)
            writes = batch.decide(offers, self.clock())
            if doubtful := batch.doubtful():
                found = await self.io(self.store.load, doubtful)
                heads = {stream: one.subject.head for stream, one in found.items()}
                batch.stale = {s for s in doubtful if heads.get(s) != self._runs[s].row.head}
        except StoreError as error:
            self._failed(batch, error)
            await asyncio.sleep(AWAY_SECONDS if not jobs else 0)
            return
        except Exception as error:
            self._failed(batch, _failure(error))
            raise
        if self.store.inline or not writes:
            await self._commit(batch, writes)
            return
        if len(self._flying) >= FLYING_MAX:
            await asyncio.wait(self._flying, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(self._commit(batch, writes))
        self._flying[task] = batch
        task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        del self._flying[task]
        self.desk.behind.update(self._missed)
        self._missed.clear()
        self._woken.set()
        if not task.cancelled():
            self._wrong = self._wrong or task.exception()

    async def _commit(self, batch: Batch, writes: Sequence[Write]) -> None:
        try:
            won = await self._written(writes) if writes else ()
        except StoreError as error:
            self._failed(batch, error)
        except Exception as error:
            self._failed(batch, _failure(error))
            raise
        else:
            self._settle(batch, writes, won)

    async def _written(self, writes: Sequence[Write]) -> Sequence[bool]:
        at, began = iso(self.clock()), perf_counter()
        try:
            commit, won = await self.io(self.store.commit, writes, at)
        except Unsure as unsure:
            tell(log, "commit_unsure")
            try:
                return await self.io(self._on_disk, writes)
            except StoreError:
                self.doubtful += [row for w in writes for row in w.dispatches if row.agent]
                raise unsure from None
        self.own.add(commit)
        if self.listeners:
            self.listeners.tell(Committed(len(writes), perf_counter() - began))
        return won

    def _on_disk(self, writes: Sequence[Write]) -> list[bool]:
        """After a broken commit: which entries are there, once it cannot arrive any more."""
        self.store.at_rest()
        found: list[bool] = []
        for write in writes:
            entries = self.store.journal(write.entry.stream, write.entry.seq - 1, 1)
            found.append(bool(entries) and entries[0].hash == write.entry.hash)
        return found

    # Loading

    async def _reserved(self) -> list[DispatchRow]:
        """Dispatches that waited in the database for a seat that is free now."""
        rows: list[DispatchRow] = []
        for role, free in self.desk.wants().items():
            passed = self.desk.passed.get(role, ())
            limit = free + len(passed)
            # Before the question: what lands while it is asked need not be in the answer.
            self.desk.behind.discard(role)
            self._missed.update((role,) if self._flying else ())
            try:
                found = await self.io(self.store.reserve, role, limit)
            except StoreError:
                self.desk.behind.add(role)
                raise
            if len(found) >= limit:
                self.desk.behind.add(role)
            rows += [row for row in found if (row.execution_id, row.fence) not in passed]
        busy = self._in_flight()
        self._missed.update(row.role for row in rows if row.execution_id in busy)
        return [row for row in rows if row.execution_id not in busy]

    async def _load(self, batch: Batch, offers: Sequence[DispatchRow]) -> None:
        """Everything that the batch is about, in memory."""
        jobs = [job for job in batch.jobs if job.stream not in self._runs]
        unknown = {job.stream for job in jobs}
        unknown.update(row.execution_id for row in offers if not self._has_offer(row))
        lock_names = [s.removeprefix(LOCK) for s in unknown if s.startswith(LOCK)]
        new = {job.stream for job in jobs if isinstance(job.command, c.Start)}
        again = {job.stream for job in jobs if job.losses}
        runs = [s for s in unknown - (new - again) if not s.startswith((LOCK, CHANNEL))]
        found = await self.io(self.store.load, runs) if runs else {}
        await self._plans(batch, [one.subject for one in found.values()])
        for stream, one in found.items():
            try:
                run = loaded(one.subject, one.tail)
                plan = self.plans.get(run.definition_id, run.version)
                self._runs[stream] = kept(plan, run, one.subject)
                batch.fresh.add(stream)
            except Exception as error:  # one run's trouble is not everybody's
                batch.give_up(stream, error)
        held = await self.io(self.store.load_locks, lock_names) if lock_names else {}
        for name in lock_names:
            batch.add_lock(LOCK + name, held.get(name), self.clock())
        if names := [s for s in unknown if s.startswith(CHANNEL)]:
            await load_channels(self.io, self.store, batch, names, self.clock())
        for job in batch.jobs:
            if job.key is not None:
                known = await self.io(self.store.key, job.key.key, job.key.actor)
                if known is not None:
                    batch.repeats[job] = known

    def _has_offer(self, row: DispatchRow) -> bool:
        """Whether the run is in memory, and what memory has of it knows of this offer."""
        known = self._runs.get(row.execution_id)
        return known is not None and known.run.token_of(row.fence) is not None

    async def _plans(self, batch: Batch, rows: Sequence[Execution]) -> None:
        """The definitions of the runs that were loaded, and of those that begin or migrate."""
        wanted = {(row.workflow_id, row.workflow_version) for row in rows}
        for job in batch.jobs:
            if isinstance(job.command, _DEFINED):
                wanted.add((job.command.definition_id, job.command.version))
        self.plans.trim(wanted)
        for workflow_id, version in wanted:
            if not self.plans.knows(workflow_id, version):
                row = await self.io(self.store.definition, workflow_id, version)
                self.plans.add(workflow_id, version, row)

    # Settling

    def _settle(self, batch: Batch, writes: Sequence[Write], won: Sequence[bool]) -> None:
        """On disk, but for the losers: keep, start what was claimed, answer, tell."""
        lost = {w.entry.stream for w, one in zip(writes, won, strict=True) if not one}
        lost |= batch.stale
        out = lost | batch.broken.keys()
        for work in batch.works.values():
            if isinstance(work, RunWork):
                self._keep(work, out)
        for work, seat, fence in batch.claims:
            if work.stream in out:
                self._give_back(seat)
            else:
                seat.begin(work.stream, fence)
        self._answer(batch, lost)
        for work in batch.works.values():
            if work.events and work.stream not in out:
                for message in work.messages:
                    self.deliver(message)
                if isinstance(work, RunWork):
                    self.heard(work)
                elif isinstance(work, ChannelWork):
                    self.heard_channel(work)

    def _answer(self, batch: Batch, lost: set[str]) -> None:
        again: list[Job] = []
        for job in batch.jobs:
            if job.stream not in lost:
                self._reply(batch, job)
            elif self._may_try_again(job):
                again.append(job)
        self._jobs.extendleft(reversed(again))

    def _keep(self, work: RunWork, out: set[str]) -> None:
        known = work.after or work.kept
        if known is None or work.stream in out or rested(known):
            self._runs.pop(work.stream, None)
            return
        self._runs[work.stream] = known
        if len(self._runs) > RUNS_KEPT:
            self._runs.pop(next(iter(self._runs)))

    def _give_back(self, seat: Seat) -> None:
        self.desk.give_back(seat)
        self.desk.behind.update(seat.roles)

    def _may_try_again(self, job: Job) -> bool:
        job.losses += 1
        job.refusal = None
        if job.losses <= LOSSES_MAX:
            return True
        self._delivering.discard(job.message)
        self._tell(job, Busy(f"'{job.stream}' is changed by others all the time; try again"))
        return False

    def _reply(self, batch: Batch, job: Job) -> None:
        if job.message:
            self._answered(batch, job)
        if job.done is None:
            return
        broken = batch.broken.get(job.stream)
        if broken is not None:
            job.done(broken)
            return
        work = batch.works.get(job.stream)
        repeated = batch.repeats.get(job) if job.key is not None else None
        run = work.run if work is not None else None
        channel = work if isinstance(work, ChannelWork) else None
        job.done(Answer(run=run, refusal=job.refusal, repeated=repeated, channel=channel))

    def _tell(self, job: Job, answer: Answer | Exception) -> None:
        if job.done is not None:
            job.done(answer)

    def _failed(self, batch: Batch, error: StoreError) -> None:
        """Nothing was written: everybody hears it, and nothing in memory is believed any more."""
        for _, seat, _ in batch.claims:
            self._give_back(seat)
        for stream in batch.works:
            self._runs.pop(stream, None)
        for job in batch.jobs:
            self._delivering.discard(job.message)
            self._tell(job, error)

    # Messages

    def deliver(self, message: Message) -> None:
        """To its stream; what is not delivered now is found again by the pulse."""
        if message.id in self._delivering:
            return
        to_lock = message.target.startswith(LOCK)
        command = (decode_to_lock if to_lock else decode_to_run)(message.body)
        self._delivering.add(message.id)
        self.let_in(Job(message.target, command, message=message.id))

    def _answered(self, batch: Batch, job: Job) -> None:
        """A message that changed nothing is still to be cleared away; a lock that its run no longer
        wants goes back."""
        self._delivering.discard(job.message)
        work = batch.works.get(job.stream)
        if job.stream in batch.broken or (work is not None and job.message in work.consumed):
            return
        if isinstance(job.command, Granted) and job.refusal is not None:
            back = locks.Withdraw(run=job.stream, step=job.command.place)
            self._delivering.add(job.message)
            self.let_in(Job(LOCK + job.command.repository, back, message=job.message))
            return
        self.soon(self.store.consume, job.message)

    def soon(self, function: Callable[[T], None], value: T) -> None:
        """A small write that nobody waits for and that may fail."""
        self._threads.soon(function, value)


_DEFINED = (c.Start, c.Migrate)


def _failure(error: BaseException) -> StoreError:
    return StoreError(f"the engine has failed: {error}")


def _unheard(work: RunWork | ChannelWork) -> None:
    """For an engine that nobody listens to."""
