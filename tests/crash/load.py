"""An engine under load, to be killed: runs of five definitions, agents that leave a line each time
they work, and a line for everything that the engine said it had done, written only afterwards.

    python load.py URL FOLDER SEED QUOTA    start runs and work on them until killed
    python load.py URL FOLDER SEED          no new runs; work until all have ended, then leave

Lines (a kill can cut a `write` at a page's end, so each is between a newline and a full stop):

    acks     store STREAM SEQ HASH      `commit` returned, and this entry was among the winners
             start KEY RUN              `Engine.start` returned
             answer QUESTION SEQ        `Engine.answer` returned a run with so many events
             report RUN FENCE SEQ       `Engine.report` returned
             told WHERE TEXT            an error, in one line
    effects  RUN PLACE FENCE ATTEMPT KEY LOCK   an agent begins to work
"""

import asyncio
import os
import random
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import handrail.engine.opening as opening
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.engine import Engine, RefusedError
from handrail.engine.settings import EngineSettings
from handrail.kernel.result import Outcome, Result
from handrail.kernel.run.state import Person
from handrail.store.rows import JournalEntry, StoreError
from handrail.store.store import Store
from handrail.store.urls import open_store

ACTIVE = 40
"""Runs that are under way at the same time."""
HANDFUL = 10
OPENINGS_MAX = 100
TOO_EARLY = bool(os.environ.get("HANDRAIL_CRASH_CONTROL"))
"""The control: acknowledges what will be on disk a little later. The checks must see it."""
ANA = Person(name="ana", role="admin")
NEXT = {"triage": "billing", "billing": "tech", "tech": "triage"}


def _task(name: str, role: str, attempts: int = 50, **config: object) -> dict:
    return {"id": name, "type": "task", "role": role, "max_attempts": attempts, "config": config}


def _workflow(name: str, nodes: list[dict], *edges: str) -> dict:
    ends = [{"id": "start", "type": "start"}, {"id": "end", "type": "end"}]
    ways = [edge.split(">") for edge in edges]
    return {
        "kind": "workflow",
        "name": name,
        "roles": sorted({node["role"] for node in nodes if node["type"] == "task"}),
        "nodes": ends + nodes,
        "edges": [{"from_node_id": a, "to_node_id": b} for a, b in ways],
    }


DOCUMENTS = [
    {
        "kind": "team",
        "name": "ring",
        "start": "triage",
        "terminator": "triage",
        "agents": [{"id": a, "hands_off_to": [b]} for a, b in NEXT.items()],
        "stop_rules": {
            **dict.fromkeys(("max_handoffs", "max_steps", "max_edge"), 10_000),
            **dict.fromkeys(("repeat_limit", "protocol_error_limit", "same_error_limit"), 100),
            "max_duration": "1h",
            "no_change_limit": None,
        },
    },
    _workflow(
        "retry",
        [_task("work", "flaky"), _task("check", "outside")],
        *("start>work", "work>check", "check>end"),
    ),
    _workflow(
        "fan",
        [
            {"id": "split", "type": "decision", "config": {"parallel": True}},
            *(_task(side, side) for side in ("left", "middle", "right")),
            {"id": "join", "type": "merge", "config": {"wait": "all"}},
        ],
        *("start>split", "split>left", "split>middle", "split>right"),
        *("left>join", "middle>join", "right>join", "join>end"),
    ),
    _workflow(
        "sign",
        [
            _task("draft", "flaky"),
            {"id": "accept", "type": "approval", "role": "ceo", "config": {}},
            _task("apply", "left"),
        ],
        *("start>draft", "draft>accept", "accept>apply", "apply>end"),
    ),
    _workflow(
        "ship",
        [
            _task("write", "right"),
            _task("commit", "engineering-manager", kind="commit"),
            _task("verify", "qa-engineer", kind="verification"),
        ],
        *("start>write", "write>commit", "commit>verify", "verify>end"),
    ),
]
NAMES = [document["name"] for document in DOCUMENTS]


