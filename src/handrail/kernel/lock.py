"""The commit lock of one repository (L12.2-L12.6): who may commit now, who is next.

Rules
1. One holder per repository, or none (L12.2). Waiting requests are granted strictly in the order in
   which they asked (L12.3): only the head of the queue is ever granted, so nobody is overtaken,
   whatever files are wanted. While somebody waits the lock is never free.
2. Every grant has a new fence, larger than all before. A heartbeat or release must name run, step
   and fence of the holder; any other is late or foreign, is refused, and changes nothing.
3. A holder that is silent for `stale_seconds` has lost the lock (L12.5). Every decision looks at
   the deadline first: a late heartbeat finds expiry and next grant recorded, and is refused.
4. A request declares the files it will touch (L12.6); no declaration means the whole repository,
   a name that ends in "/" all below it. A release that touched more is refused: the lock stays, and
   its holder may release with what it declared, or with nothing, which gives the work up.
5. Asking, releasing or withdrawing twice changes nothing the second time.

Theory: a request, known by run and step, is in one Place; TRANSITIONS says which event moves it
where, and `evolve` accepts no other. `step` tells apart two commit steps of one run.

          ABSENT --LockRequested--> WAITING --LockGranted--> HOLDING --LockExtended--> HOLDING
    WAITING or HOLDING --LockWithdrawn--> ABSENT     HOLDING --LockReleased, LockExpired--> ABSENT

On a conflict (L12.7) the holder keeps the lock, pulls afresh and tries again under the same fence:
a lock given back first would let the next commit cause the next conflict.

Not here: git, the retries on conflict, who may commit at all, and how long a step may take (the
run's clocks end it with Withdraw).
"""

from datetime import datetime, timedelta
from enum import StrEnum
from functools import reduce
from typing import assert_never

from msgspec.structs import replace

from handrail.kernel.decision import Decision, Refusal, Value

STALE_SECONDS = 300
QUEUE_MAX = 1_000
FILES_MAX = 10_000
PATH_CHARS_MAX = 4_096
NAMED_MAX = 5  # files in a refusal


class Request(Value, frozen=True, kw_only=True):
    """Somebody's wish for the lock. `files` is sorted; empty means the whole repository."""

    run: str
    step: str = ""
    agent: str = ""
    files: tuple[str, ...] = ()
    asked_at: datetime


class Holder(Value, frozen=True, kw_only=True):
    """The request that holds the lock, and the grant's fence. A grant counts as a heartbeat."""

    request: Request
    fence: int
    granted_at: datetime
    beat_at: datetime


class Lock(Value, frozen=True, kw_only=True):
    """The lock of one repository. `fence` is the last one given, `released` the last release."""

    repository: str
    stale_seconds: int = STALE_SECONDS
    queue_max: int = QUEUE_MAX
    fence: int = 0
    holder: Holder | None = None
    queue: tuple[Request, ...] = ()
    released: tuple[str, str, int] | None = None


class _Tagged(Value, frozen=True, kw_only=True, tag=True, tag_field="type"):
    """Base of commands, events and effects: on the wire they carry their class's name."""


class _OfStep(_Tagged, frozen=True, kw_only=True):
    run: str
    step: str = ""


class _OfGrant(_OfStep, frozen=True, kw_only=True):
    fence: int


class Acquire(_OfStep, frozen=True, kw_only=True):
    """Ask for the lock, or for a place in the queue."""

    agent: str = ""
    files: tuple[str, ...] = ()


class Heartbeat(_OfGrant, frozen=True, kw_only=True):
    """The holder is alive."""


class Release(_OfGrant, frozen=True, kw_only=True):
    """The holder is done; `touched` are the files of its commit."""

    touched: tuple[str, ...] = ()


class Withdraw(_Tagged, frozen=True, kw_only=True):
    """The run no longer wants the lock for this step; with no step, for none of its steps."""

    # No fence: this comes from the run itself (ended, moved, timed out), never from a worker.
    run: str
    step: str | None = None


