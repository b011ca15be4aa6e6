"""`handrail demo`: a server with the built-in teams at work on sample beads, to look at and to try.

It has a database of its own, so that the agents, which follow rules and know nothing of the world,
are never given real work.
"""

import asyncio
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from handrail.cli import words
from handrail.cli.database import complain
from handrail.cli.demo_shop import Shop
from handrail.engine.attend import Attended, Reply, Request
from handrail.engine.engine import Engine
from handrail.engine.handle import RunHandle
from handrail.kernel.decision import Value
from handrail.kernel.run.state import QuestionKind, Run
from handrail.server.routes.tokens import NewSignIn, new_sign_in
from handrail.server.serve import CannotServe, serve
from handrail.server.settings import ServerSettings
from handrail.store.port import StoreError
from handrail.teams import HEALING, employ

FILE = Path(".handrail/demo.db")
PORT = 8080
FAILED, WRONG_INPUT = 1, 2
WIDE = 180
"""Columns of a table that goes to a file or a pipe."""
QUIET = ServerSettings(log_level="critical")
SETTLING_MAX = 50
"""Looks, ten a second."""
SECONDS_MAX = 900
"""`--once` takes less than a minute; after so many something is wrong."""


class Sample(Value):
    """A bead to show one way that a definition can end. `said` are a person's answers, in turn."""

    definition: str
    title: str
    ends: str
    context: dict[str, Any] = {}
    said: tuple[str, ...] = ()
    bug: str = ""
    """Of the sample shop: its bead is filed by the shop itself, when a request fails."""


SAMPLES = (
    Sample(definition="helpdesk", title="VPN drops every hour", ends="done_success"),
    Sample(definition="helpdesk", title="I forgot my password", ends="done_success"),
    Sample(
        definition="helpdesk",
        title="The printer is on fire",
        ends="aborted_stuck",
        context={"demo": "stuck"},
    ),
    Sample(
        definition="helpdesk",
        title="Mail app crashes at start",
        ends="done_success",
        context={"demo": "ask"},
        said=("since this morning",),
    ),
    Sample(definition="coding", title="The total is off by one", ends="done_success"),
    Sample(
        definition="coding",
        title="Rates cannot be read",
        ends="aborted_stuck",
        context={"demo": "same_error"},
    ),
    Sample(
        definition="coding",
        title="Prices in dollars are wrong",
        ends="aborted_constraint",
        context={"demo": "constraint"},
    ),
    Sample(
        definition="finance",
        title="Invoice for 3 x 120.50 and 1 x 80",
        ends="done_success",
        said=("with 10% tax", "OK"),
    ),
    Sample(
        definition="finance", title="Close the month", ends="closed_by_human", said=("/reject",)
    ),
    Sample(
        definition=HEALING,
        title="NameError: name 'rate' is not defined",
        ends="done_success",
        bug="missing-self",
    ),
    Sample(
        definition=HEALING,
        title="TemplateError: a place has no value",
        ends="done_success",
        bug="template",
    ),
    Sample(
        definition=HEALING,
        title="KeyError: 'rows'",
        ends="closed_by_human",
        bug="not-reproduced",
    ),
)


def demonstrate(port: int | None, *, once: bool) -> int:
    """Serves until it is told to end, or with `once` until every sample has; the exit code."""
    show = Demonstration(once=once)
    try:
        FILE.parent.mkdir(mode=0o700, exist_ok=True)
        listening = port if port is not None else (0 if once or _is_taken(PORT) else PORT)
        code = asyncio.run(
            serve(f"sqlite:///{FILE}", port=listening, settings=QUIET, ready=show.ready)
        )
    except (CannotServe, StoreError, OSError) as error:
        complain("demo", error)
        return WRONG_INPUT
    finally:
        if show.shop is not None:
            show.shop.close()
    return code or (FAILED if show.went_wrong else 0)


