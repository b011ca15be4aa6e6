"""Review by a person, through the page: every R of the requirements, in a real browser."""

import pytest
from playwright.sync_api import Page, expect
from tests.page.keys import send
from tests.page.samples import question
from tests.page.site import Site

TITLE = "Invoice for 3 x 120.50 and 1 x 80"


@pytest.fixture
def asked(site: Site) -> tuple[Site, Page, str]:
    """A finance run that waits for review, and its question open before somebody."""
    run = site.file("finance", TITLE)
    site.settled(run)
    return site, site.visit(f"/inbox/{question(site, run)}", role="operator", name="olga"), run


def field(page: Page):
    return page.get_by_label("Your answer")


def round_of(site: Site, run: str) -> int:
    return len(site.do(site.engine.run_queries.view(run)).iterations)


def revise(site: Site, page: Page, run: str, text: str) -> None:
    """Says it, and opens the question that comes of it."""
    before = round_of(site, run)
    field(page).fill(text)
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_text("Sent back with your text.")).to_be_visible()
    site.settled(run, "waiting")
    assert round_of(site, run) == before + 1
    page.goto(f"/inbox/{question(site, run)}")


@pytest.mark.requirement("R1.1", "R1.2", "R3.2", "R3.3", "R4.1", "R4.5")
def test_the_question_shows_the_result_above_a_text_field(asked: tuple[Site, Page, str]):
    site, page, run = asked
    expect(page.get_by_role("heading", name="Approve the result of invoice")).to_be_visible()
    result, text = page.locator(".result").first, field(page)
    expect(result).to_contain_text("441.50")
    above, below = result.bounding_box(), text.bounding_box()
    assert above is not None
    assert below is not None
    assert above["y"] + above["height"] <= below["y"]
    (one,) = site.do(site.engine.approvals.list(status="open", execution_id=run)).items
    assert one.type == "clarification_request"
    expect(page.get_by_role("button", name="Approve")).to_contain_text("the run is done")
    expect(page.get_by_role("button", name="Retry")).to_contain_text("goes back to Planner")


@pytest.mark.requirement("R1.3", "R3.4", "R4.2")
def test_ok_and_enter_approve_and_the_final_result_is_shown(asked: tuple[Site, Page, str]):
    site, page, run = asked
    field(page).fill("OK.")
    expect(page.get_by_text("Enter approves")).to_be_visible()
    send(field(page))
    receipt = page.get_by_text("Approved. The run has ended: done.")
    expect(receipt).to_be_visible()
    assert site.settled(run, "ended").terminal_status == "done_success"
    page.get_by_role("link", name="To the run").click()
    expect(page.locator(".sentence")).to_contain_text("Done")
    page.get_by_role("tab", name="Iterations").click()
    expect(page.locator(".round .result")).to_contain_text("441.50")
    expect(page.locator(".round")).to_contain_text("olga approved")
    assert not site.wrong


@pytest.mark.requirement("R1.4", "R2.1", "R2.4", "R4.3", "R4.4", "R5.1", "R5.3", "R5.4")
def test_retry_sends_the_text_as_typed_to_the_planner_and_the_new_result_is_asked_about(
    asked: tuple[Site, Page, str],
):
    site, page, run = asked
    typed = "ok, but with  10% tax <b>please</b> — & keep “this”"
    retry = page.get_by_role("button", name="Retry")
    expect(retry).to_be_disabled()
    field(page).fill(typed)
    expect(page.get_by_text("Enter sends it back: goes back to Planner")).to_be_visible()
    revise(site, page, run, typed)
    expect(page.locator(".diff")).to_contain_text("tax 10%")
    view = site.do(site.engine.run_queries.view(run))
    assert [one.text for one in view.iterations][:1] == [typed]
    assert view.iterations[0].task == TITLE, "the task as it was first said"
    path = [(one.from_, one.to) for one in view.handoff_sequence]
    assert path.count(("planner", "invoice")) == 2, "through the planner again"
    page.goto(f"/runs/{run}?tab=iterations")
    expect(page.locator(".round").first).to_contain_text(TITLE)
    expect(page.locator(".round").first).to_contain_text(typed.replace("  ", " "))


@pytest.mark.requirement("R2.2", "R5.5")
def test_five_revisions_in_a_row_are_kept_complete_and_in_order(asked: tuple[Site, Page, str]):
    site, page, run = asked
    said = [f"with {n}% tax" for n in (5, 7, 10, 12, 15)]
    for text in said:
        revise(site, page, run, text)
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Approved.")).to_be_visible()
    view = site.settled(run, "ended")
    assert [one.text for one in view.iterations][:5] == said
    assert [one.n for one in view.iterations] == [1, 2, 3, 4, 5, 6]
    page.goto(f"/runs/{run}?tab=iterations")
    expect(page.locator(".graph")).to_be_visible()  # what is below it stands still from now on
    for n in range(1, 7):
        page.get_by_role("button", name=f"Round {n}", exact=True).click()
        expect(page.locator(".round").last).to_contain_text(f"Round {n}")
    expect(page.locator(".side-by-side .round")).to_have_count(2)


@pytest.mark.requirement("R2.3", "R5.2")
def test_a_revision_may_go_to_another_specialist(asked: tuple[Site, Page, str]):
    site, page, run = asked
    revise(site, page, run, "audit this instead: draw a sample")
    view = site.do(site.engine.run_queries.view(run))
    assert view.iterations[-1].agent.split("@")[0] == "audit"
    expect(page.get_by_role("heading", name="Approve the result of audit")).to_be_visible()


@pytest.mark.requirement("R3.1")
def test_a_task_that_skips_review_is_done_without_a_question(site: Site):
    page = site.visit("/runs", role="operator", name="olga")
    page.get_by_role("button", name="New run").click()
    page.get_by_label("What is to be done").fill(TITLE)
    page.get_by_role("dialog").locator("select").first.select_option("finance")
    page.get_by_role("dialog").locator("select").last.select_option("skip")
    page.get_by_role("button", name="Begin").click()
    expect(page.locator(".sentence")).to_contain_text("Done")
    run = page.url.rpartition("/")[2]
    assert site.do(site.engine.approvals.list(execution_id=run)).items == ()


@pytest.mark.requirement("R4.2")
@pytest.mark.parametrize("text", ["no", "wait", "hm", "?"])
def test_what_could_mean_either_is_asked_again_and_stays_typed(
    asked: tuple[Site, Page, str], text: str
):
    site, page, run = asked
    field(page).fill(text)
    send(field(page))
    expect(page.get_by_text("That could mean either.")).to_be_visible()
    expect(field(page)).to_have_value(text)
    assert site.do(site.engine.run_queries.view(run)).status == "waiting"


def test_retry_with_an_approval_asks_which_is_meant(asked: tuple[Site, Page, str]):
    site, page, run = asked
    field(page).fill("looks good to me")
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_text("reads as an approval")).to_be_visible()
    assert site.do(site.engine.run_queries.view(run)).status == "waiting"
    page.get_by_role("alert").get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Approved.")).to_be_visible()
