"""The inbox beside its answers: keys, what is stale, what was typed, and who still has to agree."""

from playwright.sync_api import expect
from tests.engine.engines import chain, node
from tests.page.keys import decide
from tests.page.samples import question
from tests.page.site import Site
from tests.server.harness import DONE, WORKER

from handrail.kernel.run.state import Person

ANA = Person(name="ana", role="ceo")
TITLES = ["Invoice for 1 x 10", "Invoice for 2 x 10", "Invoice for 3 x 10"]


def asked(site: Site, *titles: str) -> list[str]:
    """Finance runs that wait for review, one after the other."""
    runs = []
    for title in titles or TITLES:
        runs.append(site.file("finance", title))
        site.settled(runs[-1])
    return runs


def test_the_inbox_is_answered_without_a_mouse(site: Site):
    first, second, third = asked(site)
    page = site.visit()
    heading = page.locator(".question-line")
    expect(heading).to_contain_text(TITLES[0])
    page.keyboard.press("j")
    expect(heading).to_contain_text(TITLES[1])
    page.keyboard.press("k")
    expect(heading).to_contain_text(TITLES[0])
    decide(page, "a")
    expect(page.get_by_text("Approved. The run has ended: done.")).to_be_visible()
    expect(heading, "the next one slides in").to_contain_text(TITLES[1])
    page.keyboard.press("r")
    page.keyboard.type("with 10% tax")
    decide(page, "Control+Enter")
    expect(page.get_by_text("Sent back with your text.")).to_be_visible()
    expect(heading).to_contain_text(TITLES[2])
    decide(page, "x")
    expect(page.get_by_role("button", name="Really reject")).to_be_visible()
    decide(page, "x")
    expect(page.get_by_text("Rejected. The run has ended: closed.")).to_be_visible()
    assert site.settled(first).terminal_status == "done_success"
    assert site.settled(second).iterations[0].text == "with 10% tax"
    assert site.settled(third).terminal_status == "closed_by_human"
    assert not site.wrong


def test_a_question_that_comes_is_there_without_a_reload(site: Site):
    page = site.visit()
    expect(page.get_by_text("Nothing waits for you")).to_be_visible()
    asked(site, "Invoice for 4 x 10")
    expect(page.get_by_role("link", name="Invoice for 4 x 10").first).to_be_visible()


def test_two_clicks_answer_once(site: Site):
    (run,) = asked(site, "Invoice for 1 x 10")
    page = site.visit(f"/inbox/{question(site, run)}")
    sent: list[str] = []
    page.on("request", lambda one: sent.append(one.url) if one.method == "POST" else None)
    page.get_by_role("button", name="Approve").dblclick()
    expect(page.get_by_text("Approved.")).to_be_visible()
    assert len([url for url in sent if url.endswith("/answer")]) == 1


def test_what_somebody_else_answered_says_so(site: Site):
    (run,) = asked(site, "Invoice for 1 x 10")
    one = question(site, run)
    page = site.visit(f"/inbox/{one}")
    page.get_by_label("Your answer").fill("with 10% tax")
    site.do(site.engine.approvals.answer(one, "OK", by=Person(name="bo", role="ceo")))
    expect(page.get_by_role("alert")).to_contain_text("bo has answered this: approve")
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)


def test_what_changed_while_it_was_read_is_greyed_with_the_new_one_beside_it(site: Site):
    site.define(chain(node("fix"), node("look", "approval", revise_to="fix"), id="asks"))
    run = site.file("asks", "A fix", context={"proposal": "one"})
    bead = site.do(site.engine.run_queries.view(run)).bead_id
    work(site)
    site.settled(run, "waiting")
    old = question(site, run)
    page = site.visit(f"/inbox/{old}")
    expect(page.get_by_role("button", name="Approve")).to_be_visible()
    site.do(site.engine.beads.patch(bead, {"proposal": "two"}, ANA))
    expect(page.get_by_role("alert")).to_contain_text("This changed while you were reading")
    page.get_by_role("link", name="What is asked now").click()
    expect(page.get_by_role("button", name="Approve")).to_be_visible()
    assert question(site, run) in page.url
    assert old not in page.url


def work(site: Site) -> None:
    """From now on somebody does the work of `chain`."""
    site.employ(lambda _: DONE, WORKER)


def test_of_several_who_must_agree_it_is_said_who_has_and_who_is_asked(site: Site):
    both = node("look", "approval", revise_to="fix", approvers=["ana", "bo"], quorum=2)
    site.define(chain(node("fix"), both, id="both"))
    work(site)
    run = site.file("both", "A fix")
    site.settled(run, "waiting")
    page = site.visit(f"/inbox/{question(site, run)}", name="bo")
    told = page.locator(".quorum")
    expect(told).to_contain_text("0 of 2 have approved; still asked: ana, bo")
    site.do(site.engine.approvals.answer(question(site, run), "OK", by=ANA))
    expect(told).to_contain_text("1 of 2 have approved: ana; still asked: bo")
    decide(page, "a")
    expect(page.get_by_text("Approved.")).to_be_visible()
    assert site.settled(run, "ended").terminal_status == "done_success"


def test_what_was_typed_survives_new_data_a_reload_and_a_lost_connection(site: Site):
    first, _ = asked(site, *TITLES[:2])
    page = site.visit(f"/inbox/{question(site, first)}")
    text = page.get_by_label("Your answer")
    text.fill("not sent yet")
    asked(site, TITLES[2])
    expect(page.get_by_role("link", name=TITLES[2]).first).to_be_visible()
    expect(text).to_have_value("not sent yet")
    page.reload()
    expect(text).to_have_value("not sent yet")
    site.stop()
    expect(page.get_by_text("reconnecting")).to_be_visible()
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_text("The server does not answer.")).to_be_visible()
    expect(text).to_have_value("not sent yet")
    site.start()
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_text("Sent back with your text.")).to_be_visible()


def test_whoever_may_not_answer_is_told_what_it_takes(site: Site):
    site.define(chain(node("fix"), node("look", "approval"), id="looks"))
    work(site)
    run = site.file("looks", "A fix")
    site.settled(run, "waiting")
    page = site.visit(f"/inbox/{question(site, run)}", role="operator", name="olga")
    expect(page.get_by_text("You are operator; to answer this takes a ceo.")).to_be_visible()


def test_an_agents_own_question_is_answered_with_its_options_or_a_text(site: Site):
    run = site.file("helpdesk", "Mail app crashes at start", context={"demo": "ask"})
    site.settled(run, "waiting")
    page = site.visit(f"/inbox/{question(site, run)}", role="operator", name="olga")
    expect(page.get_by_role("group", name="Choices").get_by_role("button")).to_have_count(2)
    page.get_by_role("button", name="yes").click()
    expect(page.get_by_text("Answered.")).to_be_visible()
    site.settled(run)
