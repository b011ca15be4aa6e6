"""A stream while a batch is decided: its state, the events decided so far, and their write.

Several commands to one stream in one batch become one journal entry: they are decided one after the
other, each on the state that the last one left, and are on disk together or not at all.
"""

from datetime import datetime

import msgspec

from handrail.engine.commit.projection import RUNNING, CachedRun, ExtraRows, encode, project
from handrail.kernel import lock as locks
from handrail.kernel.decision import Refusal, Value
from handrail.kernel.definition.plan import Plan
from handrail.kernel.run import commands as c
from handrail.kernel.run.effects import AcquireLock, ReleaseLock, RunEffect
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.machine import Run, decide_and_apply
from handrail.kernel.run.state import CLAIMED
from handrail.store.rows import (
    EMPTY_HEAD,
    IdempotencyKeyRow,
    JournalEntry,
    LockRow,
    MessageRow,
    StreamWrite,
    entry_hash,
    iso,
)

LOCK_STREAM_PREFIX = "lock:"


class Granted(Value, tag=True):
    """To a run: its step has the commit lock of the repository."""

    place: str
    lock: int
    repository: str


class Forfeited(Value, tag=True):
    """To a run: its step was silent for too long and lost the lock."""

    place: str
    lock: int


RunMessage = Granted | Forfeited
decode_lock = msgspec.json.Decoder(locks.CommitLock).decode
decode_lock_command = msgspec.json.Decoder(locks.LockCommand).decode
decode_run_message = msgspec.json.Decoder(RunMessage).decode


class RunChange:
    """The change of one run in a batch. `before` is None for a run that begins."""

    __slots__ = (
        "after",
        "before",
        "consumed",
        "effects",
        "events",
        "keys",
        "messages",
        "plan",
        "priority",
        "run",
        "sessions",
        "stream",
    )

    def __init__(
        self, stream: str, plan: Plan, before: CachedRun | None, priority: int = 0
    ) -> None:
        self.stream, self.plan, self.before, self.priority = stream, plan, before, priority
        self.run: Run | None = before.run if before is not None else None
        self.events: tuple[RunEvent, ...] = ()
        self.effects: tuple[RunEffect, ...] = ()
        self.sessions: dict[int, str] = {}
        self.keys: tuple[IdempotencyKeyRow, ...] = ()
        self.consumed: tuple[str, ...] = ()
        self.messages: tuple[MessageRow, ...] = ()
        self.after: CachedRun | None = None

    @property
    def last_event_at(self) -> datetime | None:
        """When the run's last event was; None for a run that begins."""
        if self.events:
            return self.events[-1].at
        return self.before.last_event_at if self.before is not None else None

    def decide(self, command: c.RunCommand, now: datetime) -> Refusal | None:
        if self.before is not None and now < self.before.last_event_at:
            now = (
                self.before.last_event_at
            )  # no event is before the last one, whatever the clocks say
        decision, self.run = decide_and_apply(self.plan, self.run, command, now)
        self.events += decision.events
        self.effects += decision.effects
        return decision.refusal

    def command_for(self, message: RunMessage) -> c.RunCommand | None:
        """Return the command that a message means to the run now; None if the message is
        obsolete."""
        position = self.run.positions.get(message.place) if self.run is not None else None
        holds = position is not None and position.lock == message.lock
        if isinstance(message, Granted):
            return None if holds else c.GrantLock(step_id=message.place, lock=message.lock)
        if position is None or not holds or position.phase is not CLAIMED:
            return None
        return c.Lose(fence=position.fence, reason="the commit lock was lost: no heartbeat in time")

    def build_write(self) -> StreamWrite:
        run = self.run
        assert run is not None, "it has events"
        for n, effect in enumerate(self.effects):
            if isinstance(effect, AcquireLock | ReleaseLock):
                self.messages += (self._message_to_lock(effect, f"{run.id}.{run.seq}.{n}"),)
        extra = ExtraRows(
            priority=self.priority,
            sessions=self.sessions,
            messages=self.messages,
            consumed=self.consumed,
            keys=self.keys,
        )
        write, self.after = project(self.plan, self.before, run, self.events, extra)
        return write

    def _message_to_lock(self, effect: AcquireLock | ReleaseLock, message_id: str) -> MessageRow:
        if isinstance(effect, AcquireLock):
            command = locks.Acquire(run=self.stream, step=effect.step_id)
        else:
            command = locks.Release(run=self.stream, step=effect.step_id, fence=effect.lock)
        return MessageRow(
            id=message_id,
            target=LOCK_STREAM_PREFIX + effect.repository,
            body=encode(command).decode(),
            created_at=iso(self.events[-1].at),
        )


