"""The commit lock of one repository (L12.2-L12.6): its holder and its queue.

Rules
1. A repository has at most one holder (L12.2). Waiting requests are granted strictly in order of
   arrival (L12.3): only the head of the queue is ever granted, so no request overtakes another,
   whatever files it declares. While a request waits, the lock is never free.
2. Every grant has a new fence, larger than all before. A heartbeat or release must name run, step
   and fence of the holder; any other is late or foreign, is refused, and changes nothing.
3. A holder that is silent for `stale_seconds` loses the lock (L12.5). Every decision checks the
   deadline first: for a late heartbeat it records expiry and next grant, and refuses it.
4. A request declares the files it will touch (L12.6); no declaration means the whole repository,
   a name that ends in "/" everything below it. A release that touched more is refused: the holder
   keeps the lock and may release with declared files, or with none, which gives the work up.
5. A repeated acquire, release or withdraw changes nothing.

Theory: run and step identify a request. It is in one LockRequestState; TRANSITIONS lists the events
that move it, and `evolve` accepts no other. `step` distinguishes two commit steps of one run.

          ABSENT --LockRequested--> WAITING --LockGranted--> HOLDING --LockExtended--> HOLDING
    WAITING or HOLDING --LockWithdrawn--> ABSENT     HOLDING --LockReleased, LockExpired--> ABSENT

On a conflict (L12.7) the holder keeps the lock, pulls again and retries under the same fence: if it
released the lock first, the next commit would cause the next conflict.

Not here: git, the retries on conflict, permission to commit, and how long a step may take (the
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
NAMED_FILES_MAX = 5  # files in a refusal


class LockRequest(Value, frozen=True, kw_only=True):
    """A request for the lock. `files` is sorted; empty means the whole repository."""

    run: str
    step: str = ""
    agent: str = ""
    files: tuple[str, ...] = ()
    asked_at: datetime


class LockHolder(Value, frozen=True, kw_only=True):
    """The request that holds the lock, and the grant's fence. A grant counts as a heartbeat."""

    request: LockRequest
    fence: int
    granted_at: datetime
    beat_at: datetime


class CommitLock(Value, frozen=True, kw_only=True):
    """The lock of one repository. `fence` is the last fence issued, `released` the last release."""

    repository: str
    stale_seconds: int = STALE_SECONDS
    queue_max: int = QUEUE_MAX
    fence: int = 0
    holder: LockHolder | None = None
    queue: tuple[LockRequest, ...] = ()
    released: tuple[str, str, int] | None = None


class _LockValue(Value, frozen=True, kw_only=True, tag=True, tag_field="type"):
    """Base of commands, events and effects: their JSON carries the class name."""


class _StepValue(_LockValue, frozen=True, kw_only=True):
    run: str
    step: str = ""


class _GrantValue(_StepValue, frozen=True, kw_only=True):
    fence: int


class Acquire(_StepValue, frozen=True, kw_only=True):
    """Request the lock; queue if it is held."""

    agent: str = ""
    files: tuple[str, ...] = ()


class Heartbeat(_GrantValue, frozen=True, kw_only=True):
    """The holder is alive."""


class Release(_GrantValue, frozen=True, kw_only=True):
    """The holder is done; `touched` are the files of its commit."""

    touched: tuple[str, ...] = ()


class Withdraw(_LockValue, frozen=True, kw_only=True):
    """The run no longer needs the lock for this step; without a step, for any of its steps."""

    # No fence: this comes from the run itself (ended, moved, timed out), never from a worker.
    run: str
    step: str | None = None


class LockTick(_LockValue, frozen=True, kw_only=True, tag="Tick"):
    """Time has passed."""


LockCommand = Acquire | Heartbeat | Release | Withdraw | LockTick


class LockRequested(_StepValue, frozen=True, kw_only=True):
    agent: str = ""
    files: tuple[str, ...] = ()
    at: datetime


class LockGranted(_GrantValue, frozen=True, kw_only=True):
    at: datetime


