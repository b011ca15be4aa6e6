"""Ids sort by time, never repeat, and are UUIDs of version 7."""

import multiprocessing
import time
from uuid import RFC_4122

import pytest

from handrail.engine import ids
from handrail.engine.ids import uuid7


def test_ids_are_uuids_of_version_7_that_hold_the_time():
    before = time.time_ns() // 1_000_000
    made = uuid7()
    assert (made.version, made.variant) == (7, RFC_4122)
    assert before <= made.int >> 80 <= time.time_ns() // 1_000_000 + 1


def test_each_id_is_greater_than_the_one_before():
    made = [uuid7() for _ in range(10_000)]
    assert made == sorted(set(made))


def test_a_clock_that_steps_back_makes_no_smaller_id(monkeypatch: pytest.MonkeyPatch):
    last = uuid7()
    monkeypatch.setattr(ids.time, "time_ns", lambda: 0)
    assert last < uuid7() < uuid7()


def test_a_forked_process_makes_ids_of_its_own():
    context = multiprocessing.get_context("fork")
    with context.Pool(2, maxtasksperchild=1) as pool:
        made = pool.map(_make_id, range(8), chunksize=1)
    assert len(set(made)) == len(made)


def _make_id(_: int) -> str:
    # The chance alone: processes that make ids in different milliseconds differ anyhow.
    return uuid7().hex[-16:]
