"""The commit lock of a repository (L12.2-L12.6), alone and under a random walk."""

from datetime import UTC, datetime, timedelta
from functools import reduce

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from handrail.kernel.lock import (
    FILES_MAX,
    PATH_CHARS_MAX,
    QUEUE_MAX,
    STALE_SECONDS,
    TRANSITIONS,
    Acquire,
    CommitLock,
    Heartbeat,
    LockCommand,
    LockDecision,
    LockEffect,
    LockEvent,
    LockExpired,
    LockExtended,
    LockGranted,
    LockHolder,
    LockReleased,
    LockRequest,
    LockRequested,
    LockRequestState,
    LockTick,
    LockWithdrawn,
    NotifyLockGranted,
    NotifyLockLost,
    Release,
    Withdraw,
    check_invariants,
    decide,
    evolve,
    next_due,
    request_state,
)

T0 = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
FREE = CommitLock(repository="shop")


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def take(
    lock: CommitLock, command: LockCommand, seconds: float = 0
) -> tuple[CommitLock, LockDecision]:
    """Decide and apply; whatever happens the invariants hold and the given lock is untouched."""
    before = msgspec.json.encode(lock)
    decision = decide(lock, command, at(seconds))
    after = reduce(evolve, decision.events, lock)
    assert msgspec.json.encode(lock) == before
    assert check_invariants(after) == ()
    return after, decision


def given(*commands: LockCommand, lock: CommitLock = FREE) -> CommitLock:
    for command in commands:
        lock, decision = take(lock, command)
        assert decision.refusal is None
    return lock


def refused(lock: CommitLock, command: LockCommand, code: str, seconds: float = 0) -> str:
    """The command is refused and nothing at all is recorded; returns the message."""
    _, decision = take(lock, command, seconds)
    assert decision.events == ()
    assert decision.effects == ()
    assert decision.refusal is not None
    assert decision.refusal.code == code
    assert decision.refusal.hint
    assert "'shop'" in decision.refusal.message
    assert not isinstance(command, LockTick)
    assert repr(command.run) in decision.refusal.message
    return decision.refusal.message


def holder_of(lock: CommitLock) -> tuple[str, int] | None:
    return lock.holder and (lock.holder.request.run, lock.holder.fence)


def test_the_table_names_every_place_and_every_event():
    assert set(TRANSITIONS) == set(LockRequestState)
    events = {event for moves in TRANSITIONS.values() for event in moves}
    assert events == set(LockEvent.__args__)


@pytest.mark.requirement("L12.2")
def test_a_free_lock_is_granted_at_once_with_a_fence():
    lock, decision = take(FREE, Acquire(run="r1", agent="ann", files=("b.py", "a.py", "b.py")))
    assert decision == LockDecision(
        events=(
            LockRequested(run="r1", agent="ann", files=("a.py", "b.py"), at=T0),
            LockGranted(run="r1", fence=1, at=T0),
        ),
        effects=(NotifyLockGranted(run="r1", fence=1, expires_at=at(STALE_SECONDS)),),
    )
    assert holder_of(lock) == ("r1", 1)
    assert request_state(lock, "r1") is LockRequestState.HOLDING


@pytest.mark.requirement("L12.2", "L12.6")
def test_a_second_run_waits_even_for_other_files():
    lock = given(Acquire(run="r1", files=("a.py",)))
    lock, decision = take(lock, Acquire(run="r2", files=("b.py",)))
    assert decision.effects == ()
    assert holder_of(lock) == ("r1", 1)
    assert request_state(lock, "r2") is LockRequestState.WAITING
    assert request_state(lock, "r3") is LockRequestState.ABSENT


@pytest.mark.requirement("L12.3", "L12.4")
def test_a_release_passes_the_lock_to_the_one_who_asked_first():
    lock = given(*(Acquire(run=f"r{n}") for n in range(1, 5)))
    for n in range(1, 4):
        lock, decision = take(lock, Release(run=f"r{n}", fence=n, touched=("a.py",)), n)
        assert decision.events == (
            LockReleased(run=f"r{n}", fence=n, touched=("a.py",), at=at(n)),
            LockGranted(run=f"r{n + 1}", fence=n + 1, at=at(n)),
        )
        assert [effect.run for effect in decision.effects] == [f"r{n + 1}"]
    lock, _ = take(lock, Release(run="r4", fence=4), 5)
    assert lock.holder is None
    assert next_due(lock) is None