class LockExtended(_GrantValue, frozen=True, kw_only=True):
    at: datetime


class LockReleased(_GrantValue, frozen=True, kw_only=True):
    touched: tuple[str, ...] = ()
    at: datetime


class LockExpired(_GrantValue, frozen=True, kw_only=True):
    at: datetime


class LockWithdrawn(_StepValue, frozen=True, kw_only=True):
    at: datetime


LockEvent = LockRequested | LockGranted | LockExtended | LockReleased | LockExpired | LockWithdrawn


class NotifyLockGranted(_GrantValue, frozen=True, kw_only=True):
    """Tell the run that its step may commit now, and when a silent holder loses the lock."""

    expires_at: datetime


class NotifyLockLost(_GrantValue, frozen=True, kw_only=True):
    """Tell the run that its step was silent for too long and lost the lock."""


LockEffect = NotifyLockGranted | NotifyLockLost
LockDecision = Decision[LockEvent, LockEffect]


class LockRequestState(StrEnum):
    """The state of a request."""

    ABSENT = "absent"
    WAITING = "waiting"
    HOLDING = "holding"


TRANSITIONS: dict[LockRequestState, dict[type[LockEvent], LockRequestState]] = {
    LockRequestState.ABSENT: {LockRequested: LockRequestState.WAITING},
    LockRequestState.WAITING: {
        LockGranted: LockRequestState.HOLDING,
        LockWithdrawn: LockRequestState.ABSENT,
    },
    LockRequestState.HOLDING: {
        LockExtended: LockRequestState.HOLDING,
        LockReleased: LockRequestState.ABSENT,
        LockExpired: LockRequestState.ABSENT,
        LockWithdrawn: LockRequestState.ABSENT,
    },
}


def request_state(lock: CommitLock, run: str, step: str = "") -> LockRequestState:
    """Return the state of the request of this run and step."""
    if lock.holder and _request_key(lock.holder.request) == (run, step):
        return LockRequestState.HOLDING
    return (
        LockRequestState.WAITING
        if (run, step) in map(_request_key, lock.queue)
        else LockRequestState.ABSENT
    )


def next_due(lock: CommitLock) -> datetime | None:
    """Return when the holder becomes stale; None without a holder."""
    return lock.holder and lock.holder.beat_at + timedelta(seconds=lock.stale_seconds)


def decide(lock: CommitLock, command: LockCommand, now: datetime) -> LockDecision:
    """Decide a command: first the passed deadline, then the command, then the next grant."""
    lock, events = _apply_and_grant(lock, _expire_stale(lock, now), now)
    response = _handle(lock, command, now)
    if isinstance(response, Refusal):
        return Decision(events=events, effects=_effects(lock, events), refusal=response)
    lock, later_events = _apply_and_grant(lock, response, now)
    return Decision(events=events + later_events, effects=_effects(lock, events + later_events))


def evolve(lock: CommitLock, event: LockEvent) -> CommitLock:
    """Apply one event; a lock changes in no other way, live or in replay."""
    state = request_state(lock, event.run, event.step)
    assert type(event) in TRANSITIONS[state], f"{event!r} for a request that is {state}"
    match event:
        case LockRequested(run=run, step=step, agent=agent, files=files, at=at):
            request = LockRequest(run=run, step=step, agent=agent, files=files, asked_at=at)
            return replace(lock, queue=(*lock.queue, request))
        case LockGranted(fence=fence, at=at):
            head, *rest = lock.queue
            assert lock.holder is None, f"{event!r} while {lock.holder!r} holds"
            assert _request_key(head) == (event.run, event.step), f"{event!r} overtakes {head!r}"
            assert fence > lock.fence, f"{event!r} does not raise the fence {lock.fence}"
            return replace(
                lock,
                fence=fence,
                holder=LockHolder(request=head, fence=fence, granted_at=at, beat_at=at),
                queue=tuple(rest),
            )
        case LockExtended(at=at):
            assert lock.holder is not None
            return replace(lock, holder=replace(lock.holder, beat_at=at))
        case LockReleased(run=run, step=step, fence=fence):
            return replace(lock, holder=None, released=(run, step, fence))
        case LockExpired():
            return replace(lock, holder=None)
        case LockWithdrawn(run=run, step=step):
            return replace(
                lock,
                holder=None if state is LockRequestState.HOLDING else lock.holder,
                queue=tuple(
                    request for request in lock.queue if _request_key(request) != (run, step)
                ),
            )
        case _:
            assert_never(event)


