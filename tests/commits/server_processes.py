"""Servers on one PostgreSQL, to be killed and replaced, and a person who answers over HTTP, at
whichever of them is alive."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import psutil
from tests.commits.bead_workers import FIX, decide_answer
from tests.commits.sample_repository import Gate, SampleRepository
from tests.patience import PATIENCE, wait_until_async

from handrail import Client
from handrail.client.clients import AsyncClient
from handrail.client.errors import ConflictError

CREW = Path(__file__).with_name("bead_workers.py")
WORKERS = ("0,1,2", "3,4")
"""Five, between two servers."""
SECONDS = 30 * PATIENCE
TRIES = 5


async def wait_for_processes(holds: Callable[[], object]) -> None:
    """Until other processes have come so far."""
    await wait_until_async(holds, SECONDS)


class Server:
    """A process; it listens once it has told its address. `words` are those after `python`."""

    def __init__(self, words: Sequence[str], variables: Mapping[str, str], folder: Path) -> None:
        self.words, self.variables = words, variables
        self.log, self.told = folder / f"server-{time.monotonic_ns()}.log", ""
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, *words],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **variables},
            )

    async def address(self) -> str:
        assert self.process.stdout is not None
        self.told = self.told or await asyncio.to_thread(self.process.stdout.readline)
        found = re.search(r"http://\S+", self.told)
        assert found, (self.told, self.log.read_text())
        return found.group()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Servers:
    """Those that are alive now. `client` is the person's, and knows them all."""

    client: AsyncClient

    def __init__(self, url: str, folder: Path, stack: AsyncExitStack) -> None:
        self.url, self.folder, self._stack = url, folder, stack
        self.kills = self.filed = 0
        self.token = self.command("token", "create", "--role", "ceo", "--name", "ana").strip()
        self.alive: list[Server] = []

    def command(self, *words: str) -> str:
        """A command on the database; raises unless all is well."""
        command = [sys.executable, "-m", "handrail", *words, "--database", self.url]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def begin(self, words: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
        begun = Server(words, variables or {}, self.folder)
        self._stack.callback(begun.kill)
        self.alive.append(begun)

    async def heard(self) -> None:
        """All listen; from now on they are asked there."""
        addresses = [await server.address() for server in self.alive]
        known = Client(addresses, self.token, patience=SECONDS)
        self.client = await self._stack.enter_async_context(known)

    async def holder(self, gate: Gate) -> Server:
        """The server that stands at the gate. One that lost its lease meanwhile, on a busy machine,
        stops what it did; then the next one comes."""
        for _ in range(TRIES):
            gate.shut()
            await wait_for_processes(lambda: gate.reached)
            with suppress(psutil.NoSuchProcess):
                above = {one.pid for one in psutil.Process(gate.pid).parents()}
                for server in self.alive:
                    if server.process.pid in above:
                        return server
            await asyncio.to_thread(gate.open)
        raise AssertionError("nobody stays at the gate")

    async def kill(self, server: Server) -> None:
        """SIGKILL, and another one in its place."""
        server.kill()
        self.kills += 1
        self.alive.remove(server)
        self.begin(server.words, server.variables)
        await self.heard()

    async def file(self, number: int) -> None:
        for n in range(self.filed, self.filed + number):
            await self.client.beads.create(f"Bug {n}", workflow_id=FIX["id"], context={"n": n})
        self.filed += number

    async def ended(self) -> list[str]:
        """How each run ended, once all have."""
        async with asyncio.timeout(SECONDS):
            while True:
                found = [run async for run in self.client.each(self.client.runs.list)]
                if len(found) == self.filed and all(run.status == "ended" for run in found):
                    return [str(run.terminal_status) for run in found]
                await asyncio.sleep(0.2)

    async def answer(self) -> None:
        """Whatever is asked, until somebody stops it."""
        while True:
            open_ = await self.client.approvals.list(status="open")
            for asked in open_.items:
                decision, text = decide_answer(asked.type, asked.question)
                with suppress(ConflictError):  # settled meanwhile, or not any more the same
                    if decision == "move":
                        run = asked.execution_id
                        await self.client.runs.override(run, "move", text, node="fix")
                    else:
                        await self.client.approvals.answer(asked.id, text, decision=decision)
            await asyncio.sleep(0.1)


@asynccontextmanager
async def open_servers(url: str, folder: Path) -> AsyncIterator[Servers]:
    """None yet; those that are begun end with it."""
    async with AsyncExitStack() as stack:
        yield Servers(url, folder, stack)


@asynccontextmanager
async def open_crewed_servers(
    url: str, folder: Path, sample: SampleRepository
) -> AsyncIterator[Servers]:
    """Two, with the crew's five workers between them, and the person at work."""
    async with open_servers(url, folder) as servers:
        for workers in WORKERS:
            servers.begin([str(CREW), "serve", url, str(folder), str(sample.bare), workers])
        await servers.heard()
        answering = asyncio.create_task(servers.answer())
        try:
            yield servers
            assert not answering.done(), answering.exception()
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
            for gate in sample.gates.values():
                gate.open()
