"""Turns of many runs in one batch: one task may give several of them, and no turn notices it."""

import asyncio
from contextvars import ContextVar

from tests.engine.engines import DONE, ROLE, chain, manual_engine, node, run_async

from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.kernel.result import Result
from handrail.kernel.run.state import Run
from handrail.testing.clock import ManualClock

RUNS = 20
ONE_TASK = chain(node("fix", role=ROLE))


async def ended(engine: Engine) -> list[Run]:
    """All runs that begin at once, in their order."""
    definition = (await engine.define(ONE_TASK)).id
    runs = await asyncio.gather(*(engine.start(definition, title=str(n)) for n in range(RUNS)))
    return await asyncio.gather(*(run.result() for run in runs))


def test_a_turn_that_has_to_wait_holds_up_no_other(clock: ManualClock):
    async def main():
        async with manual_engine("sqlite://", clock) as engine:
            others = asyncio.Event()
            done: list[str] = []

            @engine.agent(ROLE, capacity=RUNS)
            async def fix(dispatch: Dispatch) -> Result:
                if dispatch.bead.title == "0":
                    await others.wait()
                done.append(dispatch.bead.title)
                if len(done) == RUNS - 1:
                    others.set()
                return DONE

            await ended(engine)
            assert done == [*map(str, range(1, RUNS)), "0"]

    run_async(main())


def test_a_turn_sees_no_context_variable_that_another_turn_has_set(clock: ManualClock):
    seen: list[str] = []
    whose: ContextVar[str] = ContextVar("whose", default="nobody's")

    async def main():
        async with manual_engine("sqlite://", clock) as engine:

            @engine.agent(ROLE, capacity=RUNS)
            async def fix(dispatch: Dispatch) -> Result:
                seen.append(whose.get())
                whose.set(dispatch.bead.title)
                return DONE

            await ended(engine)

    run_async(main())
    assert seen == ["nobody's"] * RUNS


def test_a_turn_that_cancels_its_own_task_costs_no_other_turn_anything(clock: ManualClock):
    turns: list[str] = []

    async def main():
        async with manual_engine("sqlite://", clock) as engine:

            @engine.agent(ROLE, capacity=RUNS)
            async def fix(dispatch: Dispatch) -> Result:
                turns.append(dispatch.bead.title)
                task = asyncio.current_task()
                assert task is not None
                if int(dispatch.bead.title) % 2:
                    await asyncio.sleep(0)  # where it would hear that it was cancelled
                else:
                    task.cancel()
                return DONE

            await ended(engine)

    run_async(main())
    assert sorted(turns, key=int) == [*map(str, range(RUNS))], "every run once"
