"""An engine that is alone does not look at what it wrote itself, and one that is not misses nothing
of what others did."""

import asyncio

import pytest
from tests.engine.engines import ANA, chain, manual_engine, node, run_async, start_run
from tests.patience import PATIENCE

from handrail.engine import opening
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]

ASKS = chain(node("ok", "approval"))


def test_only_what_others_wrote_is_looked_at(
    shared_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    async def play():
        async with manual_engine(shared_url, clock) as engine:
            looks: list[int] = []
            feed = engine.store.journal.read_feed

            def looked(after: int, limit: int):
                looks.append(after)
                return feed(after, limit)

            monkeypatch.setattr(engine.store.journal, "read_feed", looked)
            monkeypatch.setattr(engine.store, "has_changed", lambda: True)
            run = await start_run(engine, ASKS)
            ended = asyncio.create_task(run.result(PATIENCE))
            await asyncio.sleep(0)
            await engine.tick()  # where the record ends is not known before
            looks.clear()
            for _ in range(3):
                await engine.start("w")
                await engine.tick()
            assert looks == []
            async with opening.open(shared_url, clock=clock.now, visit=True) as guest:
                await guest.approvals.answer(f"{run.id}.q1", "ok", by=ANA)
            await engine.tick()
            assert len(looks) == 1
            assert (await ended).terminal_status == "done_success"

    run_async(play())
