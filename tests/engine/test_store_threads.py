"""Calls of a store that has to be waited for: on threads, and each answered once."""

import asyncio
import threading

import pytest
from tests.patience import PATIENCE

from handrail.engine.commit.committer import OwnCommits
from handrail.engine.environment import StoreThreads
from handrail.store.rows import CommitRow, StoreError


def test_what_a_call_returns_or_raises_comes_back_to_the_loop():
    def divide(one: int, two: int) -> tuple[float, str]:
        return one / two, threading.current_thread().name

    async def ask() -> None:
        threads = StoreThreads(2, "store")
        assert await threads.run(divide, 1, 2) == (0.5, "store-1")
        with pytest.raises(ZeroDivisionError):
            await threads.run(divide, 1, 0)
        threads.close()

    asyncio.run(ask())


def test_calls_wait_for_each_other_only_when_every_thread_is_busy():
    together = threading.Barrier(2, timeout=PATIENCE)

    async def ask() -> None:
        threads = StoreThreads(2, "store")
        await asyncio.gather(threads.run(together.wait), threads.run(together.wait))
        threads.close()

    asyncio.run(ask())


def test_whoever_stopped_waiting_breaks_nothing():
    may_go_on = threading.Event()

    async def ask() -> None:
        threads = StoreThreads(1, "store")
        gone = asyncio.create_task(threads.run(may_go_on.wait, PATIENCE))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        may_go_on.set()
        assert await threads.run(len, "next") == 4
        threads.close()

    asyncio.run(ask())


def test_closing_waits_for_what_was_given_and_then_takes_nothing_more():
    done: list[int] = []

    async def ask() -> None:
        threads = StoreThreads(1, "store")
        for n in range(10):
            threads.run_soon(done.append, n)
        threads.close()
        assert done == list(range(10))
        with pytest.raises(StoreError, match="closed"):
            await threads.run(len, "late")

    asyncio.run(ask())


def test_a_small_write_that_fails_is_told_and_the_next_one_is_made(
    caplog: pytest.LogCaptureFixture,
):
    done: list[str] = []

    def write(what: str) -> None:
        if what == "bad":
            raise StoreError("the disk is full")
        done.append(what)

    threads = StoreThreads(1, "store")
    threads.run_soon(write, "bad")
    threads.run_soon(write, "good")
    threads.close()
    assert done == ["good"]
    assert "the disk is full" in caplog.text


def commit(n: int) -> CommitRow:
    return CommitRow(n=n, hash=b"", at="", entries=1)


def test_commits_are_its_own_as_far_as_no_number_is_missing():
    own = OwnCommits()
    assert own.covers(0, 0)
    assert not own.covers(0, 1)  # somebody else's
    own.add(commit(2))
    own.add(None)
    own.add(commit(3))
    assert own.covers(1, 3)
    assert own.covers(2, 3)
    assert not own.covers(0, 3)
    assert not own.covers(1, 4)
    own.add(commit(5))  # 4 was not
    assert own.covers(4, 5)
    assert not own.covers(3, 5)