class Tick(_Tagged, frozen=True, kw_only=True):
    """Time has passed."""


LockCommand = Acquire | Heartbeat | Release | Withdraw | Tick


class LockRequested(_OfStep, frozen=True, kw_only=True):
    agent: str = ""
    files: tuple[str, ...] = ()
    at: datetime


class LockGranted(_OfGrant, frozen=True, kw_only=True):
    at: datetime


class LockExtended(_OfGrant, frozen=True, kw_only=True):
    at: datetime


class LockReleased(_OfGrant, frozen=True, kw_only=True):
    touched: tuple[str, ...] = ()
    at: datetime


class LockExpired(_OfGrant, frozen=True, kw_only=True):
    at: datetime


class LockWithdrawn(_OfStep, frozen=True, kw_only=True):
    at: datetime


LockEvent = LockRequested | LockGranted | LockExtended | LockReleased | LockExpired | LockWithdrawn


class TellGranted(_OfGrant, frozen=True, kw_only=True):
    """Tell the run that its step may commit now, and when a silent holder loses the lock."""

    expires_at: datetime


class TellLost(_OfGrant, frozen=True, kw_only=True):
    """Tell the run that its step was silent for too long and lost the lock."""


LockEffect = TellGranted | TellLost
LockDecision = Decision[LockEvent, LockEffect]


class Place(StrEnum):
    """Where a request stands."""

    ABSENT = "absent"
    WAITING = "waiting"
    HOLDING = "holding"


TRANSITIONS: dict[Place, dict[type[LockEvent], Place]] = {
    Place.ABSENT: {LockRequested: Place.WAITING},
    Place.WAITING: {LockGranted: Place.HOLDING, LockWithdrawn: Place.ABSENT},
    Place.HOLDING: {
        LockExtended: Place.HOLDING,
        LockReleased: Place.ABSENT,
        LockExpired: Place.ABSENT,
        LockWithdrawn: Place.ABSENT,
    },
}


def place(lock: Lock, run: str, step: str = "") -> Place:
    """Say where the request of this run and step stands."""
    if lock.holder and _key(lock.holder.request) == (run, step):
        return Place.HOLDING
    return Place.WAITING if (run, step) in map(_key, lock.queue) else Place.ABSENT


def next_due(lock: Lock) -> datetime | None:
    """Return when the holder is stale, if there is one."""
    return lock.holder and lock.holder.beat_at + timedelta(seconds=lock.stale_seconds)


def decide(lock: Lock, command: LockCommand, now: datetime) -> LockDecision:
    """Answer a command: first what time has done, then the command, then the next grant."""
    lock, events = _settled(lock, _stale(lock, now), now)
    answer = _answer(lock, command, now)
    if isinstance(answer, Refusal):
        return Decision(events=events, effects=_effects(lock, events), refusal=answer)
    lock, more = _settled(lock, answer, now)
    return Decision(events=events + more, effects=_effects(lock, events + more))


def evolve(lock: Lock, event: LockEvent) -> Lock:
    """Apply one event; the only way in which a lock changes, live and in replay."""
    at_place = place(lock, event.run, event.step)
    assert type(event) in TRANSITIONS[at_place], f"{event!r} for a request that is {at_place}"
    match event:
        case LockRequested(run=run, step=step, agent=agent, files=files, at=at):
            request = Request(run=run, step=step, agent=agent, files=files, asked_at=at)
            return replace(lock, queue=(*lock.queue, request))
        case LockGranted(fence=fence, at=at):
            head, *rest = lock.queue
            assert lock.holder is None, f"{event!r} while {lock.holder!r} holds"
            assert _key(head) == (event.run, event.step), f"{event!r} overtakes {head!r}"
            assert fence > lock.fence, f"{event!r} does not raise the fence {lock.fence}"
            holder = Holder(request=head, fence=fence, granted_at=at, beat_at=at)
            return replace(lock, fence=fence, holder=holder, queue=tuple(rest))
        case LockExtended(at=at):
            assert lock.holder is not None
            return replace(lock, holder=replace(lock.holder, beat_at=at))
        case LockReleased(run=run, step=step, fence=fence):
            return replace(lock, holder=None, released=(run, step, fence))
        case LockExpired():
            return replace(lock, holder=None)
        case LockWithdrawn(run=run, step=step):
            left = tuple(request for request in lock.queue if _key(request) != (run, step))
            holder = None if at_place is Place.HOLDING else lock.holder
            return replace(lock, holder=holder, queue=left)
        case _:
            assert_never(event)


