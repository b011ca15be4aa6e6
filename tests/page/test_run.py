"""A run on the page: watched live to its end, looked into, and taken over by a person."""

import re
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, Request, expect
from tests.engine.engines import chain, node
from tests.page.samples import filled
from tests.page.site import Site
from tests.server.harness import DONE, WORKER

from handrail.engine.dispatch.dispatch import Dispatch
from handrail.kernel.result import Result

TWO = chain(node("first"), node("second"), id="two")


class Held:
    """An agent that gives its result when it is told to."""

    def __init__(self, site: Site) -> None:
        self._gates: dict[str, threading.Event] = {}
        site.employ(self._work, WORKER)

    def _work(self, dispatch: Dispatch) -> Result:
        assert self.gate(dispatch.node or "").wait(60), "somebody lets it go on"
        return DONE

    def gate(self, place: str) -> threading.Event:
        return self._gates.setdefault(place, threading.Event())


@pytest.fixture
def held(site: Site) -> tuple[Site, Held, str]:
    """A run of two tasks, at work on the first."""
    site.define(TWO)
    agent = Held(site)
    run = site.file("two", "Something long")
    return site, agent, run


def test_a_run_is_watched_live_to_its_end(held: tuple[Site, Held, str]):
    site, agent, run = held
    page = site.visit(f"/runs/{run}")
    expect(page.locator(".sentence")).to_contain_text("First is working")
    expect(page.locator(".node-now")).to_have_text("First" + WORKER + "the run is here")
    agent.gate("first").set()
    expect(page.locator(".sentence")).to_contain_text("Second is working")
    expect(page.locator(".node-done")).to_have_count(2)
    agent.gate("second").set()
    expect(page.locator(".sentence")).to_contain_text("Done")
    expect(page.locator(".node-now")).to_have_count(0)
    expect(page.locator(".lane-row")).to_have_count(2)
    assert not site.wrong


def asked_by(page: Page) -> set[str]:
    """The paths of the API about runs and beads that the page asks from now on."""
    found: set[str] = set()
    parts = ("/api/v1/executions/", "/api/v1/beads/")

    def note(request: Request) -> None:
        path = urlsplit(request.url).path
        found.update({path} if path.startswith(parts) else ())

    page.on("request", note)
    return found


def test_what_an_event_has_changed_in_a_run_is_asked_in_one_go(held: tuple[Site, Held, str]):
    site, agent, run = held
    page = site.visit(f"/runs/{run}")
    expect(page.locator(".node-now")).to_contain_text("First")
    asked = asked_by(page)
    agent.gate("first").set()
    expect(page.locator(".node-now")).to_contain_text("Second")
    expect(page.locator(".lane-row")).to_have_count(2)
    assert asked == {f"/api/v1/executions/{run}/whole"}
    agent.gate("second").set()


def test_what_the_list_shows_of_its_runs_is_asked_in_one_go(held: tuple[Site, Held, str]):
    site, agent, _ = held
    page = site.visit()
    asked = asked_by(page)
    page.goto("/runs")
    expect(page.locator(".row-bar")).to_contain_text("1 of")
    agent.gate("first").set()
    expect(page.locator(".row-bar")).to_contain_text("2 of")
    assert asked == {"/api/v1/executions/summaries"}
    agent.gate("second").set()
    expect(page.locator(".row-bar")).to_contain_text("2 steps in")


def take_over(page: Page, action: str, reason: str, more: Callable[[], object] = lambda: None):
    page.get_by_role("button", name="Override").click()
    page.get_by_role("menuitem", name=action, exact=True).click()
    dialog = page.get_by_role("dialog")
    act = dialog.get_by_role("button", name=action, exact=True)
    expect(act).to_be_disabled()
    more()
    dialog.get_by_label("Reason").fill(reason)
    act.click()
    expect(dialog).to_have_count(0)


