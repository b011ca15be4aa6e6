"""The server of `handrail demo`, its sample beads, and its shop.

It has a database of its own, so that the agents, which follow rules and know nothing of the world,
never get real work. The shop is a small web app with bugs in a real repository, served by itself:
real requests provoke its errors, it reports them itself, and after a fix it is deployed again and
gets the same requests again.
"""

import asyncio
import socket
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from handrail.cli import output
from handrail.cli.command import print_error
from handrail.engine.engine import Engine
from handrail.engine.services.bugs import CLOSED_STATUSES
from handrail.engine.services.runs import ApprovalPrompt, InteractiveRun, PromptReply, RunHandle
from handrail.kernel.decision import Value
from handrail.kernel.run.state import ApprovalKind, Run
from handrail.server.process import serve
from handrail.server.routes.admin import NewSignIn, NewToken, issue_sign_in, issue_token
from handrail.server.settings import ServerSettings
from handrail.teams import HEALING_DEFINITION_ID, install_teams
from handrail.teams.healing.sample_server import SampleServer
from handrail.teams.healing.sample_shop import (
    ShopRequest,
    load_bugs,
    make_shop,
    request_target,
    shop_service,
)

DATABASE_FILE = Path(".handrail/demo.db")
PORT_DEFAULT = 8080
TABLE_COLUMNS = 180
"""Columns of a table that goes to a file or a pipe."""
QUIET_SETTINGS = ServerSettings(log_level="critical")
SETTLE_POLLS_MAX = 50
"""Polls, ten a second."""
ONCE_SECONDS_MAX = 900
"""`--once` takes less than a minute; after this time something is wrong."""


class DemoSample(Value):
    """A bead that shows one ending of a definition. `answers` are a person's, in turn."""

    definition: str
    title: str
    expected_status: str
    context: dict[str, Any] = {}
    answers: tuple[str, ...] = ()
    bug: str = ""
    """A bug of the sample shop: the shop itself files the bead, when a request fails."""


SAMPLES = (
    DemoSample(definition="helpdesk", title="VPN drops every hour", expected_status="done_success"),
    DemoSample(definition="helpdesk", title="I forgot my password", expected_status="done_success"),
    DemoSample(
        definition="helpdesk",
        title="The printer is on fire",
        expected_status="aborted_stuck",
        context={"demo": "stuck"},
    ),
    DemoSample(
        definition="helpdesk",
        title="Mail app crashes at start",
        expected_status="done_success",
        context={"demo": "ask"},
        answers=("since this morning",),
    ),
    DemoSample(
        definition="coding", title="The total is off by one", expected_status="done_success"
    ),
    DemoSample(
        definition="coding",
        title="Rates cannot be read",
        expected_status="aborted_stuck",
        context={"demo": "same_error"},
    ),
    DemoSample(
        definition="coding",
        title="Prices in dollars are wrong",
        expected_status="aborted_constraint",
        context={"demo": "constraint"},
    ),
    DemoSample(
        definition="finance",
        title="Invoice for 3 x 120.50 and 1 x 80",
        expected_status="done_success",
        answers=("with 10% tax", "OK"),
    ),
    DemoSample(
        definition="finance",
        title="Close the month",
        expected_status="closed_by_human",
        answers=("/reject",),
    ),
    DemoSample(
        definition=HEALING_DEFINITION_ID,
        title="NameError: name 'rate' is not defined",
        expected_status="done_success",
        bug="missing-self",
    ),
    DemoSample(
        definition=HEALING_DEFINITION_ID,
        title="TemplateError: a place has no value",
        expected_status="done_success",
        bug="template",
    ),
    DemoSample(
        definition=HEALING_DEFINITION_ID,
        title="KeyError: 'rows'",
        expected_status="closed_by_human",
        bug="not-reproduced",
    ),
)


def _is_port_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


