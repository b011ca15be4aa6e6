"""DBOS Transact: every step's result is recorded before the next begins.

Runs are direct calls of the workflow, so nobody polls for results; a run alone is a blocking one,
many at once are asynchronous. The pool waits longer than its default of 30 s, which 1,000 runs at
once would exceed. DBOS leaves SQLite in its older journal mode; here it gets WAL like all others.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dbos import DBOS, DBOSConfig

from benchmarks.durable.common import AGENTS, Bench, Load

DISTRIBUTION = "dbos"


def blocking_agent(name: str) -> Callable[[int], int]:
    @DBOS.step(name=name)
    def agent(made: int) -> int:
        return made + 1

    return agent


def asynchronous_agent(name: str):
    @DBOS.step(name=f"{name} asynchronous")
    async def agent(made: int) -> int:
        return made + 1

    return agent


RING = [blocking_agent(name) for name in AGENTS]
ASYNCHRONOUS_RING = [asynchronous_agent(name) for name in AGENTS]


@DBOS.workflow()
def ring(goal: int) -> int:
    made = 0
    while made < goal:
        made = RING[made % len(RING)](made)
    return made


@DBOS.workflow()
async def asynchronous_ring(goal: int) -> int:
    made = 0
    while made < goal:
        made = await ASYNCHRONOUS_RING[made % len(ASYNCHRONOUS_RING)](made)
    return made


@contextmanager
def launched(bench: Bench) -> Iterator[None]:
    sqlite = bench.store == "sqlite"
    url = f"sqlite:///{bench.file}" if sqlite else bench.database.url("+psycopg")
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": url,
        "log_level": "ERROR",
        "db_engine_kwargs": {"pool_timeout": 600},
    }
    DBOS(config=config)
    DBOS.launch()
    try:
        yield
    finally:
        DBOS.destroy()


async def at_once(bench: Bench, loads: list[Load]) -> None:
    """All in one event loop: DBOS keeps the threads of the first it sees."""
    for load in loads:
        await asynchronous_ring(load.steps)
        with bench.timed(load):
            ends = await asyncio.gather(*(asynchronous_ring(load.steps) for _ in range(load.runs)))
        assert ends == [load.steps] * load.runs


def one_by_one(bench: Bench, load: Load) -> None:
    ring(load.steps)
    with bench.timed(load):
        for _ in range(load.runs):
            assert ring(load.steps) == load.steps


def measure(bench: Bench, loads: list[Load]) -> None:
    with launched(bench):
        for load in loads:
            if not load.at_once:
                one_by_one(bench, load)
        asyncio.run(at_once(bench, [load for load in loads if load.at_once]))
