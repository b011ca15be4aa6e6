"""A commit lock while a batch is decided: its state, the events decided so far, and their write."""

from datetime import datetime

import msgspec

from handrail.kernel import lock as locks
from handrail.kernel.decision import Refusal, Value
from handrail.store.rows import (
    EMPTY_HEAD,
    IdempotencyKeyRow,
    LockRow,
    MessageRow,
    StreamWrite,
    encode,
    iso,
    journal_entry,
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


decode_lock = msgspec.json.Decoder(locks.CommitLock).decode
decode_lock_command = msgspec.json.Decoder(locks.LockCommand).decode


class LockChange:
    """The change of one commit lock in a batch."""

    run = None
    fault = ""

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
        at = iso(self.events[-1].at)
        entry = journal_entry(self.stream, seq, head, self.events)
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
            message = Granted(place=effect.step, lock=effect.fence, repository=self.lock.repository)
        else:
            message = Forfeited(place=effect.step, lock=effect.fence)
        return MessageRow(
            id=message_id, target=effect.run, body=encode(message).decode(), created_at=at
        )


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
