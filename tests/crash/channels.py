"""Channels on two servers and one PostgreSQL, while the processes of their agents are stopped.

    python -m tests.crash.channels --channels 60 --stops 6 --folder FOLDER

Worker processes get SIGSTOP in the middle of their turns, and SIGCONT sooner or later than anybody
waits for them; a person talks meanwhile, in all four modes. Then the record is read from its first
event, beside what the agents and the person know. Prints one JSON object; exits 1 if anything is
wrong.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from tests.crash.channels_record import Notes, Record
from tests.engine.engines import PATIENCE
from tests.failover.cluster import Server

from handrail import Client
from handrail.client.clients import AsyncClient
from handrail.client.errors import ConflictError, NotFoundError
from handrail.testing.postgres import PostgresServer

MODES = ("queue", "interrupt", "inject", "parallel")
ORDERS = ("round_robin", "priority")
MEMBERS = 5
SCARCE = {0: 1, 1: 2}
"""Of every ten agents the capacity of the first two; the others can talk everywhere at once."""
AT_ONCE = 16
AFTER = MEMBERS
"""Turns that a channel takes after a word of the person; then it rests. When nobody is stopped any
more, every channel takes them once again."""
MINUTES = 20
"""After so long something is stuck."""


@dataclass(frozen=True)
class Plan:
    channels: int
    agents: int
    processes: int
    stops: int
    lease: float
    seed: int = 1

    @property
    def settings(self) -> dict[str, str]:
        return {
            "HANDRAIL_LEASE": f"{self.lease:g}s",
            "HANDRAIL_OFFLINE_AFTER": f"{self.lease:g}s",
            "HANDRAIL_HEARTBEAT": f"{self.lease / 3:g}s",
            "HANDRAIL_PULSE": f"{self.lease / 15:g}s",
            "HANDRAIL_RATE_LIMIT": "1000000",
            "HANDRAIL_LOG_LEVEL": "warning",
        }

    def agent(self, n: int) -> str:
        return f"agent-{n % self.agents}"

    def capacity(self, n: int) -> int:
        return SCARCE.get(n % 10, self.channels)

    def config(self, n: int) -> dict[str, Any]:
        """In every other one a turn is over before its agent counts as lost."""
        return {
            "humanInterruptMode": MODES[n % 4],
            "order": ORDERS[n % 2],
            "defaultTimeoutSeconds": 0.6 * self.lease if n // 4 % 2 else 60,
            "waitTimeoutSeconds": self.lease / 2,
            "maxAgentTurns": AFTER,
        }

    def rooms(self) -> dict[str, list[str]]:
        """Channel -> its members, so that an agent meets many others."""
        strides = range(1, 1 + max(1, self.agents // MEMBERS))
        return {
            f"room-{n}": [
                self.agent(n + k * strides[n // self.agents % len(strides)]) for k in range(MEMBERS)
            ]
            for n in range(self.channels)
        }


@dataclass
class Play:
    plan: Plan
    database: str
    folder: Path
    notes: Notes = field(default_factory=Notes)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.plan.seed)
        self.words = count(1)
        self.rooms = self.plan.rooms()

    async def through(self) -> dict[str, Any]:
        with ExitStack() as stack:
            names = ("one", "two")
            servers = [Server(self.database, self.folder, n, self.plan.settings) for n in names]
            for server in servers:
                stack.callback(server.close)
            self.addresses = [server.address() for server in servers]
            stack.callback(self._end)
            admin = self._command("token", "create", "--role", "admin", "--name", "ana").strip()
            async with Client(self.addresses, admin, timeout=60, patience=PATIENCE) as client:
                await self._furnish(client)
                figures = await self._talk(client)
            self._end()
        self.notes.read(self.folder.glob("worker-*.jsonl"))
        record = Record(self.database, self._capacities(), self.notes)
        record.read()
        checked = self._command("verify") + self._command("doctor")
        return {**figures, **record.figures(), "wrong": record.wrong, "checked": checked}

    def _command(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "handrail", *arguments, "--database", self.database]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def _capacities(self) -> dict[str, int]:
        return {self.plan.agent(n): self.plan.capacity(n) for n in range(self.plan.agents)}

    # Everybody comes

    async def _furnish(self, client: AsyncClient) -> None:
        """Nobody talks before everybody is there."""
        names = list(self.rooms)
        await _all(
            client.channels.create(name, self.plan.config(n)) for n, name in enumerate(names)
        )
        await _all(client.channels.control_turn(name, "pause") for name in names)
        await self._hire(client)
        wanted = set(self._capacities())
        await _until(lambda: _registered(client, wanted))
        await _all(
            _seated(client, name, agent, n)
            for name, members in self.rooms.items()
            for n, agent in enumerate(members)
        )
        await _all(client.channels.control_turn(name, "unpause") for name in names)

    async def _hire(self, client: AsyncClient) -> None:
        teams: list[dict[str, Any]] = [{} for _ in range(self.plan.processes)]
        for n, (agent, capacity) in enumerate(self._capacities().items()):
            token = (await client.tokens.create("agent", agent=agent)).token
            channels = [name for name, members in self.rooms.items() if agent in members]
            wanted = {"token": token, "capacity": capacity, "channels": channels}
            teams[n % len(teams)][agent] = wanted
        for n, team in enumerate(teams):
            order = self.addresses[n % 2 :] + self.addresses[: n % 2]
            beat, record = f"{self.plan.lease / 4:g}", self.folder / f"worker-{n}.jsonl"
            program = [sys.executable, "-m", "tests.crash.channels_worker", ",".join(order), beat]
            with (self.folder / f"worker-{n}.log").open("w") as log:
                worker = subprocess.Popen(
                    [*program, str(record)], stdin=subprocess.PIPE, stdout=log, stderr=log
                )
            self.workers.append(worker)
            assert worker.stdin is not None
            worker.stdin.write(json.dumps(team).encode())
            worker.stdin.close()

    def _end(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()
        self.workers = []

    # They talk, and are stopped

    async def _talk(self, client: AsyncClient) -> dict[str, Any]:
        began, before = time.monotonic(), await _turns(client)
        person = asyncio.create_task(self._person(client))
        stopped = await self._stop_some()
        await self._stop_completing(client)
        after = await _turns(client)
        seconds = time.monotonic() - began
        person.cancel()
        await asyncio.gather(person, return_exceptions=True)
        await _all(self._goes_on(client, name) for name in self.rooms)
        assert all(worker.poll() is None for worker in self.workers), "a worker has ended"
        taken = sum(after.values()) - sum(before.values())
        return {
            "channels": len(after),
            "stops": len(stopped),
            "stopped_seconds": round(sum(stopped), 1),
            "seconds": round(seconds, 1),
            "turns_per_s_meanwhile": round(taken / seconds, 1),
        }

    async def _stop_some(self) -> list[float]:
        """One after the other; sometimes another is stopped already."""
        stopped: list[float] = []

        async def stop(worker: subprocess.Popen[bytes], seconds: float) -> None:
            worker.send_signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(seconds)
            finally:
                worker.send_signal(signal.SIGCONT)
            stopped.append(seconds)

        async with asyncio.TaskGroup() as group:
            for n in range(self.plan.stops):
                worker = self.workers[n % len(self.workers)]
                seconds = self.plan.lease * self.chance.choice((0.2, 0.8, 1.5, 2))
                group.create_task(stop(worker, seconds))
                await asyncio.sleep(self.plan.lease * self.chance.uniform(0.3, 1))
        return stopped

    async def _stop_completing(self, client: AsyncClient) -> None:
        """A process has the end of a turn on its lips until the turn is over without it."""
        worker, record = self.workers[0], self.folder / "worker-0.jsonl"
        worker.send_signal(signal.SIGUSR1)
        stops: list[tuple[str, int]] = []

        async def stopped() -> str:
            lines = map(json.loads, record.read_text(encoding="utf-8").splitlines())
            stops.extend((channel, turn) for what, channel, turn, *_ in lines if what == "stops")
            return "" if stops else "nobody completes a turn"

        async def over() -> str:
            channel, number = stops[0]
            turn = (await client.channels.get(channel)).turn
            gone_on = turn is None or turn.number != number
            return "" if gone_on else f"turn {number} of {channel} does not end: {turn}"

        try:
            await _until(stopped)
            await _until(over)
        finally:
            worker.send_signal(signal.SIGCONT)

    async def _person(self, client: AsyncClient) -> None:
        """Says something here and there; half of the turns that it interrupts it lets go on."""
        names = list(self.rooms)
        for _ in range(1_000_000):
            name = self.chance.choice(names)
            await self._say(client, name)
            if self.chance.random() < 0.5:
                turn = (await client.channels.get(name)).turn
                with suppress(ConflictError):
                    if turn is not None and turn.interrupted:
                        await client.channels.control_turn(name, "resume", agent_id=turn.agent_id)
            await asyncio.sleep(0.02)

    async def _say(self, client: AsyncClient, channel: str) -> None:
        text = f"ana {next(self.words)}"
        self.notes.says.add((channel, text))
        await client.channels.post(channel, text)
        self.notes.said.add((channel, text))

    async def _goes_on(self, client: AsyncClient, channel: str) -> None:
        wanted = (await client.channels.get(channel)).turns + AFTER
        await self._say(client, channel)

        async def gone_on() -> str:
            view = await client.channels.get(channel)
            if view.resting:  # it came to its rest before the word was heard
                await self._say(client, channel)
            return "" if view.turns >= wanted else f"turns do not go on: {view}"

        await _until(gone_on)


async def _all(calls: Iterable[Awaitable[object]]) -> None:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(call: Awaitable[object]) -> None:
        async with places:
            await call

    await asyncio.gather(*(one(call) for call in calls))


async def _until(done: Callable[[], Awaitable[str]]) -> None:
    """Until nothing is missing any more."""
    until, missing = time.monotonic() + max(PATIENCE, 60 * MINUTES), "?"
    while time.monotonic() < until:
        missing = await done()
        if not missing:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(missing)


async def _seated(client: AsyncClient, channel: str, agent: str, priority: int) -> None:
    """Also one that a busy machine has kept silent for a lease."""

    async def joined() -> str:
        try:
            await client.channels.join(channel, agent, priority=priority)
        except ConflictError as error:
            return str(error)
        return ""

    await _until(joined)


async def _registered(client: AsyncClient, wanted: set[str]) -> str:
    for agent in sorted(wanted):
        try:
            await client.agents.get(agent)
        except NotFoundError:
            return f"{agent} is not registered"
    return ""


async def _turns(client: AsyncClient) -> dict[str, int]:
    return {one.id: one.turns async for one in client.each(client.channels.list, limit=100)}


def main() -> int:
    reading = argparse.ArgumentParser()
    reading.add_argument("--channels", type=int, default=60)
    reading.add_argument("--agents", type=int, default=30)
    reading.add_argument("--processes", type=int, default=3)
    reading.add_argument("--stops", type=int, default=6)
    reading.add_argument("--lease", type=float, default=4)
    reading.add_argument("--seed", type=int, default=1)
    reading.add_argument("--folder", type=Path, required=True)
    given = vars(reading.parse_args())
    folder = given.pop("folder")
    folder.mkdir(parents=True, exist_ok=True)
    with PostgresServer() as server:
        found = asyncio.run(Play(Plan(**given), server.create_database(), folder).through())
    print(json.dumps(found))
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    os.environ.setdefault("HANDRAIL_PATIENCE", "120")
    sys.exit(main())
