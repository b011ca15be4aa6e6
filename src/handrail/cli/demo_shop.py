"""The shop of `handrail demo`: a small web app with bugs in a real repository, served by itself.

Real requests provoke its errors, it reports them itself, and after a fix it is deployed again and
gets the same requests again.
"""

import asyncio
import time
from pathlib import Path

from handrail.engine.engine import Engine
from handrail.engine.services.bugs import CLOSED_STATUSES
from handrail.engine.services.run_handle import RunHandle
from handrail.server.routes.tokens import NewToken, issue_token
from handrail.teams.healing.sample_server import SampleServer
from handrail.teams.healing.sample_shop import (
    ShopRequest,
    load_bugs,
    make_shop,
    request_target,
    shop_service,
)

REPORT_SECONDS_MAX = 300.0
"""After this time the shop will not report an error any more."""
STATUS_OK = 200


class DemoShop:
    """One shop with these bugs. `fresh`: a new one, even if an earlier one is still there."""

    def __init__(
        self, engine: Engine, url: str, home: Path, bug_names: tuple[str, ...], *, fresh: bool
    ) -> None:
        existing = sorted(home.glob("*/shop.git"))
        if fresh or not existing:
            folder = home / str(time.time_ns())
            self.service = make_shop(folder.resolve(), bug_names)
        else:
            folder = existing[-1].parent
            self.service = shop_service(folder.resolve())
        self.engine, self.url, self.folder = engine, url, folder.resolve()
        self.live: SampleServer | None = None
        self.failed_requests: list[ShopRequest] = []
        """The requests that failed."""
        self._deploy_lock = asyncio.Lock()
        self._watch_tasks: set[asyncio.Task[None]] = set()

    @property
    def repository_url(self) -> str:
        """The address of its repository."""
        return self.service.repository.url

    async def open(self) -> None:
        """Serve the shop, with a credential to report."""
        token_request = NewToken(role="reporter", name="shop")
        token, row = issue_token(token_request, by="demo", engine=self.engine)
        await self.engine.credentials.add(row)
        self.live = SampleServer(self.service, self.folder / "live", self.url, token)
        await asyncio.to_thread(self.live.start)

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()

    async def provoke(self, bug: str) -> RunHandle:
        """Send the request that shows the bug; return the run of the bead that the shop then
        files.
        """
        assert self.live is not None
        request = load_bugs()[bug].request
        await asyncio.to_thread(self.live.send, request)
        self.failed_requests.append(request)
        return await self._wait_for_run(request)

    def watch(self, run: RunHandle) -> None:
        """When that run has ended well, deploy the shop again, and print one line."""
        task = asyncio.get_running_loop().create_task(
            self._redeploy_after(run, self.failed_requests[-1])
        )
        self._watch_tasks.add(task)
        task.add_done_callback(self._watch_tasks.discard)

    async def _redeploy_after(self, run: RunHandle, request: ShopRequest) -> None:
        run_view = await run.result()
        if run_view.terminal_status == "done_success":
            async with self._deploy_lock:
                for line in await self.retry_requests(request):
                    print(line, flush=True)

    async def retry_requests(self, *requests: ShopRequest) -> list[str]:
        """Deploy the branch, repeat these requests, or all that had failed, and return the
        responses.
        """
        assert self.live is not None
        await asyncio.to_thread(self.live.start)
        lines: list[str] = []
        for request in requests or self.failed_requests:
            status = await asyncio.to_thread(self.live.send, request)
            verdict = "healed" if status == STATUS_OK else "left to a person"
            lines.append(
                f"{request.method} {request_target(request)}: was 500, is {status}: {verdict}"
            )
        return lines

    async def _wait_for_run(self, request: ShopRequest) -> RunHandle:
        deadline = time.monotonic() + REPORT_SECONDS_MAX
        while time.monotonic() < deadline:
            for bug in (await self.engine.bugs.list()).items:
                bead = await self.engine.beads.get(bug.bead_id)
                is_open = bead.execution_id and bug.bead_status not in CLOSED_STATUSES
                if is_open and bead.context["error"]["route"] == request.path:
                    return self.engine.run(str(bead.execution_id))
            await self.engine.feed.wait(1.0)
        raise TimeoutError(f"the shop did not report that {request.path} fails; run it again")
