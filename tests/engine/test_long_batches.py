"""A batch that takes long to decide does not keep everybody else waiting."""

import asyncio
from itertools import count

import pytest
from tests.engine.engines import chain, manual_engine, node, run_async
from tests.patience import PATIENCE

from handrail.engine.commit import batch
from handrail.engine.notifier import CommitCompleted
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]


def test_commands_that_a_batch_has_no_time_for_are_decided_in_the_next_ones(
    shared_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    async def play():
        async with manual_engine(shared_url, clock) as engine:
            await engine.define(chain(node("work")))
            seconds = map(float, count())  # a second for each command: all but the first are late
            monkeypatch.setattr(batch, "perf_counter", lambda: next(seconds))
            commits: list[object] = []
            engine.listeners.add(
                lambda change: commits.append(change) if type(change) is CommitCompleted else None
            )
            starts = [asyncio.create_task(engine.start("w")) for _ in range(5)]
            runs = await asyncio.wait_for(asyncio.gather(*starts), PATIENCE)
            assert len({run.id for run in runs}) == 5
            assert len(commits) == 5

    run_async(play())