def check_invariants(lock: CommitLock) -> tuple[str, ...]:
    """Return every invariant that this lock breaks; between two commits there must be none."""
    keys = [_request_key(request) for request in _all_requests(lock)]
    rules = {
        "a free lock has nobody waiting": lock.holder is not None or not lock.queue,
        "the holder has the last fence": lock.holder is None or lock.holder.fence == lock.fence,
        "a request stands in one place": len(set(keys)) == len(keys),
        "the queue is bounded": len(lock.queue) <= lock.queue_max,
        "the last release is not newer": not lock.released or lock.released[2] <= lock.fence,
    }
    return tuple(rule for rule, holds in rules.items() if not holds)


def _handle(
    lock: CommitLock, command: LockCommand, now: datetime
) -> tuple[LockEvent, ...] | Refusal:
    match command:
        case Acquire():
            return _acquire(lock, command, now)
        case Heartbeat(run=run, step=step, fence=fence):
            holder = _require_holder(lock, run, step, fence, "send a heartbeat for")
            if isinstance(holder, Refusal):
                return holder
            # A repeated heartbeat, or a clock that went back, changes nothing.
            extended = LockExtended(run=run, step=step, fence=fence, at=now)
            return (extended,) if now > holder.beat_at else ()
        case Release():
            return _release(lock, command, now)
        case Withdraw(run=run, step=step):
            return tuple(
                LockWithdrawn(run=run, step=request.step, at=now)
                for request in _all_requests(lock)
                if request.run == run and step in (None, request.step)
            )
        case LockTick():
            return ()
        case _:
            assert_never(command)


def _acquire(lock: CommitLock, command: Acquire, now: datetime) -> tuple[LockEvent, ...] | Refusal:
    prefix = (
        f"{_describe_step(command.run, command.step)} cannot get the commit lock of "
        f"{lock.repository!r}"
    )
    invalid = [path for path in command.files if not _is_git_path(path)]
    if invalid or len(command.files) > FILES_MAX:
        listed = _list_paths(invalid) or f"{len(command.files)} are too many"
        return Refusal(
            code="lock_files_invalid",
            message=f"{prefix} for these files: {listed}",
            hint=f"declare at most {FILES_MAX} paths as git writes them (a/b.py, or a/ for all"
            " below it), none of them in .git",
        )
    files = tuple(sorted(set(command.files)))
    key = (command.run, command.step)
    earlier = next(
        (request for request in _all_requests(lock) if _request_key(request) == key), None
    )
    if earlier and earlier.files == files:
        return ()
    if earlier:
        return Refusal(
            code="lock_intent_changed",
            message=f"{prefix} for other files: it has already asked for"
            f" {_list_paths(earlier.files) or 'the whole repository'}",
            hint="withdraw the earlier request, then ask again",
        )
    if lock.holder and len(lock.queue) >= lock.queue_max:
        return Refusal(
            code="lock_queue_full",
            message=f"{prefix}: {len(lock.queue)} requests are waiting already",
            hint="ask again when some are done, or raise the queue's limit",
        )
    return (LockRequested(run=key[0], step=key[1], agent=command.agent, files=files, at=now),)


