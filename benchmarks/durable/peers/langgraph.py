"""LangGraph with its own checkpointers and `durability="sync"`: a step is on disk before the next.

One run at a time uses the blocking checkpointer, many at once the asynchronous one; on PostgreSQL
that is a pool of 16 connections.
"""

import asyncio
import operator
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from benchmarks.durable.common import AGENTS, Bench, Growth, Load, following, message

DISTRIBUTION = "langgraph"
POOL = 16


class State(TypedDict):
    made: int
    goal: int


class Talk(State):
    history: Annotated[list[str], operator.add]


def agent(target: str, text: Callable[[], str] | None = None) -> Callable[[State], Command[Any]]:
    def node(state: State) -> Command[Any]:
        update: dict[str, Any] = {"made": state["made"] + 1}
        if text:
            update["history"] = [text()]
        return Command(goto=target if update["made"] < state["goal"] else END, update=update)

    return node


def in_loop(node: Callable[[State], Command[Any]]) -> Any:
    """LangGraph would give a plain function a thread."""

    async def awaited(state: State) -> Command[Any]:
        return node(state)

    return awaited


def graph(saver: Any, asynchronous: bool = False, text: Callable[[], str] | None = None) -> Any:
    builder = StateGraph(Talk if text else State)
    for name in AGENTS:
        node = agent(following(name), text)
        builder.add_node(
            name, in_loop(node) if asynchronous else node, destinations=(following(name), END)
        )
    builder.add_edge(START, AGENTS[0])
    return builder.compile(checkpointer=saver)


@contextmanager
def blocking_saver(bench: Bench) -> Iterator[Any]:
    if bench.store == "sqlite":
        from langgraph.checkpoint.sqlite import SqliteSaver

        with closing(sqlite3.connect(bench.file, check_same_thread=False)) as connection:
            saver = SqliteSaver(connection)
            saver.setup()
            yield saver
    else:
        from langgraph.checkpoint.postgres import PostgresSaver

        with PostgresSaver.from_conn_string(bench.database.url()) as saver:
            saver.setup()
            yield saver


@asynccontextmanager
async def asynchronous_saver(bench: Bench) -> AsyncIterator[Any]:
    if bench.store == "sqlite":
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        async with AsyncSqliteSaver.from_conn_string(str(bench.file)) as saver:
            await saver.setup()
            yield saver
    else:
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from psycopg.rows import dict_row
        from psycopg_pool import AsyncConnectionPool

        options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        async with AsyncConnectionPool(
            bench.database.url(), min_size=POOL, max_size=POOL, timeout=600, kwargs=options
        ) as pool:
            saver = AsyncPostgresSaver(pool)
            await saver.setup()
            yield saver


def arguments(thread: str, goal: int, **more: Any) -> dict[str, Any]:
    return {
        "input": {"made": 0, "goal": goal, **more},
        "config": {"configurable": {"thread_id": thread}, "recursion_limit": goal + 10},
        "durability": "sync",
    }


def one_by_one(bench: Bench, load: Load) -> None:
    with blocking_saver(bench) as saver:
        compiled = graph(saver)
        compiled.invoke(**arguments("warm", load.steps))
        with bench.timed(load):
            for run in range(load.runs):
                last = compiled.invoke(**arguments(f"{load.name} {run}", load.steps))
                assert last["made"] == load.steps


async def at_once(bench: Bench, load: Load) -> None:
    async with asynchronous_saver(bench) as saver:
        compiled = graph(saver, asynchronous=True)
        await compiled.ainvoke(**arguments(f"warm {load.name}", load.steps))
        with bench.timed(load):
            runs = (arguments(f"{load.name} {run}", load.steps) for run in range(load.runs))
            ends = await asyncio.gather(*(compiled.ainvoke(**run) for run in runs))
        assert all(last["made"] == load.steps for last in ends)


def measure(bench: Bench, loads: list[Load]) -> None:
    for load in loads:
        if load.at_once:
            asyncio.run(at_once(bench, load))
        else:
            one_by_one(bench, load)


def grow(bench: Bench, steps: int) -> dict[str, float]:
    with blocking_saver(bench) as saver:
        graph(saver, text=message).invoke(**arguments("warm", 20, history=[]))
        growth = Growth(bench, steps)

        def text() -> str:
            growth.step()
            return message()

        graph(saver, text=text).invoke(**arguments("grow", steps, history=[]))
        return growth.result()
