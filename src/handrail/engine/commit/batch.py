"""Decide one batch: commands in, writes out, nothing on disk yet. No I/O.

1. Dispatches that waited in the database for a free slot come first; then the commands, in order;
   then the dispatches that the commands offered go to free slots.
2. Runs fail separately: the batch leaves out a run whose command raises, as if nothing had happened
   to the run, and the caller gets the error.
3. A clock that ran while no engine was alive is pushed before anything else happens to its run.
4. A batch that takes long to decide ends early, and leaves its other commands to the next one: the
   event loop serves others between two batches.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from time import perf_counter
from typing import Any

from msgspec.structs import replace

from handrail.engine.commit.budget_book import BudgetBook
from handrail.engine.commit.channel_change import ChannelRequest, ChannelStreamChange
from handrail.engine.commit.lock_change import Forfeited, Granted, LockChange
from handrail.engine.commit.run_change import CachedRun, RunChange, RunMessage
from handrail.engine.dispatch.matcher import AgentSlot, DispatchMatcher
from handrail.engine.errors import DefinitionAlteredError, UnknownDefinitionError
from handrail.engine.log_events import log_event
from handrail.kernel import lock as locks
from handrail.kernel.channel.events import AddMember
from handrail.kernel.decision import Refusal, Value
from handrail.kernel.definition.plan import Plan
from handrail.kernel.run import commands as c
from handrail.kernel.run.state import OFFERED, Position, Run
from handrail.store.rows import (
    BeadRow,
    DispatchRow,
    IdempotencyKeyRow,
    LockRow,
    RunRow,
    StreamWrite,
    encode,
    parse_iso,
)
from handrail.views.guarded_run import guarded_run_status

log = logging.getLogger("handrail.engine")

Outage = tuple[datetime, datetime]
CHUNK_STREAMS = 100
"""Streams that go from their commands to their writes together."""
DECIDING_SECONDS_MAX = 0.1
"""After so long, the commands that are not decided yet are postponed."""


class CommandResult(Value):
    """The outcome of a command: the run after it, or the reason for the refusal."""

    run: Run | None = None
    row: RunRow | None = None
    """The run's row, if the batch changed it."""
    refusal: Refusal | None = None
    fault: str = ""
    """Why the result that the command brought is on record but counts for nothing."""
    duplicate_of: IdempotencyKeyRow | None = None
    """The first answer, if the command repeats an earlier one under the same idempotency key."""
    channel: ChannelStreamChange | None = None
    """The change of the command's channel, over the whole batch."""


Command = c.RunCommand | locks.LockCommand | RunMessage | ChannelRequest
StreamChange = RunChange | LockChange | ChannelStreamChange
OnDone = Callable[[CommandResult | Exception], None]


class CommandJob:
    """A queued command. `on_done` gets the outcome, once; `message_id` names the message that
    carried the command; `bead` is that of a run that begins."""

    __slots__ = (
        "bead",
        "command",
        "conflicts",
        "fault",
        "key",
        "message_id",
        "on_done",
        "refusal",
        "stream",
    )

    def __init__(
        self,
        stream: str,
        command: Command,
        on_done: OnDone | None = None,
        key: IdempotencyKeyRow | None = None,
        message_id: str = "",
        bead: BeadRow | None = None,
    ) -> None:
        self.stream, self.command, self.on_done, self.key = stream, command, on_done, key
        self.message_id, self.bead = message_id, bead
        self.conflicts = 0
        self.refusal: Refusal | None = None
        self.fault = ""