def _release(lock: CommitLock, command: Release, now: datetime) -> tuple[LockEvent, ...] | Refusal:
    run, step, fence = command.run, command.step, command.fence
    if lock.released == (run, step, fence):
        return ()
    holder = _require_holder(lock, run, step, fence, "release")
    if isinstance(holder, Refusal):
        return holder
    intent = frozenset(holder.request.files)
    outside = [
        path for path in command.touched if not _is_git_path(path) or not _covers(intent, path)
    ]
    if outside:
        return Refusal(
            code="lock_files_outside_intent",
            message=f"{_describe_step(run, step)} cannot release the commit lock of "
            f"{lock.repository!r}:"
            f" it touched files that it had not declared: {_list_paths(outside)}",
            hint="release with a commit of the declared files only, or with no files to give up,"
            " and ask again with all files declared",
        )
    return (
        LockReleased(
            run=run, step=step, fence=fence, touched=tuple(sorted(set(command.touched))), at=now
        ),
    )


def _require_holder(
    lock: CommitLock, run: str, step: str, fence: int, action: str
) -> LockHolder | Refusal:
    holder = lock.holder
    if holder and (_request_key(holder.request), holder.fence) == ((run, step), fence):
        return holder
    holder_text = (
        f"{_describe_step(*_request_key(holder.request))} with fence {holder.fence}"
        if holder
        else "nobody"
    )
    return Refusal(
        code="lock_not_held",
        message=f"{_describe_step(run, step)} cannot {action} the commit lock of "
        f"{lock.repository!r}"
        f" with fence {fence}: it is held by {holder_text}",
        hint="stop this commit and drop its result; ask for the lock again for a new fence",
    )


def _expire_stale(lock: CommitLock, now: datetime) -> tuple[LockEvent, ...]:
    due = next_due(lock)
    if not lock.holder or not due or now < due:
        return ()
    run, step = _request_key(lock.holder.request)
    return (LockExpired(run=run, step=step, fence=lock.holder.fence, at=now),)


def _apply_and_grant(
    lock: CommitLock, events: tuple[LockEvent, ...], now: datetime
) -> tuple[CommitLock, tuple[LockEvent, ...]]:
    """Apply the events, then grant a free lock to the head of the queue."""
    lock = reduce(evolve, events, lock)
    if lock.holder or not lock.queue:
        return lock, events
    run, step = _request_key(lock.queue[0])
    granted = LockGranted(run=run, step=step, fence=lock.fence + 1, at=now)
    return evolve(lock, granted), (*events, granted)


def _effects(lock: CommitLock, events: tuple[LockEvent, ...]) -> tuple[LockEffect, ...]:
    """Return a notification for each grant and expiry; other events are the caller's own."""
    stale = timedelta(seconds=lock.stale_seconds)
    return tuple(
        NotifyLockGranted(
            run=event.run, step=event.step, fence=event.fence, expires_at=event.at + stale
        )
        if isinstance(event, LockGranted)
        else NotifyLockLost(run=event.run, step=event.step, fence=event.fence)
        for event in events
        if isinstance(event, LockGranted | LockExpired)
    )


def _is_git_path(path: str) -> bool:
    """Whether git itself would write this path, so that one file has one name."""
    parts = path.removesuffix("/").split("/")
    is_normal = not {"", ".", ".."} & set(parts) and "\\" not in path and "\0" not in path
    return is_normal and parts[0].casefold() != ".git" and len(path) <= PATH_CHARS_MAX


def _covers(intent: frozenset[str], path: str) -> bool:
    parts = path.split("/")
    parents = ("/".join(parts[:depth]) + "/" for depth in range(1, len(parts)))
    return not intent or path in intent or any(folder in intent for folder in parents)


def _all_requests(lock: CommitLock) -> tuple[LockRequest, ...]:
    return ((lock.holder.request,) if lock.holder else ()) + lock.queue


def _request_key(request: LockRequest) -> tuple[str, str]:
    return request.run, request.step


def _describe_step(run: str, step: str) -> str:
    return f"run {run!r}, step {step!r}," if step else f"run {run!r}"


def _list_paths(paths: list[str] | tuple[str, ...]) -> str:
    more = f" and {len(paths) - NAMED_FILES_MAX} more" if len(paths) > NAMED_FILES_MAX else ""
    return ", ".join(repr(path[:200]) for path in paths[:NAMED_FILES_MAX]) + more
