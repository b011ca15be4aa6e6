"""A stream while a batch is decided: its state, what was decided so far, and the write of it all.

Several commands to one stream in one batch become one entry of the journal: they are decided one
after the other, each on what the last one left, and are on disk together or not at all.
"""

from datetime import datetime

import msgspec

from handrail.engine.channel_work import ChannelWork, Order
from handrail.engine.project import RUNNING, Beside, Kept, encode, project
from handrail.kernel import lock as locks
from handrail.kernel.decision import Refusal, Value
from handrail.kernel.plan import Plan
from handrail.kernel.run import commands as c
from handrail.kernel.run.effects import FreeLock, RunEffect, SeekLock
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.machine import Run, step
from handrail.kernel.run.state import CLAIMED
from handrail.store.chain import START, entry_hash
from handrail.store.port import Entry, KeyRow, LockState, Message, Write, iso

LOCK = "lock:"


class Granted(Value, tag=True):
    """To a run: the commit lock of the repository is its step's."""

    place: str
    lock: int
    repository: str


class Forfeited(Value, tag=True):
    """To a run: its step was silent for too long and lost the lock."""

    place: str
    lock: int


RunMessage = Granted | Forfeited
Command = c.RunCommand | locks.LockCommand | RunMessage | Order
decode_lock = msgspec.json.Decoder(locks.Lock).decode
decode_to_lock = msgspec.json.Decoder(locks.LockCommand).decode
decode_to_run = msgspec.json.Decoder(RunMessage).decode


class RunWork:
    """A run in a batch. `kept` is None for one that begins."""

    __slots__ = (
        *("after", "consumed", "effects", "events", "keys", "kept"),
        *("messages", "plan", "priority", "run", "sessions", "stream"),
    )

    def __init__(self, stream: str, plan: Plan, kept: Kept | None, priority: int = 0) -> None:
        self.stream, self.plan, self.kept, self.priority = stream, plan, kept, priority
        self.run: Run | None = kept.run if kept is not None else None
        self.events: tuple[RunEvent, ...] = ()
        self.effects: tuple[RunEffect, ...] = ()
        self.sessions: dict[int, str] = {}
        self.keys: tuple[KeyRow, ...] = ()
        self.consumed: tuple[str, ...] = ()
        self.messages: tuple[Message, ...] = ()
        self.after: Kept | None = None

    def take(self, command: c.RunCommand, now: datetime) -> Refusal | None:
        if self.kept is not None and now < self.kept.at:
            now = self.kept.at  # no event is before the one before it, whatever the clocks say
        decision, self.run = step(self.plan, self.run, command, now)
        self.events += decision.events
        self.effects += decision.effects
        return decision.refusal

    def command(self, message: RunMessage) -> c.RunCommand | None:
        """What a message means to the run as it stands; None if it means nothing any more."""
        token = self.run.tokens.get(message.place) if self.run is not None else None
        holds = token is not None and token.lock == message.lock
        if isinstance(message, Granted):
            return None if holds else c.GrantLock(place=message.place, lock=message.lock)
        if token is None or not holds or token.phase is not CLAIMED:
            return None
        return c.Lose(fence=token.fence, reason="the commit lock was lost: no heartbeat in time")

    def write(self) -> Write:
        run = self.run
        assert run is not None, "it has events"
        for n, effect in enumerate(self.effects):
            if isinstance(effect, SeekLock | FreeLock):
                self.messages += (self._to_lock(effect, f"{run.id}.{run.seq}.{n}"),)
        beside = Beside(
            priority=self.priority,
            sessions=self.sessions,
            messages=self.messages,
            consumed=self.consumed,
            keys=self.keys,
        )
        write, self.after = project(self.plan, self.kept, run, self.events, beside)
        return write

    def _to_lock(self, effect: SeekLock | FreeLock, message_id: str) -> Message:
        if isinstance(effect, SeekLock):
            command = locks.Acquire(run=self.stream, step=effect.place)
        else:
            command = locks.Release(run=self.stream, step=effect.place, fence=effect.lock)
        return Message(
            id=message_id,
            target=LOCK + effect.repository,
            body=encode(command).decode(),
            created_at=iso(self.events[-1].at),
        )


class LockWork:
    """A commit lock in a batch."""

    run = None

    def __init__(self, stream: str, row: LockState | None) -> None:
        self.stream, self.row = stream, row
        self.lock = locks.Lock(repository=stream.removeprefix(LOCK))
        if row is not None:
            self.lock = decode_lock(row.state)
        self.seq = row.seq if row is not None else 0
        self.events: tuple[locks.LockEvent, ...] = ()
        self.effects: tuple[locks.LockEffect, ...] = ()
        self.keys: tuple[KeyRow, ...] = ()
        self.consumed: tuple[str, ...] = ()
        self.messages: tuple[Message, ...] = ()
        self.after: LockState | None = None

    def extend(self, now: datetime) -> None:
        """As if the holder had just been heard."""
        holder = self.lock.holder
        if holder is not None and now > holder.beat_at:
            run, step = holder.request.run, holder.request.step
            heard = locks.LockExtended(run=run, step=step, fence=holder.fence, at=now)
            self.lock = locks.evolve(self.lock, heard)
            self.events += (heard,)

    def take(self, command: locks.LockCommand, now: datetime) -> Refusal | None:
        decision = locks.decide(self.lock, command, now)
        for event in decision.events:
            self.lock = locks.evolve(self.lock, event)
        self.events += decision.events
        self.effects += decision.effects
        return decision.refusal

    def write(self) -> Write:
        head = self.row.head if self.row is not None else START
        seq = self.seq + len(self.events)
        body = encode(self.events).decode()
        at = iso(self.events[-1].at)
        entry = Entry(
            stream=self.stream,
            seq=seq,
            count=len(self.events),
            body=body,
            hash=entry_hash(head, self.stream, seq, body),
        )
        self.messages += tuple(
            self._to_run(effect, f"{self.stream}.{seq}.{n}", at)
            for n, effect in enumerate(self.effects)
        )
        self.after = lock_row(self.lock, seq, entry.hash, at)
        return Write(
            expected=head,
            entry=entry,
            subject=self.after,
            messages=self.messages,
            consumed=self.consumed,
            keys=self.keys,
        )

    def _to_run(self, effect: locks.LockEffect, message_id: str, at: str) -> Message:
        if isinstance(effect, locks.TellGranted):
            repository = self.lock.repository
            message = Granted(place=effect.step, lock=effect.fence, repository=repository)
        else:
            message = Forfeited(place=effect.step, lock=effect.fence)
        body = encode(message).decode()
        return Message(id=message_id, target=effect.run, body=body, created_at=at)


Work = RunWork | LockWork | ChannelWork


def lock_row(lock: locks.Lock, seq: int, head: bytes, at: str) -> LockState:
    """A lock as it is stored after an entry."""
    holder, due = lock.holder, locks.next_due(lock)
    return LockState(
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


def rested(kept: Kept) -> bool:
    """Whether nothing will come of the run by itself for a long time."""
    status = kept.run.status
    if status is RUNNING:
        return False
    # what is in hand when it is paused comes back
    return status != "paused" or all(t.phase is not CLAIMED for t in kept.run.tokens.values())
