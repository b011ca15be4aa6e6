"""Engines under test: no clock but the test's, no waiting for time to pass."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, TypeVar

from tests.kernel.driven_run import ANA, chain, edge, node, team, workflow
from tests.patience import PATIENCE, wait_until_async

from handrail.engine import opening
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.engine import Engine, RefusedError
from handrail.engine.services.runs import RunHandle
from handrail.engine.settings import EngineSettings
from handrail.kernel.definition.model import Settings
from handrail.kernel.result import Outcome, Result
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.evolve import replay
from handrail.testing.clock import ManualClock
from handrail.testing.engine_simulation import abandon_engine

__all__ = [
    "ANA",
    "PATIENCE",
    "abandon_engine",
    "chain",
    "edge",
    "node",
    "team",
    "wait_until_async",
    "workflow",
]

T = TypeVar("T")
ROLE = "backend-engineer"
DONE = Result(outcome=Outcome.SUCCESS, text="done")
FAILED = Result(outcome=Outcome.FAILURE, reason="cannot")
COMMIT = {"kind": "commit", "role": "engineering-manager"}


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """To its end, and not for ever: what does not even stop when told to is left where it is."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)
    for _ in range(2):
        loop.run_until_complete(asyncio.wait((task,), timeout=PATIENCE))
        if task.done():
            break
        task.cancel()
    if task.done():
        _ended(loop)
        return task.result()
    raise AssertionError(f"it does not stop: {task.get_stack()}")


def _ended(loop: asyncio.AbstractEventLoop) -> None:
    """As `asyncio.run` does: a task that is left would keep its sockets open."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=PATIENCE))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@asynccontextmanager
async def manual_engine(
    url: str, clock: ManualClock, *, kernel: Settings | None = None, **settings: Any
) -> AsyncIterator[Engine]:
    """An engine to which nothing happens by itself."""
    wanted = EngineSettings(kernel=kernel or Settings(), **settings)
    async with opening.open(url, clock=clock.now, background=False, settings=wanted) as engine:
        yield engine


async def engine_to_abandon(url: str, clock: ManualClock, **settings: Any) -> Engine:
    """An engine that will not be closed: `abandon` it."""
    return await opening.open(
        url, clock=clock.now, background=False, settings=EngineSettings(**settings)
    ).__aenter__()


class Worker:
    """An agent outside of the engine's process, which does what the test says."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine, self.name = engine, name

    async def claim(self) -> Dispatch | None:
        return await self.engine.claims.claim(self.name)

    async def beat(self) -> bool:
        return await self.engine.agents.heartbeat(self.name)

    async def get(self) -> Dispatch:
        dispatch = await self.claim()
        assert dispatch is not None, "there is something to do"
        return dispatch

    async def report(self, dispatch: Dispatch, result: Result = DONE):
        outcome = await self.engine.dispatches.report(
            dispatch.run.id, dispatch.fence, self.name, result
        )
        return outcome.run

    async def work(self, result: Result = DONE):
        return await self.report(await self.get(), result)


_names = count(1)


async def register_worker(engine: Engine, *roles: str, name: str = "", capacity: int = 1) -> Worker:
    name = name or f"worker-{next(_names)}"
    await engine.agents.register(name, roles or (ROLE,), capacity)
    return Worker(engine, name)


async def start_run(engine: Engine, document: dict[str, Any], **wanted: Any) -> RunHandle:
    """A run of this document."""
    return await engine.start((await engine.define(document)).id, **wanted)


async def wait_until_idle(engine: Engine) -> None:
    """Until no function is at work and nothing is left to commit."""
    while True:
        await engine.tick()
        if not engine.local_executor.active_count:
            return
        await asyncio.sleep(0.001)


async def advance_with_ticks(
    engine: Engine, clock: ManualClock, seconds: float, step: float = 10
) -> None:
    """Time passes, and the engine is awake all the while."""
    while seconds > 0:
        clock.advance(min(step, seconds))
        seconds -= step
        await engine.tick()


async def refusal_code(work: Coroutine[Any, Any, object]) -> str:
    """The code of the refusal."""
    try:
        await work
    except RefusedError as error:
        return error.refusal.code
    raise AssertionError("it was not refused")


async def events_of(engine: Engine, run_id: str, kind: type[T]) -> list[T]:
    return [event for event in await engine.runs.history(run_id) if isinstance(event, kind)]


def event_names(events: list[RunEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


async def check_stored(engine: Engine, run_id: str) -> None:
    """What is stored of a run is what its journal says."""
    run = await engine.runs.state(run_id)
    assert replay(await engine.runs.history(run_id)) == run
    row = engine.store.runs.load([run_id])[run_id].row
    assert (row.status, row.seq) == (run.status, run.seq)
    open_fences = {t.fence for t in run.positions.values() if t.phase in ("offered", "claimed")}
    assert {d.fence for d in engine.store.dispatches.list(run_id)} == open_fences
    asked = {a.id for a in engine.store.approvals.list(execution_id=run_id, status="open")}
    assert asked == set(run.pending_approvals)
