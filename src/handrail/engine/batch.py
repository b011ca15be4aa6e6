"""One batch being decided: commands in, writes out, nothing on disk yet. No I/O.

1. What waited in the database for a free seat comes first; then the commands, in their order; then
   what they offered goes to seats that are free.
2. One run's trouble is not everybody's: a run whose command raises is left out of the batch, as if
   nothing had happened to it, and whoever asked hears of it.
3. A clock that ran while no engine was alive is pushed before anything else happens to its run.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from handrail.engine.channel_work import ChannelWork
from handrail.engine.desk import Desk, Seat
from handrail.engine.plans import Plans, UnknownDefinitionError
from handrail.engine.project import Kept
from handrail.engine.vocabulary import tell
from handrail.engine.works import Command, Forfeited, Granted, LockWork, RunWork, Work
from handrail.kernel.decision import Refusal, Value
from handrail.kernel.run import commands as c
from handrail.kernel.run.machine import Run
from handrail.kernel.run.state import OFFERED, Token
from handrail.store.port import DispatchRow, KeyRow, LockState, Write, moment

log = logging.getLogger("handrail.engine")

Outage = tuple[datetime, datetime]
AT_HAND = 100
"""Runs that are brought from their commands to their writes together."""


class Answer(Value):
    """What became of a command: the run after it, or why it was refused."""

    run: Run | None = None
    refusal: Refusal | None = None
    repeated: KeyRow | None = None
    """The first answer, if this was a repetition under the same idempotency key."""
    channel: ChannelWork | None = None
    """What became of the channel that it was about, in the whole batch."""


Done = Callable[[Answer | Exception], None]


class Job:
    """A command on its way. `done` hears what became of it, once; `message` is the id of the
    message that it came with."""

    __slots__ = ("command", "done", "key", "losses", "message", "priority", "refusal", "stream")

    def __init__(
        self,
        stream: str,
        command: Command,
        done: Done | None = None,
        key: KeyRow | None = None,
        message: str = "",
        priority: int = 0,
    ) -> None:
        self.stream, self.command, self.done, self.key = stream, command, done, key
        self.message, self.priority = message, priority
        self.losses = 0
        self.refusal: Refusal | None = None


class Batch:
    """`runs` are those in memory; all that the jobs are about have been loaded into it."""

    def __init__(
        self,
        jobs: Sequence[Job],
        runs: dict[str, Kept],
        plans: Plans,
        desk: Desk,
        outages: Sequence[Outage],
    ) -> None:
        self.jobs, self.runs, self.plans, self.desk, self.outages = jobs, runs, plans, desk, outages
        self.works: dict[str, Work] = {}
        self.broken: dict[str, Exception] = {}
        self.repeats: dict[Job, KeyRow] = {}
        self.claims: list[tuple[RunWork, Seat, int]] = []
        self.fresh: set[str] = set()
        """Runs that were loaded for it."""
        self.stale: set[str] = set()
        """Runs of which it had a copy that is true no more."""

    def add_lock(self, stream: str, row: LockState | None, now: datetime) -> None:
        """Whoever holds it could say nothing while no engine was alive."""
        self.works[stream] = work = LockWork(stream, row)
        if row is not None and any(ended > moment(row.updated_at) for _, ended in self.outages):
            work.extend(now)

    def add_channel(self, work: ChannelWork, now: datetime) -> None:
        """Its clocks did not run while no engine was alive."""
        self.works[work.stream] = work
        if work.row is not None and self.outages:
            since = moment(work.row.updated_at)
            away = sum(_overlap(outage, since) for outage in self.outages)
            if away > 0:
                work.push(away, now)

    def doubtful(self) -> list[str]:
        """Runs for which a command was refused on nothing but what memory has of them. A change is
        guarded when it is written; a refusal would be wrong for good."""
        return [
            job.stream
            for job in self.jobs
            if job.refusal is not None
            and job.stream in self.runs
            and job.stream not in self.fresh
            and not self.works[job.stream].events
        ]

    def decide(self, offers: Sequence[DispatchRow], now: datetime) -> list[Write]:
        """Every write that follows, each of another stream.

        Some runs at a time, and of those one kind of work after the other: so both the runs and the
        code stay at the processor's hand. It is a third faster than run by run, or all at once.
        """
        for row in offers:
            self._take_up(row, now)
        streams: dict[str, list[Job]] = {stream: [] for stream in self.works}
        for job in self.jobs:
            streams.setdefault(job.stream, []).append(job)
        writes: list[Write] = []
        names = list(streams)
        for first in range(0, len(names), AT_HAND):
            self._decide_some({name: streams[name] for name in names[first : first + AT_HAND]}, now)
            for name in names[first : first + AT_HAND]:
                work = self.works.get(name)
                if work is not None and work.events and name not in self.broken:
                    try:
                        writes.append(work.write())
                    except Exception as error:  # what cannot be written down has not happened
                        self.give_up(name, error)
        return writes

    def _decide_some(self, streams: dict[str, list[Job]], now: datetime) -> None:
        for jobs in streams.values():
            for job in jobs:
                self._take(job, now)
        for name in streams:
            work = self.works.get(name)
            if work is not None and work.events:
                self._hand_out(work, now)

    def _hand_out(self, work: Work, now: datetime) -> None:
        """Offers go to free seats at once, unless others of their role have waited longer."""
        run = work.run
        for token in run.tokens.values() if run is not None else ():
            if token.phase is OFFERED:
                if self.desk.passed:
                    self.desk.look_at(token.role, work.stream, token.fence)
                if token.role not in self.desk.behind:
                    self._offer(work, token, now)

    def give_up(self, stream: str, error: Exception) -> None:
        tell(log, "run_broken", execution_id=stream, reason=str(error), error=error)
        self.broken[stream] = error

    def _work(self, stream: str, job: Job | None, now: datetime) -> Work | None:
        work = self.works.get(stream)
        if work is not None:
            return work
        known = self.runs.get(stream)
        if known is not None:
            work = RunWork(stream, known.plan, known, known.row.priority)
            if self.outages and known.at < self.outages[-1][1] and not known.run.ended:
                away = sum(_overlap(outage, known.at) for outage in self.outages)
                if away > 0:
                    work.take(c.PushClocks(seconds=away), now)
        elif job is not None and isinstance(job.command, c.Start):
            command = job.command
            plan = self.plans.get(command.definition_id, command.version)
            work = RunWork(stream, plan, None, job.priority)
        else:
            return None
        self.works[stream] = work
        return work

    def _take(self, job: Job, now: datetime) -> None:
        if job.stream in self.broken or (job.key is not None and self._repeats(job)):
            return
        try:
            work = self._work(job.stream, job, now)
            if work is None:
                told = f"there is no run '{job.stream}'"
                job.refusal = Refusal(code="unknown_run", message=told, hint="look at the list")
                return
            before = len(work.events)
            special = _SPECIAL.get(type(job.command))
            if special is None:
                job.refusal = work.take(job.command, now)  # pyright: ignore[reportArgumentType] - of its kind
            else:
                job.refusal = special(self, work, job.command, now)
            if len(work.events) > before:
                if job.key is not None and job.refusal is None:
                    work.keys += (job.key,)
                if job.message:
                    work.consumed += (job.message,)
        except UnknownDefinitionError as error:
            hint = "define it first"
            job.refusal = Refusal(code="unknown_definition", message=str(error), hint=hint)
        except Exception as error:
            self.give_up(job.stream, error)

    def _repeats(self, job: Job) -> bool:
        """Whether it was asked before, under the same key: long ago, or in this batch."""
        work = self.works.get(job.stream)
        if work is not None and job.key is not None:
            name = job.key.key, job.key.actor
            for key in work.keys:
                if (key.key, key.actor) == name:
                    self.repeats[job] = key
        return job in self.repeats

    def _migrate(self, work: RunWork, command: c.Migrate, now: datetime) -> Refusal | None:
        """Decided under the new version; if it is refused, the old one stays."""
        old = work.plan
        work.plan = self.plans.get(command.definition_id, command.version)
        refusal = work.take(command, now)
        if refusal is not None:
            work.plan = old
        return refusal

    def _hear(self, work: RunWork, message: Granted | Forfeited, now: datetime) -> Refusal | None:
        meant = work.command(message)
        return work.take(meant, now) if meant is not None else None

    def _take_up(self, row: DispatchRow, now: datetime) -> None:
        """A dispatch that waited in the database."""
        try:
            work = self._work(row.execution_id, None, now)
        except Exception as error:
            self.give_up(row.execution_id, error)
            work = None
        run = work.run if work is not None else None
        token = run.token_of(row.fence) if run is not None else None
        if token is not None and token.phase is OFFERED:
            self._offer(work, token, now)
        else:
            self.desk.pass_over(row.role, row.execution_id, row.fence)

    def _offer(self, work: Any, token: Token, now: datetime) -> None:  # noqa: ANN401 - a RunWork
        """To the first free seat whose agent the run accepts."""
        tried = False
        try:
            for seat in self.desk.free(token.role):
                tried = True
                if seat.only and work.run.definition_id not in seat.only:
                    continue
                claim = c.Claim(fence=token.fence, agent=seat.agent, roles=seat.roles)
                if work.take(claim, now) is None:
                    seat.free -= 1
                    work.sessions[token.fence] = seat.session
                    self.claims.append((work, seat, token.fence))
                    return
        except Exception as error:
            self.give_up(work.stream, error)
        if tried:
            self.desk.pass_over(token.role, work.stream, token.fence)
        else:
            self.desk.behind.add(token.role)


_SPECIAL: dict[type[Any], Callable[[Batch, Any, Any, datetime], Refusal | None]] = {
    c.Migrate: Batch._migrate,  # pyright: ignore[reportPrivateUsage] - its own
    Granted: Batch._hear,  # pyright: ignore[reportPrivateUsage] - its own
    Forfeited: Batch._hear,  # pyright: ignore[reportPrivateUsage] - its own
}


def _overlap(outage: Outage, since: datetime) -> float:
    """Seconds of the outage after that moment."""
    began, ended = outage
    return max(0.0, (ended - max(began, since)).total_seconds())
