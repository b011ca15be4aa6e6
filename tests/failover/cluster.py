"""Servers as processes, and everybody around them: people who file, agents that work, somebody who
follows everything. What they were told they keep, for the end.

Nobody here knows which server does what: each has all addresses, in an order of its own.
"""

import asyncio
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
from tests.engine.engines import chain, node

from handrail import Client, Worker
from handrail.client.clients import AsyncClient
from handrail.client.errors import ConflictError
from handrail.store.record import is_record_stream
from handrail.views.dispatches import DispatchView

SECONDS = 120
"""After so long something that should have happened has failed."""
TWO_STEPS = chain(node("write"), node("check", role="qa-engineer"), id="two-steps")
ROLES = ("backend-engineer", "qa-engineer")
IMPATIENT = {"HANDRAIL_LEASE": "5s", "HANDRAIL_HEARTBEAT": "1s", "HANDRAIL_PULSE": "0.1s"}
AGENTS, AT_ONCE, A_TURN = 4, 10, 60
"""Agents; beads that are filed at once; events that are read before the other server is asked."""


class Server:
    """`handrail serve`."""

    def __init__(
        self, database: str, folder: Path, name: str, settings: Mapping[str, str] = IMPATIENT
    ) -> None:
        kept = {name: one for name, one in os.environ.items() if not name.startswith("HANDRAIL_")}
        self.log = folder / f"{name}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "handrail", "serve", "--database", database, "--port", "0"],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**kept, **settings},
            )

    def address(self) -> str:
        """Once it listens."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"Handrail is at (http://\S+)", line)
        assert found, (line, self.log.read_text())
        return found.group(1)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Cluster:
    """Two servers on one database, and what was told to whom."""

    def __init__(self, database: str, folder: Path) -> None:
        self.database = database
        self.servers = [Server(database, folder, name) for name in ("one", "two")]
        try:
            self.addresses = [server.address() for server in self.servers]
            self.admin = self._command("token", "create", "--role", "admin").strip()
        except BaseException:
            self.close()
            raise
        self.filed: dict[str, str] = {}
        """Beads that were acknowledged, with their runs."""
        self.begun: Counter[tuple[str, int]] = Counter()
        """Dispatches that an agent has begun to work on."""
        self.reported: set[tuple[str, int]] = set()
        """Results that were acknowledged."""
        self.seen: list[str] = []
        """Positions of the feed, in the order in which they came."""

    def close(self) -> None:
        for server in self.servers:
            server.close()

    def _command(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "handrail", *arguments, "--database", self.database]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def check(self) -> str:
        """What `verify` and `doctor` say; raises if anything is wrong."""
        return self._command("verify") + self._command("doctor")

    def order(self, number: int) -> list[str]:
        return self.addresses[number % 2 :] + self.addresses[: number % 2]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AsyncClient]:
        """Everybody at work; a client of the admin."""
        async with Client(self.addresses, self.admin, patience=SECONDS) as client:
            await client.definitions.create(TWO_STEPS)
            going = [self._follow()]
            for number in range(AGENTS):
                name = f"agent-{number}"
                token = (await client.tokens.create("agent", agent=name)).token
                going.append((self._worker if number < AGENTS / 2 else self._agent)(name, token))
            tasks = [asyncio.create_task(one) for one in going]
            try:
                yield client
                assert not [task for task in tasks if task.done()], "somebody has stopped"
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _worker(self, name: str, token: str) -> None:
        """As one writes an agent."""
        order = self.order(int(name[-1]))
        worker = Worker(order, token, agent_id=name, heartbeat=1, concurrency=5)

        async def work(dispatch: DispatchView) -> dict[str, Any]:
            self.begun[dispatch.execution_id, dispatch.fence] += 1
            await asyncio.sleep(0.01)
            return {"outcome": "success", "text": f"done by {name}"}

        worker.add(work, *ROLES)
        await worker.run()

    async def _agent(self, name: str, token: str) -> None:
        """Call by call, so that it is known what was acknowledged."""
        async with Client(self.order(int(name[-1])), token, patience=SECONDS) as client:
            await client.agents.register(name, ROLES)
            while True:
                dispatch = await client.dispatches.claim(name, wait=1, holding=())
                if dispatch is None:
                    continue
                assert isinstance(dispatch, DispatchView)
                done = dispatch.execution_id, dispatch.fence
                self.begun[done] += 1
                try:
                    result = {"outcome": "success", "text": f"done by {name}"}
                    await client.dispatches.report(dispatch.id, dispatch.fence, result)
                except ConflictError:
                    continue  # it was taken before the answer was lost, or taken away meanwhile
                self.reported.add(done)

    async def file(self, client: AsyncClient, number: int) -> None:
        """So many beads, some at once; each under a key, so that whoever is not answered can ask
        again."""
        places = asyncio.Semaphore(AT_ONCE)

        async def one() -> None:
            async with places:
                bead = await client.beads.create("a bug", workflow_id="two-steps")
                assert bead.execution_id is not None
                self.filed[bead.id] = bead.execution_id

        await asyncio.gather(*(one() for _ in range(number)))

    async def _follow(self) -> None:
        """Everything, at one server after the other, each time from where the last one stopped."""
        turn = 0
        while True:
            turn += 1
            try:
                await self._read(self.order(turn)[0])
            except httpx.TransportError:
                await asyncio.sleep(0.05)

    async def _read(self, address: str) -> None:
        position = {"Last-Event-ID": self.seen[-1]} if self.seen else {}
        headers = {"Authorization": f"Bearer {self.admin}", **position}
        wanted = "/api/v1/events" if self.seen else "/api/v1/events?after=0"
        left = A_TURN
        async with (
            httpx.AsyncClient(timeout=10) as http,
            http.stream("GET", address + wanted, headers=headers) as answer,
        ):
            if answer.status_code == 503:
                raise httpx.ReadError("the database is away")
            assert answer.status_code == 200, await answer.aread()
            at = event = ""
            async for line in answer.aiter_lines():
                if line.startswith("id: "):
                    at = line.removeprefix("id: ")
                elif line.startswith("event: "):
                    event = line
                elif not line and event:
                    self.seen.append(at)
                    event, left = "", left - 1
                    if not left:
                        return

    async def followed(self) -> list[str]:
        """Positions of all events, once the follower has come to the last one."""
        wanted = positions(self.database)
        async with asyncio.timeout(SECONDS):
            while not self.seen or self.seen[-1] != wanted[-1]:
                await asyncio.sleep(0.05)
        return wanted


def positions(database: str) -> list[str]:
    """Of all events that are stored, from the tables, but for what is on record of rows: streams of
    events leave that out."""
    found: list[str] = []
    counts: Counter[int] = Counter()
    with psycopg.connect(database, target_session_attrs="read-write") as db:
        rows = db.execute("""SELECT c.n, j.stream, j.count FROM commits c JOIN journal j
            ON j.batch = c.batch AND j.id BETWEEN c.first_id AND c.last_id
            ORDER BY c.n, j.id""")
        for n, stream, count in rows:
            for _ in range(count):
                counts[n] += 1
                if not is_record_stream(stream):
                    found.append(f"{n}-{counts[n]}")
    return found