class Lines:
    """A file to which lines are appended."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)

    def put(self, *lines: str) -> None:
        data = "".join(f"\n{line} ." for line in lines).encode()
        assert os.write(self._file, data) == len(data)


class Acknowledged:
    """A store that writes down what its commits said, after they said it."""

    def __init__(self, store: Store, acks: Lines) -> None:
        self._store, self._acks = store, acks

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def commit(self, writes, at):
        if TOO_EARLY:
            self._say(write.entry for write in writes)
            time.sleep(0.02)
        commit, won = self._store.commit(writes, at)
        self._say(write.entry for write, one in zip(writes, won, strict=True) if one)
        return commit, won

    def _say(self, entries: Iterable[JournalEntry]) -> None:
        self._acks.put(*(f"store {e.stream} {e.seq} {e.hash.hex()}" for e in entries))


class Load:
    def __init__(self, folder: Path, seed: str, quota: int) -> None:
        self.acks, self.effects = Lines(folder / "acks"), Lines(folder / "effects")
        self.random = random.Random(seed)
        self.quota = quota

    def told(self, where: str, error: Exception) -> None:
        self.acks.put(f"told {where} {type(error).__name__} {error!s}".replace("\n", "\\n"))

    async def _work(self, dispatch: Dispatch) -> Result:
        """Leaves its line, takes a moment, and fails now and then where there are attempts."""
        run, place, fence = dispatch.execution_id, dispatch.position.step_id, dispatch.fence
        key = dispatch.key
        self.effects.put(f"{run} {place} {fence} {dispatch.attempt} {key} {dispatch.lock or 0}")
        if self.random.random() < 0.5:
            await asyncio.sleep(self.random.random() * 0.02)
        if dispatch.role == "flaky" and self.random.random() < 0.2:
            raise RuntimeError("not this time")
        if dispatch.role == "flaky" and self.random.random() < 0.2:
            return Result(outcome=Outcome.FAILURE, text="it did not work", reason="flaky")
        to = NEXT.get(dispatch.agent)
        if to is None:
            return Result(outcome=Outcome.SUCCESS, text=f"done with {place}")
        if dispatch.agent == "triage" and dispatch.run.seq > 40:
            return Result(outcome=Outcome.TERMINATE, reason="done")
        return Result(outcome=Outcome.HANDOFF, to=to, reason="next", text="x" * 100)

    def agents(self, engine: Engine) -> None:
        def plain(dispatch: Dispatch) -> Result:  # works on a thread
            return asyncio.run(self._work(dispatch))

        async def working(dispatch: Dispatch) -> Result:
            return await self._work(dispatch)

        for name in (*NEXT, "flaky", "left", "right", "engineering-manager", "qa-engineer"):
            engine.add_agent(working, name, name=name, capacity=30)
        engine.add_agent(plain, "middle", name="middle", capacity=4)

    async def outside(self, engine: Engine, name: str) -> None:
        """An agent that registers, claims and reports, as one in another process would."""
        known = None
        while True:
            try:
                known = known or await engine.agents.register(name, ["outside"])
                dispatch = await engine.claims.claim(name, 0.2)
                if dispatch is None:
                    continue
                await self._report(engine, dispatch, name, await self._work(dispatch))
            except (StoreError, RefusedError) as error:
                self.told("outside", error)
                await asyncio.sleep(0.05)

    async def _report(self, engine: Engine, dispatch: Dispatch, name: str, result: Result) -> None:
        """Whoever hears of an error says it again: it may not have been heard."""
        while True:
            try:
                outcome = await engine.dispatches.report(
                    dispatch.execution_id, dispatch.fence, name, result
                )
            except StoreError as error:
                self.told("report", error)
                await asyncio.sleep(0.02)
                continue
            self.acks.put(f"report {outcome.run.id} {dispatch.fence} {outcome.run.seq}")
            return

    async def starter(self, engine: Engine, active: int) -> None:
        """In handfuls, as many as may be under way; the key says which one is meant."""
        for first in range(0, self.quota, HANDFUL):
            numbers = range(first, min(first + HANDFUL, self.quota))
            await asyncio.gather(*(self._start(engine, number) for number in numbers))
            while not await self._fewer(engine, active):
                await asyncio.sleep(0.005)

    async def _start(self, engine: Engine, number: int) -> None:
        key = f"start-{number}"
        while True:
            try:
                if await engine.stored_answers.get(key, "load") is not None:
                    return
                name = NAMES[number % len(NAMES)]
                run = await engine.start(name, title=key, filed_by="load", key=key)
            except StoreError as error:
                self.told("start", error)
                if engine.failure is not None:
                    raise
                await asyncio.sleep(0.02)
                continue
            self.acks.put(f"start {key} {run.id}")
            return

    async def _fewer(self, engine: Engine, than: int) -> bool:
        if engine.failure is not None:
            raise engine.failure
        try:
            return len(await self._open(engine)) < than
        except StoreError as error:
            self.told("look", error)
            return False

    async def _open(self, engine: Engine) -> list[str]:
        found: list[str] = []
        for status in ("running", "waiting", "paused"):
            page = await engine._access.call(
                lambda s=status: engine.store.runs.list_by_id(status=s)
            )
            found += [row.id for row in page]
        return found

    async def people(self, engine: Engine) -> None:
        """Answers whatever is asked; under a key, as whoever does not know whether it was heard."""
        while True:
            try:
                rows = await engine._access.call(lambda: engine.store.approvals.list(status="open"))
                for row in rows:
                    approves = "approve" if row.type == "approval" else None
                    run = await engine.approvals.answer(
                        *(row.id, "go on"), by=ANA, decision=approves, digest=row.digest, key=row.id
                    )
                    self.acks.put(f"answer {row.id} {run.seq}")
            except (StoreError, RefusedError) as error:
                self.told("people", error)
            await asyncio.sleep(0.01)

    async def all_ended(self, engine: Engine) -> None:
        while not await self._fewer(engine, 1) or await self._left(engine):
            await asyncio.sleep(0.02)

    async def _left(self, engine: Engine) -> bool:
        """Messages are cleared away shortly after the last run."""
        return bool(await engine._access.call(engine.store.messages.list, 1))


async def live(url: str, folder: Path, seed: str, quota: int, **settings: Any) -> None:
    load = Load(folder, seed, quota)
    opening.open_store = lambda url: Acknowledged(open_store(url), load.acks)
    wanted = EngineSettings(**{"pulse": 0.02, "lease": 1.0, **settings})
    async with opening.open(url, settings=wanted) as engine:
        for document in DOCUMENTS:
            await engine.define(document)
        load.agents(engine)
        name = f"outside-{seed}"
        others = [load.outside(engine, f"{name}-{n}") for n in range(2)]
        tasks = [asyncio.create_task(one) for one in (*others, load.people(engine))]
        try:
            await load.starter(engine, ACTIVE)
            await load.all_ended(engine)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def main(url: str, folder: str, seed: str, quota: int = 0, **settings: float) -> None:
    """One life. A database that is away while the engine opens is tried again, as whoever starts
    services does."""
    for opened in range(OPENINGS_MAX):
        try:
            asyncio.run(live(url, Path(folder), f"{seed}-{opened}", quota, **settings))
        except StoreError as error:
            if url.startswith("sqlite"):
                raise
            Lines(Path(folder) / "acks").put(f"told open {error!s}".replace("\n", "\\n"))
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(f"opened {OPENINGS_MAX} times in vain")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], *map(int, sys.argv[4:5]))
