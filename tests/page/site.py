"""A server with the built-in teams at work, and whoever visits its page.

    def test_ok_approves(site: Site):
        site.file("finance", "Invoice for 3 x 120.50")
        page = site.visit()
        ...

What a page does is waited for by what it shows, never by time.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.client.live_server import Server
from tests.patience import PATIENCE

from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.settings import EngineSettings
from handrail.kernel.result import Result
from handrail.server.routes.admin import NewSignIn, issue_sign_in
from handrail.server.settings import ServerSettings
from handrail.teams import BUILTIN_IDS, install_teams

WIDE, NARROW = (1280, 800), (390, 844)
SECONDS = 1_000 * PATIENCE
"""How long a test waits for what should be there, in milliseconds."""

SILENT_SECONDS = 3_600.0
"""Agents of a test say nothing between their turns, and are there all the same."""

expect.set_options(timeout=SECONDS)


class Site(Server):
    def __init__(self, database: str, browser: Browser, teams: Sequence[str] = BUILTIN_IDS) -> None:
        settings = ServerSettings(drain=0)
        engine = EngineSettings(pulse=0.05, lease=SILENT_SECONDS, offline_after=SILENT_SECONDS)
        super().__init__(database, engine=engine, settings=settings)
        self.browser, self.teams = browser, teams
        self._contexts: list[BrowserContext] = []
        self.wrong: list[str] = []
        """Of any page: exceptions, and what the Content-Security-Policy kept out."""

    def __enter__(self) -> "Site":
        self.start()
        self.do(install_teams(self.engine, self.teams))
        return self

    def __exit__(self, *_: object) -> None:
        self.close_pages()
        self.stop()

    def close_pages(self) -> None:
        """Whoever comes next finds no page open."""
        while self._contexts:
            self._contexts.pop().close()
        self.wrong.clear()

    def file(self, definition: str, title: str = "", **more: Any) -> str:
        """A run of that definition; its id."""
        return self.do(self.engine.start(definition, title=title, filed_by="olga", **more)).id

    def define(self, document: dict[str, Any]) -> None:
        self.do(self.engine.define(document, by="ana"))

    def employ(self, work: Callable[[Dispatch], Result], role: str) -> None:
        """From now on this function does all work of the role."""

        async def add() -> None:
            await self.engine.add_agent(work, role, name=role)

        self.do(add())

    def settled(self, run: str, *statuses: str) -> Any:
        """The run, once it stands so."""
        wanted, end = statuses or ("waiting", "ended"), time.monotonic() + PATIENCE
        while (view := self.do(self.engine.run_queries.view(run))).status not in wanted:
            assert time.monotonic() < end, f"run {run} is {view.status}, not {wanted}"
            self.do(self.engine.runs.wait(run, 0.05))
        return view

    def patience(self, run: str) -> None:
        """Until a long run has ended."""
        for _ in range(60):
            if self.do(self.engine.runs.wait(run, 5)).has_ended:
                return
        raise AssertionError(f"run {run} goes on and on")

    def sign_in_path(self, name: str = "ana", role: Any = "ceo") -> str:
        wanted = NewSignIn(name=name, role=role)
        return self.do(issue_sign_in(self.engine, wanted, by="test")).path

    def context(
        self, size: tuple[int, int] = WIDE, scheme: Any = "light", **more: Any
    ) -> BrowserContext:
        context = self.browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=scheme,
            base_url=self.url,
            reduced_motion="reduce",
            **more,
        )
        context.set_default_timeout(SECONDS)
        self._contexts.append(context)
        return context

    def visit(
        self, path: str = "/inbox", *, name: str = "ana", role: Any = "ceo", **more: Any
    ) -> Page:
        """A page at that place, signed in through a one-time link."""
        page = self.context(**more).new_page()
        self.watch(page)
        page.goto(self.sign_in_path(name, role))
        page.wait_for_url("**/inbox**")
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        if path != "/inbox":
            page.goto(path)
        return page

    def watch(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda told: self._said(told.type, told.text))

    def _said(self, kind: str, text: str) -> None:
        if kind == "error" and ("Content Security" in text or "Content-Security" in text):
            self.wrong.append(text)
