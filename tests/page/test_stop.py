"""A stop on the page: the rule with its limit, and what was alike beside the cited steps."""

from playwright.sync_api import expect
from tests.page.site import NARROW, Site

from handrail import Guard, StopRules


def stopped_run(site: Site, **guard: object) -> str:
    """A guarded run that sends the same mail again and again; its id."""
    recorded = Guard(
        StopRules(profile="observed"),
        record=site.url,
        token=site.token("operator"),
        **guard,  # type: ignore[arg-type]
    )
    with recorded.run("ticket 4711", team="office", raises=False) as run:
        run.handoff("planner", "clerk", reason="tell Ann")
        for _ in range(9):
            if run.called("clerk", "send_mail", {"to": "ann"}, "sent", effect=True) is not None:
                break
    assert run.recorded
    return run.recorded


def test_a_stop_shows_what_was_alike_and_which_line_changes_it(site: Site):
    page = site.visit(f"/runs/{stopped_run(site)}")
    panel = page.get_by_role("region", name="Why it stopped")
    expect(panel).to_contain_text("same_call_send_mail")
    expect(panel).to_contain_text("observed")
    expect(panel).to_contain_text("no_change_limit 3, seen 3")
    rows = panel.locator(".stop-alike li")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("clerk, send_mail: same arguments, same answer")
    expect(panel.locator(".stop-effects li")).to_have_text("send_mail of clerk steps 2, 3, 4")
    expect(panel).to_contain_text("Guard(StopRules(no_change_limit=5))")
    expect(page.locator(".run-facts")).to_contain_text("1 nudge")
    assert not site.wrong


def test_a_stop_fits_a_telephone(site: Site):
    page = site.visit(f"/runs/{stopped_run(site)}", size=NARROW)
    expect(page.get_by_role("region", name="Why it stopped")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW[0]


def test_a_run_that_came_to_its_own_end_has_no_such_panel(site: Site):
    page = site.visit(f"/runs/{stopped_run(site, dry_run=True)}")
    expect(page.locator(".sentence")).to_contain_text("Done")
    expect(page.get_by_role("region", name="Why it stopped")).to_have_count(0)
    expect(page.locator(".run-head")).to_contain_text("dry run")