@pytest.mark.requirement("L12.3", "L12.6")
def test_a_request_for_files_of_an_earlier_waiting_run_keeps_its_place():
    lock = given(
        Acquire(run="r1", files=("x.py",)),
        Acquire(run="r2", files=("a.py",)),
        Acquire(run="r3", files=("a.py",)),
        Acquire(run="r4", files=("b.py",)),
    )
    order: list[str] = []
    for _ in range(4):
        assert lock.holder is not None
        order.append(lock.holder.request.run)
        lock = given(Release(run=order[-1], fence=lock.holder.fence), lock=lock)
    assert order == ["r1", "r2", "r3", "r4"]


@pytest.mark.requirement("L12.3")
def test_the_queue_is_bounded():
    small = CommitLock(repository="shop", queue_max=2)
    lock = given(*(Acquire(run=f"r{n}") for n in range(3)), lock=small)
    assert "2 requests are waiting" in refused(lock, Acquire(run="r9"), "lock_queue_full")
    assert FREE.queue_max == QUEUE_MAX == 1_000
    assert holder_of(given(Acquire(run="r1"), lock=CommitLock(repository="shop", queue_max=0)))


@pytest.mark.requirement("L12.3")
def test_asking_twice_changes_nothing():
    lock = given(Acquire(run="r1", files=("a", "b")), Acquire(run="r2"))
    for again in (Acquire(run="r1", files=("b", "a")), Acquire(run="r2", agent="bob")):
        assert take(lock, again, 1) == (lock, LockDecision())


@pytest.mark.requirement("L12.6")
def test_asking_again_for_other_files_is_refused():
    lock = given(Acquire(run="r1", files=("a",)), Acquire(run="r2"))
    assert "'a'" in refused(lock, Acquire(run="r1", files=("b",)), "lock_intent_changed")
    assert "the whole repository" in refused(
        lock, Acquire(run="r2", files=("b",)), "lock_intent_changed"
    )


def test_two_steps_of_one_run_are_two_requests():
    lock = given(Acquire(run="r1", step="left"), Acquire(run="r1", step="right"))
    message = refused(lock, Release(run="r1", step="right", fence=1), "lock_not_held")
    assert message == (
        "run 'r1', step 'right', cannot release the commit lock of 'shop' with fence 1:"
        " it is held by run 'r1', step 'left', with fence 1"
    )
    lock = given(Release(run="r1", step="left", fence=1), lock=lock)
    assert request_state(lock, "r1", "right") is LockRequestState.HOLDING


@pytest.mark.requirement("L12.5")
def test_a_heartbeat_extends_the_lock():
    lock, decision = take(given(Acquire(run="r1")), Heartbeat(run="r1", fence=1), 299)
    assert decision == LockDecision(events=(LockExtended(run="r1", fence=1, at=at(299)),))
    assert next_due(lock) == at(299 + STALE_SECONDS)
    assert take(lock, LockTick(), 598.9)[1] == LockDecision()


@pytest.mark.requirement("L12.5")
def test_the_same_heartbeat_again_or_a_clock_that_went_back_changes_nothing():
    lock, _ = take(given(Acquire(run="r1")), Heartbeat(run="r1", fence=1), 10)
    assert take(lock, Heartbeat(run="r1", fence=1), 10) == (lock, LockDecision())
    assert take(lock, Heartbeat(run="r1", fence=1), 3) == (lock, LockDecision())


@pytest.mark.requirement("L12.5")
def test_five_minutes_without_a_heartbeat_free_the_lock_for_the_next():
    lock = given(Acquire(run="r1"), Acquire(run="r2"))
    assert next_due(lock) == at(300)
    assert take(lock, LockTick(), 299.999) == (lock, LockDecision())
    lock, decision = take(lock, LockTick(), 300)
    assert decision.events == (
        LockExpired(run="r1", fence=1, at=at(300)),
        LockGranted(run="r2", fence=2, at=at(300)),
    )
    assert decision.effects == (
        NotifyLockLost(run="r1", fence=1),
        NotifyLockGranted(run="r2", fence=2, expires_at=at(600)),
    )


@pytest.mark.requirement("L12.5")
def test_how_long_silence_may_last_is_a_setting():
    lock = given(Acquire(run="r1"), lock=CommitLock(repository="shop", stale_seconds=10))
    assert next_due(lock) == at(10)
    assert take(lock, LockTick(), 10)[0].holder is None


@pytest.mark.requirement("L12.5")
def test_one_long_silence_costs_one_holder_the_lock_and_not_the_whole_queue():
    lock = given(Acquire(run="r1"), Acquire(run="r2"), Acquire(run="r3"))
    lock, _ = take(lock, LockTick(), 86_400)
    assert holder_of(lock) == ("r2", 2)
    assert next_due(lock) == at(86_400 + STALE_SECONDS)