class Batch:
    """The commands of one batch. `cached_runs` are in memory; every run that a job names is
    loaded."""

    def __init__(
        self,
        jobs: Sequence[CommandJob],
        cached_runs: dict[str, CachedRun],
        get_plan: Callable[[str, int], Plan],
        matcher: DispatchMatcher,
        outages: Sequence[Outage],
    ) -> None:
        self.jobs, self.cached_runs, self.get_plan = jobs, cached_runs, get_plan
        self.matcher, self.outages = matcher, outages
        self.changes: dict[str, StreamChange] = {}
        self.errors: dict[str, Exception] = {}
        self.duplicates: dict[CommandJob, IdempotencyKeyRow] = {}
        self.claims: list[tuple[RunChange, AgentSlot, int]] = []
        self.loaded_streams: set[str] = set()
        """Runs that were loaded for this batch."""
        self.stale: set[str] = set()
        """Runs whose cached copy was out of date."""
        self.book: BudgetBook | None = None
        """The budgets that the runs name, if they name any."""
        self.postponed: list[CommandJob] = []
        """Jobs that this batch had no time for; they are not among its `jobs` any more."""

    def add_lock(self, stream: str, row: LockRow | None, now: datetime) -> None:
        """Add a lock. Its holder could not send a sign of life while no engine was alive."""
        self.changes[stream] = change = LockChange(stream, row)
        if row is not None and any(ended > parse_iso(row.updated_at) for _, ended in self.outages):
            change.extend(now)

    def joining_agents(self) -> Iterator[str]:
        """The agents that are about to become members of a channel."""
        for job in self.jobs:
            request = job.command
            if isinstance(request, ChannelRequest) and isinstance(request.command, AddMember):
                yield request.command.agent_id

    def add_channel(self, change: ChannelStreamChange, now: datetime) -> None:
        """Add a channel. Its clocks did not run while no engine was alive."""
        self.changes[change.stream] = change
        if change.row is not None and self.outages:
            since = parse_iso(change.row.updated_at)
            outage_seconds = sum(_overlap_seconds(outage, since) for outage in self.outages)
            if outage_seconds > 0:
                change.push_clocks(outage_seconds, now)

    def unconfirmed_answers(self) -> list[str]:
        """Return the runs whose command was refused on cached state alone, or a guard's sign of
        life taken, which asks whether the run goes on. The store checks a change when it writes it;
        a wrong answer without one would stay wrong."""
        return [
            job.stream
            for job in self.jobs
            if (job.refusal is not None or type(job.command) is c.Observe)
            and job.stream in self.cached_runs
            and job.stream not in self.loaded_streams
            and (change := self.changes.get(job.stream)) is not None
            and not change.events
        ]

    def budget_names(self, offers: Sequence[DispatchRow]) -> set[str]:
        """Return the budgets that the batch's runs name; everything is loaded."""
        names = set[str]()
        for stream in {*(job.stream for job in self.jobs), *(row.execution_id for row in offers)}:
            if stream in self.cached_runs:
                names.update(self.cached_runs[stream].plan.limits.budgets)
        for job in self.jobs:
            if isinstance(job.command, c.Start | c.Migrate):
                with suppress(UnknownDefinitionError):
                    plan = self.get_plan(job.command.definition_id, job.command.version)
                    names.update(plan.limits.budgets)
        return names

    def decide(self, offers: Sequence[DispatchRow], now: datetime) -> list[StreamWrite]:
        """Return every resulting write, each of another stream.

        Streams are decided in chunks, and each phase runs over the whole chunk: runs and code stay
        in the processor's caches. This is a third faster than run by run, or all at once.
        """
        for row in offers:
            self._claim_reserved(row, now)
        streams: dict[str, list[CommandJob]] = {stream: [] for stream in self.changes}
        for job in self.jobs:
            streams.setdefault(job.stream, []).append(job)
        writes: list[StreamWrite] = []
        names = list(streams)
        deadline = perf_counter() + DECIDING_SECONDS_MAX
        for start in range(0, len(names), CHUNK_STREAMS):
            self._decide_chunk(
                {name: streams[name] for name in names[start : start + CHUNK_STREAMS]},
                now,
                deadline,
            )
            for name in names[start : start + CHUNK_STREAMS]:
                change = self.changes.get(name)
                if change is not None and change.events and name not in self.errors:
                    try:
                        writes.append(change.build_write())
                    except Exception as error:  # an event that cannot be encoded has not happened
                        self.fail_stream(name, error)
        if self.postponed:
            postponed = set(self.postponed)
            self.jobs = [job for job in self.jobs if job not in postponed]
        return writes

    def _decide_chunk(
        self, streams: dict[str, list[CommandJob]], now: datetime, deadline: float
    ) -> None:
        is_late = bool(self.postponed)
        for jobs in streams.values():
            for job in jobs:
                if is_late:
                    self.postponed.append(job)
                else:
                    self._decide_command(job, now)
                    is_late = perf_counter() > deadline
        for name in streams:
            change = self.changes.get(name)
            if change is not None and change.events:
                self._match_offers(change, now)

    def _match_offers(self, change: StreamChange, now: datetime) -> None:
        """Give offers to free slots at once, unless older dispatches of their role wait."""
        run = change.run
        for position in run.positions.values() if run is not None else ():
            if position.phase is OFFERED:
                if self.matcher.skipped:
                    self.matcher.unskip(position.role, change.stream, position.fence)
                if position.role not in self.matcher.maybe_waiting:
                    self._offer_to_slots(change, position, now)

    def fail_stream(self, stream: str, error: Exception) -> None:
        log_event(log, "run_broken", execution_id=stream, reason=str(error), error=error)
        self.errors[stream] = error

    def _change_for(
        self, stream: str, job: CommandJob | None, now: datetime
    ) -> StreamChange | None:
        change = self.changes.get(stream)
        if change is not None:
            return change
        cached = self.cached_runs.get(stream)
        if cached is not None:
            change = RunChange(stream, cached.plan, cached, book=self.book)
            if (
                self.outages
                and cached.last_event_at < self.outages[-1][1]
                and not cached.run.has_ended
            ):
                outage_seconds = sum(
                    _overlap_seconds(outage, cached.last_event_at) for outage in self.outages
                )
                if outage_seconds > 0:
                    change.decide(c.PushClocks(seconds=outage_seconds), now)
        elif job is not None and isinstance(job.command, c.Start):
            command = job.command
            plan = self.get_plan(command.definition_id, command.version)
            change = RunChange(stream, plan, None, job.bead, self.book)
        else:
            return None
        self.changes[stream] = change
        return change

    def _decide_command(self, job: CommandJob, now: datetime) -> None:
        if job.stream in self.errors or (job.key is not None and self._is_duplicate(job)):
            return
        try:
            change = self._change_for(job.stream, job, now)
            if change is None:
                job.refusal = Refusal(
                    code="unknown_run",
                    message=f"there is no run '{job.stream}'",
                    hint="list the runs with GET /executions",
                )
                return
            events_before = len(change.events)
            handler = _SPECIAL_HANDLERS.get(type(job.command))
            if handler is None:
                job.refusal = change.decide(job.command, now)  # pyright: ignore[reportArgumentType] - of its kind
            else:
                job.refusal = handler(self, change, job.command, now)
            if len(change.events) > events_before:
                job.fault = change.fault
                if job.key is not None and job.refusal is None:
                    change.keys += (_with_answer(job.key, job.command, change.run),)
                if job.message_id:
                    change.consumed += (job.message_id,)
        except DefinitionAlteredError as error:
            hint = "restore a backup, or store the definition again: that makes a new version"
            job.refusal = Refusal(code="definition_changed", message=str(error), hint=hint)
        except UnknownDefinitionError as error:
            job.refusal = Refusal(
                code="unknown_definition", message=str(error), hint="store the definition first"
            )
        except Exception as error:
            self.fail_stream(job.stream, error)

    def _is_duplicate(self, job: CommandJob) -> bool:
        """Whether the same key was used before: in an earlier batch, or in this one."""
        change = self.changes.get(job.stream)
        if change is not None and job.key is not None:
            identity = job.key.key, job.key.actor
            for key in change.keys:
                if (key.key, key.actor) == identity:
                    self.duplicates[job] = key
        return job in self.duplicates

    def _migrate(
        self, change: RunChange, command: c.Migrate | c.Observe, now: datetime
    ) -> Refusal | None:
        """Decide a migration under the new version; after a refusal the old version stays."""
        old_plan = change.plan
        change.plan = self.get_plan(command.definition_id, command.version)
        refusal = change.decide(command, now)
        if refusal is not None:
            change.plan = old_plan
        return refusal

    def _observe(self, change: RunChange, command: c.Observe, now: datetime) -> Refusal | None:
        """Decide a guard's report after the last event; under a new version, if it names one."""
        command = replace(command, last_event_at=change.last_event_at)
        if command.version:
            return self._migrate(change, command, now)
        return change.decide(command, now)

    def _apply_message(
        self, change: RunChange, message: Granted | Forfeited, now: datetime
    ) -> Refusal | None:
        command = change.command_for(message)
        return change.decide(command, now) if command is not None else None

    def _claim_reserved(self, row: DispatchRow, now: datetime) -> None:
        """Claim a dispatch that waited in the database."""
        try:
            change = self._change_for(row.execution_id, None, now)
        except Exception as error:
            self.fail_stream(row.execution_id, error)
            change = None
        run = change.run if change is not None else None
        position = run.find_position(row.fence) if run is not None else None
        if position is not None and position.phase is OFFERED:
            self._offer_to_slots(change, position, now)
        else:
            self.matcher.skip(row.role, row.execution_id, row.fence)

    def _offer_to_slots(self, change: Any, position: Position, now: datetime) -> None:  # noqa: ANN401 - a RunChange
        """Give the dispatch to the first free slot whose agent the run accepts."""
        tried = False
        try:
            for slot in self.matcher.free_slots(position.role):
                tried = True
                if slot.definitions and change.run.definition_id not in slot.definitions:
                    continue
                claim = c.Claim(fence=position.fence, agent=slot.agent, roles=slot.roles)
                if change.decide(claim, now) is None:
                    slot.free_capacity -= 1
                    change.sessions[position.fence] = slot.session
                    self.claims.append((change, slot, position.fence))
                    return
        except Exception as error:
            self.fail_stream(change.stream, error)
        if tried:
            self.matcher.skip(position.role, change.stream, position.fence)
        else:
            self.matcher.maybe_waiting.add(position.role)


def _with_answer(key: IdempotencyKeyRow, command: Command, run: Run | None) -> IdempotencyKeyRow:
    """The key with the answer to a guard, which follows from the decision; others have theirs."""
    if run is None or not isinstance(command, c.Observe | c.Ask):
        return key
    status = guarded_run_status(run, with_question=isinstance(command, c.Ask))
    return replace(key, answer=encode(status).decode())


_SPECIAL_HANDLERS: dict[type[Any], Callable[[Batch, Any, Any, datetime], Refusal | None]] = {
    c.Migrate: Batch._migrate,  # pyright: ignore[reportPrivateUsage] - its own
    c.Observe: Batch._observe,  # pyright: ignore[reportPrivateUsage] - its own
    Granted: Batch._apply_message,  # pyright: ignore[reportPrivateUsage] - its own
    Forfeited: Batch._apply_message,  # pyright: ignore[reportPrivateUsage] - its own
}


def _overlap_seconds(outage: Outage, since: datetime) -> float:
    """Seconds of the outage after `since`."""
    began, ended = outage
    return max(0.0, (ended - max(began, since)).total_seconds())
