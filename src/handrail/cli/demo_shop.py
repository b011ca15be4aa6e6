"""The shop of `handrail demo`: a small web app with bugs in a real repository, served by itself.

Its errors are provoked by real requests, it reports them itself, and what was mended is deployed
again and asked again.
"""

import asyncio
import time
from pathlib import Path

from handrail.engine.bugs import CLOSED
from handrail.engine.engine import Engine
from handrail.engine.handle import RunHandle
from handrail.server.routes.tokens import NewToken, new_token
from handrail.teams.healing.live import Live
from handrail.teams.healing.sample import Request, address, bugs, make_shop, shop_service

FILED_SECONDS = 300.0
"""After which an error that the shop has not reported never will be."""
OK = 200


class Shop:
    """One shop with these bugs. `again`: a new one, even if an earlier one is still there."""

    def __init__(
        self, engine: Engine, url: str, home: Path, wrong: tuple[str, ...], *, again: bool
    ) -> None:
        known = sorted(home.glob("*/shop.git"))
        if again or not known:
            folder = home / str(time.time_ns())
            self.service = make_shop(folder.resolve(), wrong)
        else:
            folder = known[-1].parent
            self.service = shop_service(folder.resolve())
        self.engine, self.url, self.folder = engine, url, folder.resolve()
        self.live: Live | None = None
        self.failed: list[Request] = []
        """The requests that were answered with an error."""
        self._deploying = asyncio.Lock()
        self._watching: set[asyncio.Task[None]] = set()

    @property
    def code(self) -> str:
        """Where its repository is."""
        return self.service.repository.url

    async def open(self) -> None:
        """It is served, and may report."""
        wanted = NewToken(role="reporter", name="shop")
        token, row = new_token(wanted, by="demo", engine=self.engine)
        await self.engine.add_credential(row)
        self.live = Live(self.service, self.folder / "live", self.url, token)
        await asyncio.to_thread(self.live.start)

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()

    async def provoke(self, bug: str) -> RunHandle:
        """The request that shows the bug is made; the run of the bead that the shop then files."""
        assert self.live is not None
        request = bugs()[bug].request
        await asyncio.to_thread(self.live.ask, request)
        self.failed.append(request)
        return await self._filed(request)

    def watch(self, run: RunHandle) -> None:
        """When that run has ended well, the shop is deployed again, and one line says so."""
        task = asyncio.get_running_loop().create_task(self._watch(run, self.failed[-1]))
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    async def _watch(self, run: RunHandle, request: Request) -> None:
        ended = await run.result()
        if ended.terminal_status == "done_success":
            async with self._deploying:
                for line in await self.asked_again(request):
                    print(line, flush=True)

    async def asked_again(self, *requests: Request) -> list[str]:
        """What these requests, or all that had failed, are answered now that the branch is deployed
        again."""
        assert self.live is not None
        await asyncio.to_thread(self.live.start)
        lines: list[str] = []
        for request in requests or self.failed:
            status = await asyncio.to_thread(self.live.ask, request)
            became = "healed" if status == OK else "left to a person"
            lines.append(f"{request.method} {address(request)}: was 500, is {status}: {became}")
        return lines

    async def _filed(self, request: Request) -> RunHandle:
        deadline = time.monotonic() + FILED_SECONDS
        while time.monotonic() < deadline:
            for bug in (await self.engine.bugs()).items:
                bead = await self.engine.bead(bug.bead_id)
                going = bead.execution_id and bug.bead_status not in CLOSED
                if going and bead.context["error"]["route"] == request.path:
                    return RunHandle(self.engine, str(bead.execution_id))
            await self.engine.feed_changed(1.0)
        raise TimeoutError(f"the shop did not report that {request.path} fails; run it again")