@pytest.mark.requirement("L12.5")
@pytest.mark.parametrize("command", [Heartbeat(run="r1", fence=1), Release(run="r1", fence=1)])
def test_a_sign_of_life_after_the_deadline_finds_the_expiry_and_is_refused(command: LockCommand):
    lock = given(Acquire(run="r1"), Acquire(run="r2"))
    lock, decision = take(lock, command, 300)
    assert [type(event) for event in decision.events] == [LockExpired, LockGranted]
    assert [type(effect) for effect in decision.effects] == [NotifyLockLost, NotifyLockGranted]
    assert decision.refusal is not None
    assert decision.refusal.code == "lock_not_held"
    assert "it is held by run 'r2' with fence 2" in decision.refusal.message
    assert holder_of(lock) == ("r2", 2)
    refused(lock, command, "lock_not_held", 301)


@pytest.mark.requirement("L12.5")
def test_a_stale_holder_that_asks_again_goes_to_the_end():
    lock = given(Acquire(run="r1"), Acquire(run="r2"))
    lock, decision = take(lock, Acquire(run="r1"), 300)
    assert [type(event) for event in decision.events] == [LockExpired, LockGranted, LockRequested]
    assert request_state(lock, "r1") is LockRequestState.WAITING
    alone, _ = take(given(Acquire(run="r1")), Acquire(run="r1"), 300)
    assert holder_of(alone) == ("r1", 2)


@pytest.mark.requirement("L12.2", "L12.5")
@pytest.mark.parametrize(
    "command",
    [
        Heartbeat(run="r1", fence=0),
        Heartbeat(run="r1", fence=2),
        Heartbeat(run="r2", fence=1),
        Release(run="r1", fence=2),
        Release(run="r2", fence=1),
        Release(run="r1", step="other", fence=1),
    ],
)
def test_a_foreign_or_old_fence_is_refused_and_changes_nothing(command: LockCommand):
    refused(given(Acquire(run="r1"), Acquire(run="r2")), command, "lock_not_held")


@pytest.mark.requirement("L12.2")
def test_nobody_can_release_a_free_lock():
    assert "held by nobody" in refused(FREE, Release(run="r1", fence=1), "lock_not_held")


@pytest.mark.requirement("L12.4")
def test_releasing_twice_changes_nothing():
    lock = given(Acquire(run="r1"), Acquire(run="r2"), Release(run="r1", fence=1))
    assert take(lock, Release(run="r1", fence=1), 1) == (lock, LockDecision())
    refused(lock, Heartbeat(run="r1", fence=1), "lock_not_held")


@pytest.mark.requirement("L12.2")
def test_a_run_that_asks_again_gets_a_larger_fence_and_the_old_one_is_dead():
    lock = given(Acquire(run="r1"), Withdraw(run="r1"), Acquire(run="r1"))
    assert holder_of(lock) == ("r1", 2)
    refused(lock, Release(run="r1", fence=1), "lock_not_held")


@pytest.mark.requirement("L12.6")
def test_a_release_that_touched_undeclared_files_is_refused_and_the_lock_stays():
    lock = given(Acquire(run="r1", files=("src/a.py", "docs/")), Acquire(run="r2"))
    touched = ("src/a.py", "src/b.py", "docs", "docs2/x", "src/a.py/x", "../a", *"cdefg")
    command = Release(run="r1", fence=1, touched=touched)
    message = refused(lock, command, "lock_files_outside_intent")
    assert "'src/b.py', 'docs', 'docs2/x', 'src/a.py/x', '../a' and 5 more" in message
    assert "'src/a.py'," not in message
    touched = ("docs/deep/er/x.md", "src/a.py")
    after, decision = take(lock, Release(run="r1", fence=1, touched=touched))
    assert decision.refusal is None
    assert holder_of(after) == ("r2", 2)


@pytest.mark.requirement("L12.4", "L12.6")
def test_a_holder_may_always_give_up_by_touching_nothing():
    lock = given(Acquire(run="r1", files=("a",)), Release(run="r1", fence=1))
    assert lock.holder is None


@pytest.mark.requirement("L12.6")
def test_no_declared_files_means_the_whole_repository():
    lock = given(Acquire(run="r1"))
    assert given(Release(run="r1", fence=1, touched=("any/file",)), lock=lock).holder is None


