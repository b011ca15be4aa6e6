"""Handrail's side: the same loads through its durable engine, on either store.

The harness calls, each in a process and a database of its own (`bench` has the store's place, and
clocks that count PostgreSQL too):

- `measure(bench, loads)`: as the peers do (`peers/__init__.py`). Besides their loads it is given
  longer ones. Runs of a ring of three agents; a step is one agent's turn: offered, claimed and
  reported, judged by every stop rule, chained in the audit record, on disk.
- `grow(bench, steps)`: one run of so many steps, each of which adds a `common.message()`.
- `wait(bench, runs)`: brings so many runs to a question for a person. Returns `runs`, `memory_mb`
  (growth of `rss_mb` from before the first to after the last), `bytes_per_run`, and medians of the
  time from a person's answer: `next_step_ms` until an agent is at work on the next step, and
  `answer_ms` until that step, and with it the run, has ended.
- `rows(store)`: what one step writes, for the raw limit (`peers/raw.py`, `Rows`).
"""

import asyncio
import gc
import itertools
import statistics
import time
from typing import Any

import handrail
from benchmarks.durable.common import AGENTS, Bench, Growth, Load, Store, following, message, rss_mb
from benchmarks.durable.rows import PostgresRows, SqliteRows
from handrail import Dispatch, Result

DISTRIBUTION = "handrail"
AT_ONCE = 2_000
WARM_RUNS = 20
ANSWERS = 200


def address(bench: Bench) -> str:
    return f"sqlite:///{bench.file}" if bench.store == "sqlite" else bench.database.url()


def ring(steps: int) -> dict[str, Any]:
    """Every rule is on; the limits are those of the load."""
    limits = ("max_handoffs", "max_steps", "max_edge", "no_change_limit", "oscillation_limit")
    return {
        "name": f"ring {steps}",
        "kind": "team",
        "start": AGENTS[0],
        "terminator": AGENTS[(steps - 1) % len(AGENTS)],
        "agents": [{"id": name, "hands_off_to": [following(name)]} for name in AGENTS],
        "stop_rules": {**dict.fromkeys(limits, steps + 1), "repeat_limit": 100},
    }


def agent(name: str, steps: int) -> Any:
    target = following(name)

    async def turn(dispatch: Dispatch) -> Result:
        if dispatch.step < steps:
            return handrail.hand_to(target, "next in the ring")
        return handrail.terminate("the ring is done")

    return turn


async def through(bench: Bench, load: Load) -> None:
    async with handrail.open(address(bench)) as engine:
        for name in AGENTS:
            engine.add_agent(agent(name, load.steps), name, name=name, capacity=load.runs)
        definition = (await engine.define(ring(load.steps))).id

        async def one() -> None:
            run = await engine.start(definition, title="a ring")
            ended = await run.result()
            assert ended.ledger.steps == load.steps, ended.stop

        for _ in range(WARM_RUNS):
            await one()
        with bench.timed(load):
            if load.at_once:
                await asyncio.gather(*(one() for _ in range(load.runs)))
            else:
                for _ in range(load.runs):
                    await one()


def measure(bench: Bench, loads: list[Load]) -> None:
    for load in loads:
        asyncio.run(through(bench, load))


def one_task(**config: Any) -> dict[str, Any]:
    """A workflow of one task; with `approval`, a person is asked before it."""
    asked = [{"id": "ask", "type": "approval", "role": "ceo"}] if config.pop("approval", 0) else []
    task = {"id": "talk", "type": "task", "role": "talker", **config}
    nodes = [{"id": "start", "type": "start"}, *asked, task, {"id": "end", "type": "end"}]
    pairs = itertools.pairwise(nodes)
    edges = [{"from_node_id": one["id"], "to_node_id": two["id"]} for one, two in pairs]
    return {"name": "talk", "kind": "workflow", "roles": ["talker"], "nodes": nodes, "edges": edges}


async def one_long_run(bench: Bench, steps: int) -> dict[str, float]:
    growth: Growth | None = None
    talk = one_task(max_attempts=steps, timeout="24h", config={"multi_dispatch": True})
    async with handrail.open(address(bench)) as engine:
        goal = WARM_RUNS

        @engine.agent("talker", name="talker")
        async def talker(dispatch: Dispatch) -> Result:
            if growth is not None:
                growth.step()
            if dispatch.step < goal:
                return handrail.carry_on(message())
            return handrail.success(message())

        await engine.define(talk)
        await (await engine.start("talk")).result()
        goal, growth = steps, Growth(bench, steps)
        await (await engine.start("talk")).result()
        return growth.result()


def grow(bench: Bench, steps: int) -> dict[str, float]:
    return asyncio.run(one_long_run(bench, steps))


async def many_waiting(bench: Bench, runs: int) -> dict[str, float]:
    begun: list[float] = []
    async with handrail.open(address(bench)) as engine:

        @engine.agent("talker", name="talker")
        async def talker(dispatch: Dispatch) -> Result:
            begun.append(time.perf_counter())
            return handrail.success("done")

        await engine.define(one_task(approval=True))
        asked = [await engine.start("talk", title="warm") for _ in range(WARM_RUNS)]
        gc.collect()
        memory, size = rss_mb(), bench.size()
        for first in range(0, runs, AT_ONCE):
            more = range(min(AT_ONCE, runs - first))
            handles = await asyncio.gather(*(engine.start("talk", title="wait") for _ in more))
            asked = handles[:ANSWERS]
        gc.collect()
        memory, size = rss_mb() - memory, bench.size() - size
        next_steps: list[float] = []
        ends: list[float] = []
        for run in asked:
            answered = time.perf_counter()
            await engine.approvals.answer(f"{run.id}.q1", "ok", by="ana")
            await run.result()
            next_steps.append(begun[-1] - answered)
            ends.append(time.perf_counter() - answered)
    return {
        "runs": runs,
        "memory_mb": memory,
        "bytes_per_run": size / runs,
        "next_step_ms": statistics.median(next_steps) * 1000,
        "answer_ms": statistics.median(ends) * 1000,
    }


def wait(bench: Bench, runs: int) -> dict[str, float]:
    return asyncio.run(many_waiting(bench, runs))


def rows(store: Store) -> Any:
    return SqliteRows() if store == "sqlite" else PostgresRows()
