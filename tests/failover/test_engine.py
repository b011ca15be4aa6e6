"""An engine whose standby, or whose primary, goes away in the middle of a step."""

import asyncio

import pytest
from tests.engine.engines import DONE, ROLE, chain, events_of, node, start_run, wait_until_async
from tests.failover.replicated_database import Pair

from handrail.engine import opening
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.settings import EngineSettings
from handrail.kernel.result import Result
from handrail.kernel.run.events import Claimed, Lost
from handrail.store.postgres import connection
from handrail.store.rows import AcknowledgedDataLostError, StoreError

TWO_STEPS = chain(node("one"), node("two"))
SECONDS = 60
A_WHOLE_DAY = EngineSettings(pulse=0.1, lease=86_400)
"""So long that nothing is found by waiting for it."""


@pytest.mark.heavy
@pytest.mark.requirement("L4.6")
def test_a_claim_that_arrives_after_its_connection_broke_is_not_left_lying(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    """The result of the first step and the claim of the second are one commit. It waits for the
    standby; the engine gives up on it; then the standby comes back, and the commit is done."""
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 1)
    monkeypatch.setattr(connection, "RECONNECT_PAUSES_SECONDS", (0,))

    async def main():
        async with opening.open(pair.url, settings=A_WHOLE_DAY) as engine:

            @engine.agent(ROLE)
            def work(dispatch: Dispatch) -> Result:
                if dispatch.position.step_id == "one":
                    pair.standby.stop()
                return DONE

            run = await start_run(engine, TWO_STEPS)
            await wait_until_async(lambda: bool(engine.committer.uncertain_claims))
            await asyncio.to_thread(pair.standby.start)
            ended = await run.result(SECONDS)
            assert ended.terminal_status == "done_success"
            assert [lost.step_id for lost in await events_of(engine, run.id, Lost)] == ["two"]
            claimed = [claim.step_id for claim in await events_of(engine, run.id, Claimed)]
            assert claimed == ["one", "two", "two"]

    asyncio.run(main())


@pytest.mark.heavy
@pytest.mark.requirement("L4.6")
def test_a_step_that_is_reported_while_the_primary_dies_is_reported_once(pair: Pair):
    worked: list[str] = []

    async def main():
        async with opening.open(pair.url, settings=A_WHOLE_DAY) as engine:

            @engine.agent(ROLE)
            def work(dispatch: Dispatch) -> Result:
                worked.append(dispatch.position.step_id)
                if dispatch.position.step_id == "one":
                    pair.primary.kill()
                    pair.take_over()
                return DONE

            run = await start_run(engine, TWO_STEPS)
            ended = await run.result(SECONDS)
            assert ended.terminal_status == "done_success"
            assert await events_of(engine, run.id, Lost) == []

    asyncio.run(main())
    assert worked == ["one", "two"]


@pytest.mark.heavy
def test_an_engine_whose_standby_lacks_what_was_acknowledged_fails_and_says_why(pair: Pair):
    """It remembers claims and results that are nowhere. Whoever starts it again begins with what is
    there."""

    async def main():
        async with opening.open(pair.url, settings=A_WHOLE_DAY) as engine:
            pair.primary.require_standby(False)
            await start_run(engine, TWO_STEPS)
            pair.standby.stop_streaming()
            await start_run(engine, TWO_STEPS)
            pair.primary.kill()
            pair.take_over()
            with pytest.raises(StoreError, match="is missing now"):
                await start_run(engine, TWO_STEPS)
            assert isinstance(await engine.wait_closed(), AcknowledgedDataLostError)

    with pytest.raises(AcknowledgedDataLostError):
        asyncio.run(main())