def check(lock: Lock) -> tuple[str, ...]:
    """Name every invariant that this lock breaks; nothing between two commits may break one."""
    keys = [_key(request) for request in _requests(lock)]
    rules = {
        "a free lock has nobody waiting": lock.holder is not None or not lock.queue,
        "the holder has the last fence": lock.holder is None or lock.holder.fence == lock.fence,
        "a request stands in one place": len(set(keys)) == len(keys),
        "the queue is bounded": len(lock.queue) <= lock.queue_max,
        "the last release is not newer": not lock.released or lock.released[2] <= lock.fence,
    }
    return tuple(rule for rule, holds in rules.items() if not holds)


def _answer(lock: Lock, command: LockCommand, now: datetime) -> tuple[LockEvent, ...] | Refusal:
    match command:
        case Acquire():
            return _acquire(lock, command, now)
        case Heartbeat(run=run, step=step, fence=fence):
            holder = _holder_or_refusal(lock, run, step, fence, "send a heartbeat for")
            if isinstance(holder, Refusal):
                return holder
            # The same beat again, or a clock that went back, changes nothing.
            extended = LockExtended(run=run, step=step, fence=fence, at=now)
            return (extended,) if now > holder.beat_at else ()
        case Release():
            return _release(lock, command, now)
        case Withdraw(run=run, step=step):
            return tuple(
                LockWithdrawn(run=run, step=request.step, at=now)
                for request in _requests(lock)
                if request.run == run and step in (None, request.step)
            )
        case Tick():
            return ()
        case _:
            assert_never(command)


def _acquire(lock: Lock, command: Acquire, now: datetime) -> tuple[LockEvent, ...] | Refusal:
    what = f"{_who(command.run, command.step)} cannot get the commit lock of {lock.repository!r}"
    invalid = [path for path in command.files if not _is_path(path)]
    if invalid or len(command.files) > FILES_MAX:
        named = _named(invalid) or f"{len(command.files)} are too many"
        return Refusal(
            code="lock_files_invalid",
            message=f"{what} for these files: {named}",
            hint=f"declare at most {FILES_MAX} paths as git writes them (a/b.py, or a/ for all"
            " below it), none of them in .git",
        )
    files = tuple(sorted(set(command.files)))
    key = (command.run, command.step)
    earlier = next((known for known in _requests(lock) if _key(known) == key), None)
    if earlier and earlier.files == files:
        return ()
    if earlier:
        return Refusal(
            code="lock_intent_changed",
            message=f"{what} for other files: it has already asked for"
            f" {_named(earlier.files) or 'the whole repository'}",
            hint="withdraw the earlier request, then ask again",
        )
    if lock.holder and len(lock.queue) >= lock.queue_max:
        return Refusal(
            code="lock_queue_full",
            message=f"{what}: {len(lock.queue)} requests are waiting already",
            hint="ask again when some are done, or raise the queue's limit",
        )
    return (LockRequested(run=key[0], step=key[1], agent=command.agent, files=files, at=now),)


