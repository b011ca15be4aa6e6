"""The other views: definitions and their editor, agents, metrics, memory, audit, and the frame."""

import json
from typing import Any

from playwright.sync_api import expect
from tests.page.samples import ROOM
from tests.page.site import NARROW, Site


def test_a_definition_shows_its_graph_and_what_a_run_can_cost_at_most(site: Site):
    page = site.visit("/definitions")
    page.get_by_role("link", name="auto-bug-workflow").click()
    expect(page.locator(".certificate")).to_contain_text("At most 84 dispatches")
    expect(page.locator(".node")).to_have_count(7)
    expect(page.locator(".way-label", has_text="rework 0/3")).to_be_visible()
    expect(page.locator("path.way-back")).to_have_count(3)


def test_an_error_stands_at_its_line_while_it_is_typed_and_a_valid_text_becomes_a_version(
    site: Site,
):
    page = site.visit("/definitions/auto-bug-workflow?tab=edit", role="ceo")
    text = page.get_by_label("The definition as JSON")
    expect(page.locator(".valid")).to_be_visible()
    document = json.loads(text.input_value())
    wrong = {**document, "nodes": [dict(one) for one in document["nodes"]]}
    wrong["nodes"][1].pop("role")
    text.fill(json.dumps(wrong, indent=2))
    expect(page.locator(".invalid")).to_contain_text("1 error")
    mark = page.locator(".marks button").first
    expect(mark).to_contain_text("has no role")
    line = int(mark.inner_text().split(":")[0].removeprefix("Line "))
    assert "{" in json.dumps(wrong, indent=2).splitlines()[line - 1]
    expect(page.locator(".gutter-error")).to_have_text(str(line))
    expect(page.get_by_role("button", name="Save as a new version")).to_be_disabled()
    page.reload()
    expect(page.locator(".invalid"), "what was typed is still there").to_contain_text("1 error")
    text.fill("{ no json")
    expect(page.locator(".invalid")).to_contain_text("not JSON")
    text.fill(json.dumps({**document, "description": "From an error to a fix."}, indent=2))
    page.get_by_role("button", name="Save as a new version").click()
    expect(page.get_by_text("version 2, by ana")).to_be_visible()
    page.get_by_role("tab", name="Versions").click()
    expect(page.locator(".diff-new")).to_contain_text("From an error to a fix.")


def test_a_definition_is_written_as_yaml_too_with_errors_at_their_line(site: Site):
    page = site.visit("/definitions/finance?tab=edit", role="ceo")
    expect(page.locator(".valid")).to_be_visible()
    page.get_by_role("button", name="YAML").click()
    text = page.get_by_label("The definition as YAML")
    expect(page.locator(".valid")).to_be_visible()
    written = text.input_value()
    lines = written.splitlines()
    at = lines.index("start: planner") + 1
    text.fill(written.replace("start: planner", "start: nobody"))
    expect(page.locator(".invalid")).to_be_visible()
    expect(page.locator(".gutter-error", has_text=str(at)).first).to_be_visible()
    text.fill("name: [\n")
    expect(page.locator(".invalid")).to_contain_text("not YAML")
    checked = written.replace("\ndescription:", "\ndescription: Checked.  #", 1)
    text.fill(f"# for the audit\n{checked}")
    expect(page.locator(".valid")).to_be_visible()
    page.get_by_role("button", name="Save as a new version").click()
    expect(page.get_by_text("version 2, by ana")).to_be_visible()
    assert site.do(site.engine.definitions.get("finance")).definition["description"] == "Checked."


def test_a_new_definition_is_drawn_checked_and_stored(site: Site):
    page = site.visit("/definitions/new", role="operator", name="olga")
    expect(page.locator(".valid")).to_be_visible()
    expect(page.locator(".node")).to_have_count(4)
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_url("**/definitions/my-workflow")
    expect(page.locator(".certificate")).to_be_visible()


def test_agents_say_what_they_do_and_why_they_do_nothing(site: Site):
    page = site.visit("/agents")
    card = page.locator(".agent").filter(has=page.get_by_role("heading", name="planner"))
    expect(card).to_contain_text("Idle: nothing is on offer for its roles.")


