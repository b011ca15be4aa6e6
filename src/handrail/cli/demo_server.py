"""The server of `handrail demo`, and its sample beads.

It has a database of its own, so that the agents, which follow rules and know nothing of the world,
never get real work.
"""

import asyncio
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from handrail.cli import formatting
from handrail.cli.command import print_error
from handrail.cli.demo_shop import DemoShop
from handrail.engine.engine import Engine
from handrail.engine.interactive_run import ApprovalPrompt, InteractiveRun, PromptReply
from handrail.engine.services.run_handle import RunHandle
from handrail.kernel.decision import Value
from handrail.kernel.run.state import ApprovalKind, Run
from handrail.server.process import serve
from handrail.server.routes.tokens import NewSignIn, issue_sign_in
from handrail.server.settings import ServerSettings
from handrail.teams import HEALING_DEFINITION_ID, install_teams

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
        url = f"sqlite:///{DATABASE_FILE}"
        try:
            return await serve(url, port=port, settings=QUIET_SETTINGS, ready=self.ready)
        finally:
            if self.shop is not None:
                self.shop.close()

    async def ready(self, engine: Engine, url: str) -> bool:
        """Start the samples once the server listens; return whether it shall go on."""
        has_open_approvals = (
            bool((await engine.approvals.list(status="open", limit=1)).items) and not self.once
        )
        bugs = tuple(sample.bug for sample in SAMPLES if sample.bug)
        self.shop = DemoShop(
            engine, url, DATABASE_FILE.parent / "demo-shop", bugs, fresh=not has_open_approvals
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
            *(f"  {formatting.program_name()} {command}" for command in commands),
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
                status = f"{run.terminal_status}, not {sample.expected_status}"
                print_error("demo", f"'{sample.title}' ended as {status}")
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
        table.add_row(*(formatting.first_line(text) for text in row))
    Console(width=None if sys.stdout.isatty() else TABLE_COLUMNS).print(table)