class Demo:
    def __init__(self, *, once: bool) -> None:
        self.once, self.has_failed = once, False
        self.shop: DemoShop | None = None

    async def serve(self, port: int | None) -> int:
        """Serve until a signal, or with `once` until every sample has ended; return the exit
        code.
        """
        DATABASE_FILE.parent.mkdir(mode=0o700, exist_ok=True)
        if port is None:
            port = 0 if self.once or _is_port_taken(PORT_DEFAULT) else PORT_DEFAULT
        try:
            return await serve(
                f"sqlite:///{DATABASE_FILE}", port=port, settings=QUIET_SETTINGS, ready=self.ready
            )
        finally:
            if self.shop is not None:
                self.shop.close()

    async def ready(self, engine: Engine, url: str) -> bool:
        """Start the samples once the server listens; return whether it shall go on."""
        has_open_approvals = (
            bool((await engine.approvals.list(status="open", limit=1)).items) and not self.once
        )
        self.shop = DemoShop(
            engine,
            url,
            DATABASE_FILE.parent / "demo-shop",
            tuple(sample.bug for sample in SAMPLES if sample.bug),
            fresh=not has_open_approvals,
        )
        await install_teams(engine, service=self.shop.service)
        await self.shop.open()
        if self.once:
            await self._run_to_end(engine)
            return False
        if not has_open_approvals:
            for sample in SAMPLES:
                run = await self._file_bead(engine, sample)
                if sample.bug:
                    self.shop.watch(run)
            await _wait_until_settled(engine)
        open_count = len((await engine.approvals.list(status="open")).items)
        link = await issue_sign_in(engine, NewSignIn(name="you", role="admin"), by="demo")
        commands = ("runs", "answer", "show --watch RUN")
        lines = (
            f"Handrail is at {url}",
            f"Sign in, once, within 10 minutes: {url}{link.path}",
            f"A shop with bugs is mended while you watch; its code: {self.shop.repository_url}",
            f"{open_count} questions wait for you. In another terminal, in this folder:",
            f"  export HANDRAIL_DATABASE=sqlite:///{DATABASE_FILE}",
            *(f"  {output.program_name()} {command}" for command in commands),
            "Ctrl-C ends it.",
        )
        print("\n".join(lines), flush=True)
        return True

    async def _run_to_end(self, engine: Engine) -> None:
        interactive_runs = [
            InteractiveRun(await self._file_bead(engine, sample), answer=DemoPerson(sample))
            for sample in SAMPLES
        ]
        async with asyncio.timeout(ONCE_SECONDS_MAX):
            await asyncio.gather(
                *(interactive_run.run_to_end() for interactive_run in interactive_runs)
            )
        runs = [interactive_run.run for interactive_run in interactive_runs]
        _print_summary(zip(SAMPLES, runs, strict=True))
        for sample, run in zip(SAMPLES, runs, strict=True):
            if run.terminal_status != sample.expected_status:
                self.has_failed = True
                print_error(
                    "demo",
                    f"'{sample.title}' ended as "
                    f"{run.terminal_status}, not {sample.expected_status}",
                )
        assert self.shop is not None
        for line in await self.shop.retry_requests():
            print(line)

    async def _file_bead(self, engine: Engine, sample: DemoSample) -> RunHandle:
        if sample.bug:
            assert self.shop is not None
            return await self.shop.provoke(sample.bug)
        return await engine.start(
            sample.definition, title=sample.title, context=sample.context, filed_by="demo"
        )


async def _wait_until_settled(engine: Engine) -> None:
    """Wait until every run has ended or waits for a person, or a moment has passed."""
    for _ in range(SETTLE_POLLS_MAX):
        if not (await engine.run_queries.list(status="running", limit=1)).items:
            return
        await asyncio.sleep(0.1)


class DemoPerson:
    """Answers by itself: the sample's answers, then yes, or reject for an escalation."""

    def __init__(self, sample: DemoSample) -> None:
        self._answers = list(sample.answers)

    def __call__(self, request: ApprovalPrompt) -> PromptReply:
        answer = self._answers.pop(0) if self._answers else ""
        is_escalation = request.approval.kind is ApprovalKind.ESCALATION
        if answer == "/reject" or (is_escalation and not answer):
            return PromptReply(decision="reject", text="nobody here can solve it")
        return PromptReply(text=answer or "yes")


def _print_summary(ended: Iterable[tuple[DemoSample, Run]]) -> None:
    table = Table()
    for name in ("definition", "bead", "ended as", "by"):
        table.add_column(name, no_wrap=True)
    table.add_column("why")
    for sample, run in ended:
        stop = run.stop
        rule, why = (stop.rule.value, stop.reason) if stop is not None else ("", "")
        row = (sample.definition, sample.title, str(run.terminal_status), rule, why)
        table.add_row(*map(output.first_line, row))
    Console(width=None if sys.stdout.isatty() else TABLE_COLUMNS).print(table)


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
        token, row = issue_token(
            NewToken(role="reporter", name="shop"), by="demo", engine=self.engine
        )
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
        if (await run.result()).terminal_status == "done_success":
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
