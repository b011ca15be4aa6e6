"""Several tabs of one browser: what one has asked for, the others are told."""

from playwright.sync_api import Page, Route, expect
from tests.engine.engines import chain, node
from tests.page.site import Site

from handrail.kernel.run.commands import Pause
from handrail.kernel.run.state import Person

SEVERAL = 6
OPENED_MS = 120_000
PAUSE = Pause(by=Person(name="ana", role="ceo"), reason="look")


def several(site: Site) -> tuple[str, list[Page]]:
    """A run, and tabs of one person that each show it."""
    site.define(chain(node("wait"), id="one"))
    run = site.file("one", "Open several times")
    first = site.visit(f"/runs/{run}")
    tabs = [first, *(first.context.new_page() for _ in range(SEVERAL - 1))]
    for tab in tabs[1:]:
        tab.goto(f"/runs/{run}", wait_until="commit")
    for tab in tabs:
        tab.get_by_text("live", exact=True).wait_for(timeout=OPENED_MS)
        tab.locator(".sentence .state").wait_for(timeout=OPENED_MS)
    return run, tabs


def test_of_the_tabs_of_a_browser_one_asks_and_the_others_are_told(site: Site):
    run, tabs = several(site)
    asked: list[str] = []
    tabs[0].context.on("request", lambda one: asked.append(one.url))
    site.do(site.engine.runs.override(run, PAUSE))
    for tab in tabs:
        expect(tab.locator(".sentence .state")).to_have_text("Paused")
    of_run = [one for one in asked if run in one]
    print(f"{len(tabs)} tabs have asked {len(of_run)} times")
    assert 0 < len(of_run) < len(tabs)


def test_a_tab_whose_question_hangs_keeps_no_other_from_knowing(site: Site):
    run, tabs = several(site)
    hung: list[Route] = []

    def hang_once(route: Route) -> None:
        if hung:
            route.continue_()
        else:
            hung.append(route)

    tabs[0].context.route("**/whole", hang_once)
    site.do(site.engine.runs.override(run, PAUSE))
    for tab in tabs:
        expect(tab.locator(".sentence .state")).to_have_text("Paused")
    (one,) = hung
    one.abort()