@pytest.mark.requirement("L12.6")
@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "/etc/passwd", "../x", "a/../b", "./a", "a//b", "a\\b", "a\0", ".git/hooks/x"),
        *(".GIT", "a" * (PATH_CHARS_MAX + 1)),
    ],
)
def test_a_file_that_git_would_not_write_so_is_refused(path: str):
    refused(FREE, Acquire(run="r1", files=("ok.py", path)), "lock_files_invalid")
    lock = given(Acquire(run="r1"))
    refused(lock, Release(run="r1", fence=1, touched=(path,)), "lock_files_outside_intent")


@pytest.mark.requirement("L12.6")
def test_the_number_of_declared_files_is_bounded():
    files = tuple(str(n) for n in range(FILES_MAX + 1))
    assert "10001 are too many" in refused(
        FREE, Acquire(run="r1", files=files), "lock_files_invalid"
    )
    assert holder_of(given(Acquire(run="r1", files=files[1:])))


@pytest.mark.requirement("L12.3", "L12.4")
def test_a_run_that_withdraws_frees_its_places_and_the_next_is_granted():
    lock = given(
        Acquire(run="r1", step="a"),
        Acquire(run="r1", step="b"),
        Acquire(run="r2"),
        Acquire(run="r1", step="c"),
    )
    after, decision = take(lock, Withdraw(run="r1"), 1)
    assert decision.events == (
        LockWithdrawn(run="r1", step="a", at=at(1)),
        LockWithdrawn(run="r1", step="b", at=at(1)),
        LockWithdrawn(run="r1", step="c", at=at(1)),
        LockGranted(run="r2", fence=2, at=at(1)),
    )
    assert after.queue == ()
    assert take(after, Withdraw(run="r1"), 2) == (after, LockDecision())
    one, _ = take(lock, Withdraw(run="r1", step="b"), 1)
    assert [request.step for request in one.queue] == ["", "c"]
    assert holder_of(one) == ("r1", 1)


@pytest.mark.requirement("L12.7")
def test_a_holder_that_pulls_afresh_after_a_conflict_keeps_lock_and_fence():
    lock = given(Acquire(run="r1"), Acquire(run="r2"))
    for tries in range(1, 4):
        lock, _ = take(lock, Heartbeat(run="r1", fence=1), tries * 200)
        assert holder_of(lock) == ("r1", 1)
    assert take(lock, Release(run="r1", fence=1), 700)[1].refusal is None


@pytest.mark.parametrize(
    "event",
    [
        LockRequested(run="r1", at=T0),
        LockGranted(run="r1", fence=9, at=T0),
        LockGranted(run="r2", fence=9, at=T0),
        LockReleased(run="r2", fence=1, at=T0),
        LockExpired(run="r9", fence=1, at=T0),
        LockExtended(run="r9", fence=1, at=T0),
        LockWithdrawn(run="r9", at=T0),
    ],
)
def test_an_event_that_the_table_does_not_have_is_never_applied(event: LockEvent):
    lock = given(Acquire(run="r1"), Acquire(run="r2"), Acquire(run="r3"))
    with pytest.raises(AssertionError):
        evolve(lock, event)


@pytest.mark.parametrize(("run", "fence"), [("r2", 9), ("r1", 4)])
def test_a_grant_that_overtakes_or_does_not_raise_the_fence_is_never_applied(run: str, fence: int):
    waiting = tuple(LockRequest(run=name, asked_at=T0) for name in ("r1", "r2"))
    lock = CommitLock(repository="shop", fence=4, queue=waiting)
    with pytest.raises(AssertionError):
        evolve(lock, LockGranted(run=run, fence=fence, at=T0))


def test_the_check_names_each_broken_invariant():
    request = LockRequest(run="r1", asked_at=T0)
    holder = LockHolder(request=request, fence=3, granted_at=T0, beat_at=T0)
    assert check_invariants(FREE) == ()
    assert check_invariants(msgspec.structs.replace(FREE, queue=(request,))) == (
        "a free lock has nobody waiting",
    )
    broken = CommitLock(
        repository="shop",
        queue_max=0,
        fence=2,
        holder=holder,
        queue=(request,),
        released=("r1", "", 3),
    )
    assert check_invariants(broken) == (
        "the holder has the last fence",
        "a request stands in one place",
        "the queue is bounded",
        "the last release is not newer",
    )


def test_commands_events_effects_and_the_lock_survive_the_wire():
    lock = given(Acquire(run="r1", files=("a",)), Acquire(run="r2"))
    decision = decide(lock, Release(run="r1", fence=1), at(300))
    for kind, values in (
        (tuple[LockEvent, ...], decision.events),
        (tuple[LockEffect, ...], decision.effects),
        (CommitLock, lock),
        (LockCommand, Withdraw(run="r1")),
    ):
        assert msgspec.json.decode(msgspec.json.encode(values), type=kind) == values