def _is_taken(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


class Demonstration:
    def __init__(self, *, once: bool) -> None:
        self.once, self.went_wrong = once, False
        self.shop: Shop | None = None

    async def ready(self, engine: Engine, url: str) -> bool:
        """The server listens: to work. Whether it shall go on."""
        waits = bool((await engine.approvals(status="open", limit=1)).items) and not self.once
        bugs = tuple(sample.bug for sample in SAMPLES if sample.bug)
        self.shop = Shop(engine, url, FILE.parent / "demo-shop", bugs, again=not waits)
        await employ(engine, service=self.shop.service)
        await self.shop.open()
        if self.once:
            await self._to_the_end(engine)
            return False
        if not waits:
            for sample in SAMPLES:
                run = await self._file(engine, sample)
                if sample.bug:
                    self.shop.watch(run)
            await _settled(engine)
        waiting = len((await engine.approvals(status="open")).items)
        link = await new_sign_in(engine, NewSignIn(name="you", role="admin"), by="demo")
        print(f"Handrail is at {url}")
        print(f"Sign in, once, within 10 minutes: {url}{link.path}")
        print(f"A shop with bugs is mended while you watch; its code: {self.shop.code}")
        print(f"{waiting} questions wait for you. In another terminal, in this folder:")
        print(f"  export HANDRAIL_DATABASE=sqlite:///{FILE}")
        for command in ("runs", "answer", "show --watch RUN"):
            print(f"  {words.called()} {command}")
        print("Ctrl-C ends it.", flush=True)
        return True

    async def _to_the_end(self, engine: Engine) -> None:
        attended = [
            Attended(await self._file(engine, sample), answer=Person(sample)) for sample in SAMPLES
        ]
        async with asyncio.timeout(SECONDS_MAX):
            await asyncio.gather(*(one.to_its_end() for one in attended))
        runs = [one.run for one in attended]
        _print_table(zip(SAMPLES, runs, strict=True))
        for sample, run in zip(SAMPLES, runs, strict=True):
            if run.terminal_status != sample.ends:
                self.went_wrong = True
                told = f"'{sample.title}' ended as {run.terminal_status}, not {sample.ends}"
                print(f"handrail demo: {told}", file=sys.stderr)
        assert self.shop is not None
        for line in await self.shop.asked_again():
            print(line)

    async def _file(self, engine: Engine, sample: Sample) -> RunHandle:
        if sample.bug:
            assert self.shop is not None
            return await self.shop.provoke(sample.bug)
        return await engine.start(
            sample.definition, title=sample.title, context=sample.context, filed_by="demo"
        )


async def _settled(engine: Engine) -> None:
    """Until everything has ended or waits for somebody, or a moment has passed."""
    for _ in range(SETTLING_MAX):
        if not (await engine.executions(status="running", limit=1)).items:
            return
        await asyncio.sleep(0.1)


class Person:
    """Answers by itself: what the sample says, then yes; nobody is talked out of an escalation."""

    def __init__(self, sample: Sample) -> None:
        self._said = list(sample.said)

    def __call__(self, request: Request) -> Reply:
        said = self._said.pop(0) if self._said else ""
        escalated = request.question.kind is QuestionKind.ESCALATION
        if said == "/reject" or (escalated and not said):
            return Reply(decision="reject", text="nobody here can solve it")
        return Reply(text=said or "yes")


def _print_table(ended: Iterable[tuple[Sample, Run]]) -> None:
    table = Table()
    for name in ("definition", "bead", "ended as", "by"):
        table.add_column(name, no_wrap=True)
    table.add_column("why")
    for sample, run in ended:
        stop = run.stop
        rule, why = (stop.rule.value, stop.reason) if stop is not None else ("", "")
        row = (sample.definition, sample.title, str(run.terminal_status), rule, why)
        table.add_row(*(words.first_line(text) for text in row))
    Console(width=None if sys.stdout.isatty() else WIDE).print(table)