class LockChange:
    """The change of one commit lock in a batch."""

    run = None

    def __init__(self, stream: str, row: LockRow | None) -> None:
        self.stream, self.row = stream, row
        self.lock = locks.CommitLock(repository=stream.removeprefix(LOCK_STREAM_PREFIX))
        if row is not None:
            self.lock = decode_lock(row.state)
        self.seq = row.seq if row is not None else 0
        self.events: tuple[locks.LockEvent, ...] = ()
        self.effects: tuple[locks.LockEffect, ...] = ()
        self.keys: tuple[IdempotencyKeyRow, ...] = ()
        self.consumed: tuple[str, ...] = ()
        self.messages: tuple[MessageRow, ...] = ()
        self.after: LockRow | None = None

    def extend(self, now: datetime) -> None:
        """Extend the lock, as if the holder had just been heard."""
        holder = self.lock.holder
        if holder is not None and now > holder.beat_at:
            run, step = holder.request.run, holder.request.step
            extended = locks.LockExtended(run=run, step=step, fence=holder.fence, at=now)
            self.lock = locks.evolve(self.lock, extended)
            self.events += (extended,)

    def decide(self, command: locks.LockCommand, now: datetime) -> Refusal | None:
        decision = locks.decide(self.lock, command, now)
        for event in decision.events:
            self.lock = locks.evolve(self.lock, event)
        self.events += decision.events
        self.effects += decision.effects
        return decision.refusal

    def build_write(self) -> StreamWrite:
        head = self.row.head if self.row is not None else EMPTY_HEAD
        seq = self.seq + len(self.events)
        body = encode(self.events).decode()
        at = iso(self.events[-1].at)
        entry = JournalEntry(
            stream=self.stream,
            seq=seq,
            count=len(self.events),
            body=body,
            hash=entry_hash(head, self.stream, seq, body),
        )
        self.messages += tuple(
            self._message_to_run(effect, f"{self.stream}.{seq}.{n}", at)
            for n, effect in enumerate(self.effects)
        )
        self.after = lock_row(self.lock, seq, entry.hash, at)
        return StreamWrite(
            expected_head=head,
            entry=entry,
            row=self.after,
            messages=self.messages,
            consumed_message_ids=self.consumed,
            keys=self.keys,
        )

    def _message_to_run(self, effect: locks.LockEffect, message_id: str, at: str) -> MessageRow:
        if isinstance(effect, locks.NotifyLockGranted):
            repository = self.lock.repository
            message = Granted(place=effect.step, lock=effect.fence, repository=repository)
        else:
            message = Forfeited(place=effect.step, lock=effect.fence)
        body = encode(message).decode()
        return MessageRow(id=message_id, target=effect.run, body=body, created_at=at)


def lock_row(lock: locks.CommitLock, seq: int, head: bytes, at: str) -> LockRow:
    """The row of a lock after a journal entry."""
    holder, due = lock.holder, locks.next_due(lock)
    return LockRow(
        repository=lock.repository,
        holder_execution_id=holder.request.run if holder is not None else None,
        holder_step=holder.request.step if holder is not None else None,
        fence=lock.fence,
        seq=seq,
        head=head,
        next_due=iso(due) if due is not None else None,
        updated_at=at,
        state=encode(lock).decode(),
    )


def is_at_rest(cached: CachedRun) -> bool:
    """Whether the run will not change by itself for a long time."""
    status = cached.run.status
    if status is RUNNING:
        return False
    # dispatches claimed before a pause still come back
    return status != "paused" or all(
        position.phase is not CLAIMED for position in cached.run.positions.values()
    )
