"""A guarded program asks for a permission: who is asked has buttons, and the program hears them."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, expect
from tests.page.keys import decide
from tests.page.site import Site
from tests.patience import PATIENCE

from handrail import Guard
from handrail.guard.approvals import TOOL_OPTIONS

QUESTION = 'clerk wants to call pay({"euros": 5})'


@contextmanager
def asking(site: Site, options: tuple[str, ...] = TOOL_OPTIONS) -> Iterator[Future[str]]:
    """A guarded program that waits for an answer, which the future gets."""
    heard = Future[str]()
    guard = Guard(
        record=site.url, token=site.token("operator", "program"), answer_seconds=3 * PATIENCE
    )

    def work() -> None:
        try:
            with guard.run("payments", raises=False) as run:
                run.record_handoff("planner", "clerk", "")
                reply = run.ask(QUESTION, options=options)
                heard.set_result("" if reply is None else reply.text)
        except BaseException as error:
            heard.set_exception(error)
            raise

    program = threading.Thread(target=work)
    program.start()
    try:
        yield heard
    finally:
        program.join(PATIENCE)


def open_question(site: Site, name: str = "ana") -> Page:
    page = site.visit(name=name)
    page.get_by_role("link", name="payments").first.click()
    expect(page.get_by_text(QUESTION).first).to_be_visible()
    return page


@pytest.mark.parametrize(
    ("press", "text", "answer"),
    [
        ("Approve", "", "approve"),
        ("Reject", "", "reject"),
        ("Reject", "not on a Sunday", "no: not on a Sunday"),
        ("Reject", "ok", "no: ok"),
        ("Send", '{"euros": 3}', '{"euros": 3}'),
    ],
)
def test_a_permission_is_given_or_refused_by_a_button(site: Site, press, text, answer):
    with asking(site) as heard:
        page = open_question(site)
        page.get_by_label("Your answer").fill(text)
        page.get_by_role("button", name=press).click()
        assert heard.result(PATIENCE) == answer
    assert not site.wrong


@pytest.mark.parametrize(("key", "answer"), [("a", "approve"), ("x", "reject")])
def test_a_permission_is_given_or_refused_by_a_key(site: Site, key, answer):
    with asking(site) as heard:
        decide(open_question(site), key)
        assert heard.result(PATIENCE) == answer


def test_a_question_without_choices_is_answered_by_a_text(site: Site):
    with asking(site, ()) as heard:
        page = open_question(site)
        expect(page.get_by_role("button", name="Send")).to_be_visible()
        expect(page.get_by_role("button", name="Approve")).to_have_count(0)
        page.get_by_label("Your answer").fill("blue")
        page.get_by_role("button", name="Send").click()
        assert heard.result(PATIENCE) == "blue"