def test_metrics_have_charts_with_targets_and_lead_to_their_runs(full: tuple[Site, Any]):
    site, _ = full
    page = site.visit("/figures")
    expect(page.locator(".uplot")).to_have_count(4)
    expect(page.get_by_text("Nothing in the last 14 days.")).to_have_count(2)
    expect(page.get_by_text("target: at least 90 %")).to_be_visible()
    expect(page.locator(".meters")).to_contain_text("repeated pattern")
    page.get_by_role("cell", name="helpdesk").get_by_role("link").first.click()
    page.wait_for_url("**/runs?q=workflow%3Ahelpdesk")
    page.go_back()
    point = page.get_by_role("list", name="Runs that ended: the runs of each day").get_by_role(
        "link"
    )
    count = int(point.last.inner_text().split(": ")[1])
    point.last.click()
    page.wait_for_url("**/runs?q=ended%3A*")
    expect(page.locator(".row")).to_have_count(count)
    assert not site.wrong


def test_a_remembered_resolution_is_searched_corrected_and_removed(site: Site):
    site.settled(site.file("helpdesk", "VPN drops every hour"), "ended")
    page = site.visit("/memory", role="operator", name="olga")
    card = page.locator(".memories article")
    expect(card).to_contain_text("VPN drops every hour")
    page.get_by_label("Search the memory").fill("printer")
    expect(page.get_by_text("Nothing remembered fits")).to_be_visible()
    page.get_by_label("Search the memory").fill("vpn")
    card.get_by_role("button", name="Correct").click()
    page.get_by_label("Resolution").fill("Set the MTU to 1300.")
    page.get_by_role("button", name="Save").click()
    expect(card).to_contain_text("Set the MTU to 1300.")
    expect(card).to_contain_text("corrected by olga")
    card.get_by_role("button", name="Remove").click()
    card.get_by_role("button", name="Really remove").click()
    expect(card).to_have_count(0)


def test_the_audit_says_who_did_what_and_that_the_record_is_unaltered(full: tuple[Site, Any]):
    site, _ = full
    page = site.visit("/audit")
    expect(page.locator(".audit")).to_contain_text("revise: with 10% tax")
    page.get_by_role("button", name="Verify the record").click()
    expect(page.get_by_text("Unaltered")).to_be_visible()
    page.get_by_role("button", name="everything").click()
    expect(page.locator(".audit code", has_text="claimed").first).to_be_visible()
    page.get_by_role("link", name="reviews", exact=True).first.click()
    expect(page.locator(".line").first).to_be_visible()


def test_empty_views_say_what_fills_them(site: Site):
    page = site.visit("/runs")
    expect(page.get_by_text("handrail run helpdesk")).to_be_visible()
    page.goto("/figures")
    expect(page.get_by_text("No run has ended yet")).to_be_visible()
    page.goto("/memory")
    expect(page.get_by_text("Nothing is remembered yet")).to_be_visible()
    page.goto("/channels")
    expect(page.get_by_text("No channels yet")).to_be_visible()
    page.goto("/channels/nowhere")
    expect(page.get_by_text("This is not here.")).to_be_visible()
    page.goto("/runs/nosuchrun")
    expect(page.get_by_text("This is not here.")).to_be_visible()


def test_on_a_phone_nothing_is_wider_than_the_screen(full: tuple[Site, dict[str, str]]):
    site, runs = full
    page = site.visit(size=NARROW)
    stuck = runs["The printer is on fire"]
    places = ("/inbox", "/runs", f"/runs/{stuck}", "/definitions/finance", "/agents", "/audit")
    for place in (*places, "/figures", "/memory", "/channels", ROOM):
        page.goto(place)
        page.locator("main :is(h1, h2):visible").first.wait_for()
        width = page.evaluate("() => document.scrollingElement.scrollWidth")
        inner = page.evaluate("() => document.querySelector('main').scrollWidth")
        assert (width, inner) <= (390, 390), place


def test_the_theme_is_chosen_and_kept(site: Site):
    page = site.visit(scheme="light")
    colour = "() => getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    for _ in range(2):
        page.get_by_role("button", name="Theme").click()
    assert page.evaluate(colour) != light
    page.reload()
    page.get_by_role("button", name="Theme: dark").wait_for()
    assert page.evaluate(colour) != light