def test_every_override_asks_for_a_reason_and_does_what_it_says(held: tuple[Site, Held, str]):
    site, agent, run = held
    site.define({**TWO, "description": "another version"})
    page = site.visit(f"/runs/{run}")
    sentence = page.locator(".sentence")
    expect(sentence).to_contain_text("First is working")

    take_over(page, "Pause", "lunch")
    expect(sentence).to_contain_text("Paused")
    take_over(page, "Resume", "after lunch")
    expect(sentence).to_contain_text("Running")
    place = page.get_by_role("dialog").locator("select")
    take_over(page, "Move", "the first is not needed", lambda: place.select_option("second"))
    expect(page.locator(".node-now")).to_contain_text("Second")
    version = page.get_by_role("dialog").locator("select").last
    take_over(page, "Migrate", "the new one", lambda: version.select_option("2"))
    expect(page.locator(".run-facts")).to_contain_text("two v2")
    take_over(page, "Close", "it is enough")
    expect(sentence).to_contain_text("Closed")

    told = [
        (one.act, one.by, one.reason) for one in site.do(site.engine.run_queries.report(run)).acts
    ]
    assert ("closed", "ana", "it is enough") in told or ("close", "ana", "it is enough") in told
    assert {reason for _, _, reason in told} >= {"lunch", "after lunch", "the new one"}
    expect(page.locator(".mark-person").first).to_be_attached()

    page.get_by_role("button", name="Override").click()
    page.get_by_role("menuitem", name="Run again").click()
    page.get_by_role("dialog").get_by_role("button", name="Run again").click()
    expect(sentence).to_contain_text("First is working")
    assert run not in page.url
    for gate in ("first", "second"):
        agent.gate(gate).set()
    expect(sentence).to_contain_text("Done")


def test_a_stuck_run_says_why_with_its_meters_graph_and_story(site: Site):
    run = site.file("helpdesk", "The printer is on fire", context={"demo": "stuck"})
    site.settled(run, "ended")
    page = site.visit(f"/runs/{run}")
    expect(page.locator(".sentence")).to_contain_text("Stuck")
    expect(page.locator(".sentence")).to_contain_text("3 times")
    expect(page.locator(".meters li").first).to_contain_text("The same handoffs in a row")
    expect(page.locator(".meters li").first).to_contain_text("ended the run")
    expect(page.locator(".node-terminator")).to_contain_text("Ticketing")
    expect(page.locator(".way-label").first).to_be_visible()

    page.locator(".lane-row").first.click()
    expect(page.locator(".detail")).to_contain_text("Step 1")
    page.get_by_role("tab", name="Report").click()
    expect(page.locator(".markdown")).to_contain_text("The printer is on fire")
    page.get_by_role("tab", name="Events").click()
    page.get_by_label("Filter events").fill("handed_off")
    expect(page.locator(".event-row code").first).to_have_text("handed_off")
    page.locator(".event-row").first.click()
    expect(page.locator(".events pre")).to_contain_text('"type": "handed_off"')
    page.get_by_role("tab", name="Context").click()
    expect(page.locator(".context")).to_contain_text("demo")
    page.get_by_role("tab", name="Files").click()
    page.get_by_label("Add a file").set_input_files(
        {"name": "log.txt", "mimeType": "text/plain", "buffer": b"on fire"}
    )
    expect(page.get_by_role("link", name="log.txt")).to_be_visible()
    assert not site.wrong


def test_the_slider_steps_through_the_history(site: Site):
    run = site.file("helpdesk", "The printer is on fire", context={"demo": "stuck"})
    site.settled(run, "ended")
    page = site.visit(f"/runs/{run}")
    page.get_by_role("button", name="Replay").click()
    slider = page.get_by_role("slider")
    expect(page.locator(".replay-told")).to_contain_text(re.compile("0 of [1-9]"))
    slider.press("ArrowRight")
    expect(page.locator(".replay-told")).to_contain_text("started")
    expect(page.locator(".node-now")).to_contain_text("Orchestrator")
    slider.press("End")
    expect(page.locator(".replay-told")).to_contain_text("ended")
    expect(page.locator(".node-failed")).to_have_count(1)
    page.get_by_role("button", name="Now", exact=True).click()
    expect(slider).to_have_count(0)


def test_runs_are_filtered_by_words_that_stay_in_the_address(site: Site):
    filled(site)
    page = site.visit("/runs")
    rows = page.locator(".row")
    expect(rows.first).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("status:stuck workflow:helpdesk")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("The printer is on fire")
    assert "q=status%3Astuck" in page.url
    page.reload()
    expect(rows).to_have_count(1)
    page.get_by_role("group", name="Filters").get_by_role("button", name="done").click()
    expect(rows).to_have_count(2)
    page.get_by_label("Search runs").fill("status:happy")
    page.get_by_label("Search runs").press("Enter")
    expect(page.get_by_text("Not understood: status:happy")).to_be_visible()


def test_new_runs_wait_behind_a_button_and_known_ones_change_in_place(site: Site):
    first = site.file("finance", "Invoice for 1 x 10")
    site.settled(first)
    page = site.visit("/runs")
    expect(page.locator(".row")).to_have_count(1)
    site.settled(site.file("finance", "Invoice for 2 x 10"))
    page.get_by_role("button", name="1 new").click()
    expect(page.locator(".row")).to_have_count(2)
    expect(page.locator(".row").first).to_contain_text("Invoice for 2 x 10")