RUNS = st.sampled_from(["r1", "r2", "r3", "r4", "r5"])
FILES = st.lists(st.sampled_from(["a", "b", "src/", "src/x"]), max_size=2).map(tuple)


class LockWalk(RuleBasedStateMachine):
    """Any commands at any times, against a plain list that says who must hold the lock."""

    @initialize(queue_max=st.integers(0, 4), stale_seconds=st.integers(1, 30))
    def start(self, queue_max: int, stale_seconds: int):
        self.first = CommitLock(repository="shop", queue_max=queue_max, stale_seconds=stale_seconds)
        self.lock = self.first
        self.seconds = 0
        self.log: list[LockEvent] = []
        self.fences: list[int] = []
        self.line: list[str] = []  # The model: the holder, then the waiting, in order of asking.

    def send(self, command: LockCommand) -> None:
        now = at(self.seconds)
        due = next_due(self.lock)
        before = self.lock
        decision = decide(self.lock, command, now)
        assert decision == decide(self.lock, command, now)
        self.lock = reduce(evolve, decision.events, self.lock)
        self.log.extend(decision.events)
        if decision.refusal and not (due and now >= due):
            assert self.lock == before
        for event in decision.events:
            self.follow(event, now, due)

    def follow(self, event: LockEvent, now: datetime, due: datetime | None) -> None:
        match event:
            case LockRequested(run=run):
                assert run not in self.line
                self.line.append(run)
            case LockGranted(run=run, fence=fence):
                assert run == self.line[0], "somebody was overtaken"
                self.fences.append(fence)
            case LockExtended(run=run, fence=fence):
                assert (run, fence) == (self.line[0], self.fences[-1])
            case LockReleased(run=run, fence=fence):
                assert (run, fence) == (self.line[0], self.fences[-1])
                self.line.pop(0)
            case LockExpired(run=run):
                assert due is not None
                assert now >= due
                assert run == self.line.pop(0)
            case LockWithdrawn(run=run):
                self.line.remove(run)

    @rule(run=RUNS, files=FILES)
    def acquire(self, run: str, files: tuple[str, ...]):
        self.send(Acquire(run=run, files=files))

    @rule(run=RUNS, back=st.integers(0, 2))
    def heartbeat(self, run: str, back: int):
        self.send(Heartbeat(run=run, fence=self.lock.fence - back))

    @rule(back=st.integers(0, 2), touched=FILES)
    def release_by_the_holder(self, back: int, touched: tuple[str, ...]):
        run = self.line[0] if self.line else "r1"
        self.send(Release(run=run, fence=self.lock.fence - back, touched=touched))

    @rule(run=RUNS, fence=st.integers(-1, 9), touched=FILES)
    def release_by_anybody(self, run: str, fence: int, touched: tuple[str, ...]):
        self.send(Release(run=run, fence=fence, touched=touched))

    @rule(run=RUNS)
    def withdraw(self, run: str):
        self.send(Withdraw(run=run))

    @rule(seconds=st.integers(0, 20))
    def wait(self, seconds: int):
        self.seconds += seconds
        self.send(LockTick())

    @rule(seconds=st.integers(1, 40))
    def time_passes_unseen(self, seconds: int):
        self.seconds += seconds

    @invariant()
    def the_model_agrees(self):
        held = [self.lock.holder.request.run] if self.lock.holder else []
        assert held + [request.run for request in self.lock.queue] == self.line
        assert check_invariants(self.lock) == ()

    @invariant()
    def fences_only_grow(self):
        assert self.fences == sorted(set(self.fences))
        assert self.lock.fence == (self.fences[-1] if self.fences else 0)

    @invariant()
    def replay_equals_live(self):
        assert reduce(evolve, self.log, self.first) == self.lock

    def teardown(self):
        """With nothing but time every holder goes and everybody who waits is granted in turn."""
        for _ in range(len(self.line)):
            due = next_due(self.lock)
            assert due is not None
            self.seconds = max(self.seconds, int((due - T0).total_seconds()))
            self.send(LockTick())
        assert self.lock.holder is None


LockWalk.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.requirement("L12.2", "L12.3", "L12.4", "L12.5", "L12.6")
@pytest.mark.no_cover
class TestNoTwoHoldersFencesGrowAndNobodyIsOvertaken(LockWalk.TestCase):
    pass