def _release(lock: Lock, command: Release, now: datetime) -> tuple[LockEvent, ...] | Refusal:
    run, step, fence = command.run, command.step, command.fence
    if lock.released == (run, step, fence):
        return ()
    holder = _holder_or_refusal(lock, run, step, fence, "release")
    if isinstance(holder, Refusal):
        return holder
    intent = frozenset(holder.request.files)
    outside = [path for path in command.touched if not _is_path(path) or not _covers(intent, path)]
    if outside:
        return Refusal(
            code="lock_files_outside_intent",
            message=f"{_who(run, step)} cannot release the commit lock of {lock.repository!r}:"
            f" it touched files that it had not declared: {_named(outside)}",
            hint="release with a commit of the declared files only, or with no files to give up,"
            " and ask again with all files declared",
        )
    touched = tuple(sorted(set(command.touched)))
    return (LockReleased(run=run, step=step, fence=fence, touched=touched, at=now),)


def _holder_or_refusal(lock: Lock, run: str, step: str, fence: int, what: str) -> Holder | Refusal:
    holder = lock.holder
    if holder and (_key(holder.request), holder.fence) == ((run, step), fence):
        return holder
    by = f"{_who(*_key(holder.request))} with fence {holder.fence}" if holder else "nobody"
    return Refusal(
        code="lock_not_held",
        message=f"{_who(run, step)} cannot {what} the commit lock of {lock.repository!r}"
        f" with fence {fence}: it is held by {by}",
        hint="stop this commit and drop its result; ask for the lock again for a new fence",
    )


def _stale(lock: Lock, now: datetime) -> tuple[LockEvent, ...]:
    due = next_due(lock)
    if not lock.holder or not due or now < due:
        return ()
    run, step = _key(lock.holder.request)
    return (LockExpired(run=run, step=step, fence=lock.holder.fence, at=now),)


def _settled(
    lock: Lock, events: tuple[LockEvent, ...], now: datetime
) -> tuple[Lock, tuple[LockEvent, ...]]:
    """Apply the events; a lock that is free then goes to the head of the queue."""
    lock = reduce(evolve, events, lock)
    if lock.holder or not lock.queue:
        return lock, events
    run, step = _key(lock.queue[0])
    granted = LockGranted(run=run, step=step, fence=lock.fence + 1, at=now)
    return evolve(lock, granted), (*events, granted)


def _effects(lock: Lock, events: tuple[LockEvent, ...]) -> tuple[LockEffect, ...]:
    """Tell those who got or lost the lock; whoever asked, released or withdrew knows it."""
    stale = timedelta(seconds=lock.stale_seconds)
    return tuple(
        TellGranted(run=event.run, step=event.step, fence=event.fence, expires_at=event.at + stale)
        if isinstance(event, LockGranted)
        else TellLost(run=event.run, step=event.step, fence=event.fence)
        for event in events
        if isinstance(event, LockGranted | LockExpired)
    )


def _is_path(path: str) -> bool:
    """Accept only what git itself writes, so that one file has one name."""
    parts = path.removesuffix("/").split("/")
    plain = not {"", ".", ".."} & set(parts) and "\\" not in path and "\0" not in path
    return plain and parts[0].casefold() != ".git" and len(path) <= PATH_CHARS_MAX


def _covers(intent: frozenset[str], path: str) -> bool:
    parts = path.split("/")
    above = ("/".join(parts[:depth]) + "/" for depth in range(1, len(parts)))
    return not intent or path in intent or any(folder in intent for folder in above)


def _requests(lock: Lock) -> tuple[Request, ...]:
    return ((lock.holder.request,) if lock.holder else ()) + lock.queue


def _key(request: Request) -> tuple[str, str]:
    return request.run, request.step


def _who(run: str, step: str) -> str:
    return f"run {run!r}, step {step!r}," if step else f"run {run!r}"


def _named(paths: list[str] | tuple[str, ...]) -> str:
    more = f" and {len(paths) - NAMED_MAX} more" if len(paths) > NAMED_MAX else ""
    return ", ".join(repr(path[:200]) for path in paths[:NAMED_MAX]) + more
