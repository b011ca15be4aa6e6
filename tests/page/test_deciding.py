"""Deciding in the inbox: what is approved is shown as it is, and a held key decides once."""

import pytest
from playwright.sync_api import Page, expect
from tests.engine.engines import chain, node
from tests.page.keys import armed
from tests.page.samples import question
from tests.page.site import NARROW, WIDE, Site
from tests.server.harness import WORKER

from handrail.kernel.result import Outcome, Result

TITLES = ["Invoice for 1 x 10", "Invoice for 2 x 10", "Invoice for 3 x 10"]
PATCH = """\
diff --git a/pkg/text.py b/pkg/text.py
index 83db48f..bf269f4 100644
--- a/pkg/text.py
+++ b/pkg/text.py
@@ -7,8 +7,9 @@ def fill(template, values):
 def fill(template, values):
     for name in values:
-        if template.count("{}") >= len(values):
-            return __import__(name)  \n\
+        if template.count("{}") > len(values):
+
+            return __import__(name)
 \n\
 \tclean(values)
     return None
 # end
"""
TRACEBACK = """\
Traceback (most recent call last):
  File "pkg/text.py", line 9, in fill
    return __import__(name)
ModuleNotFoundError: No module named 'x'
"""
TOLD = f"**Cause**: off by one\n\n{TRACEBACK}\n{PATCH}\nTests are green.\n"


@pytest.fixture
def patched(site: Site) -> tuple[Site, str]:
    """A run whose result is a patch, waiting for approval."""
    site.define(chain(node("fix"), node("look", "approval", revise_to="fix"), id="asks"))
    site.employ(lambda _: Result(outcome=Outcome.SUCCESS, text=TOLD), WORKER)
    run = site.file("asks", "A fix", description=TRACEBACK)
    site.settled(run, "waiting")
    return site, run


def answers(page: Page) -> list[str]:
    """The addresses that answers are sent to, from now on."""
    sent: list[str] = []
    page.on("request", lambda one: sent.append(one.url) if one.url.endswith("/answer") else None)
    return sent


def asked(site: Site) -> None:
    for title in TITLES:
        site.settled(site.file("finance", title))


def hold(page: Page, key: str, times: int = 8) -> None:
    """All but the first of these are told to the page as repeats."""
    for _ in range(times):
        page.keyboard.down(key)


def test_a_held_key_decides_one_question_and_the_next_wants_its_second(site: Site):
    asked(site)
    page = site.visit()
    sent, heading = answers(page), page.locator(".question-line")
    armed(page)
    hold(page, "a")
    expect(heading).to_contain_text(TITLES[1])
    armed(page)  # and the key is still down
    hold(page, "a")
    page.keyboard.up("a")
    expect(heading).to_contain_text(TITLES[1])
    assert len(sent) == 1


def test_a_held_key_goes_on_moving(site: Site):
    asked(site)
    page = site.visit()
    expect(page.locator(".question-line")).to_contain_text(TITLES[0])
    hold(page, "j", times=3)
    expect(page.locator(".question-line")).to_contain_text(TITLES[2])


def test_a_held_enter_does_not_confirm_its_own_reject(site: Site):
    asked(site)
    page = site.visit()
    sent = answers(page)
    page.get_by_role("button", name="Reject").focus()
    hold(page, "Enter")
    page.keyboard.up("Enter")
    expect(page.get_by_role("button", name="Really reject")).to_be_visible()
    assert sent == []


def test_no_key_decides_before_the_question_was_seen_for_a_second(site: Site):
    asked(site)
    page = site.visit()
    expect(page.locator(".answer")).to_be_visible()
    page.clock.install()  # from here on time passes when the test says so
    page.keyboard.press("j")
    expect(page.locator(".question-line")).to_contain_text(TITLES[1])
    sent, form = answers(page), page.locator(".answer")
    page.clock.run_for(500)
    for key in ("a", "x", "x"):
        page.keyboard.press(key)
    page.get_by_label("Your answer").fill("with 10% tax")
    page.get_by_label("Your answer").press("Enter")
    page.get_by_label("Your answer").press("Control+Enter")
    expect(form).to_have_attribute("data-armed", "false")
    expect(page.get_by_text("Keys work once this has been on screen for a second.")).to_be_visible()
    expect(page.get_by_role("button", name="Really reject")).to_have_count(0)
    assert sent == []
    page.clock.run_for(1000)
    armed(page)
    page.get_by_label("Your answer").press("Control+Enter")
    expect(page.get_by_text("Sent back with your text.")).to_be_visible()
    assert len(sent) == 1


def test_a_double_click_decides_one_question(site: Site):
    asked(site)
    page = site.visit()
    sent, heading = answers(page), page.locator(".question-line")
    page.get_by_role("button", name="Approve").hover()
    page.mouse.down(click_count=1)
    page.mouse.up(click_count=1)
    expect(heading, "which lies under the pointer now").to_contain_text(TITLES[1])
    page.mouse.down(click_count=2)
    page.mouse.up(click_count=2)
    page.get_by_label("Your answer").fill("the page has seen the click")
    expect(heading).to_contain_text(TITLES[1])
    assert len(sent) == 1


@pytest.mark.parametrize(
    ("size", "scheme"),
    [(WIDE, "light"), (WIDE, "dark"), (NARROW, "light"), (NARROW, "dark")],
    ids=lambda value: value if isinstance(value, str) else f"{value[0]} wide",
)
def test_a_patch_is_shown_as_it_is(
    patched: tuple[Site, str], axe: str, size: tuple[int, int], scheme: str
):
    site, run = patched
    page = site.visit(f"/inbox/{question(site, run)}", size=size, scheme=scheme)
    result = page.locator(".result")
    patch = result.locator(".patch")
    expect(patch).to_be_visible()
    assert patch.text_content() == PATCH
    signs = {"patch-gone": "-", "patch-new": "+"}
    lines = {kind: patch.locator(f".{kind}").all_text_contents() for kind in signs}
    for kind, sign in signs.items():
        assert lines[kind] == [
            line for line in PATCH.splitlines(keepends=True)[4:] if line.startswith(sign)
        ]
    colours = [
        patch.locator(f".{kind}").first.evaluate("one => getComputedStyle(one).backgroundColor")
        for kind in (*signs, "patch-same")
    ]
    assert len(set(colours)) == 3, "removed, added and neither look different"
    indent = patch.locator(".patch-gone").first.evaluate("one => getComputedStyle(one).whiteSpace")
    assert indent.startswith(("pre", "break-spaces"))
    expect(result.locator("strong")).to_have_text(["Cause"])
    assert result.locator(".verbatim").text_content() == TRACEBACK
    page.evaluate(axe)
    seen = page.evaluate("() => axe.run('.inbox-item', { resultTypes: ['violations'] })")
    assert [one["id"] for one in seen["violations"]] == []
    raw = result.get_by_role("button", name="Raw")
    raw.click()
    expect(raw).to_have_attribute("aria-pressed", "true")
    assert result.locator(".verbatim").text_content() == TOLD
    assert not site.wrong


def test_a_patch_is_shown_as_it_is_in_the_run_too(patched: tuple[Site, str]):
    site, run = patched
    page = site.visit(f"/runs/{run}")
    page.locator(".lane-row", has_text="off by one").first.click()
    expect(page.locator(".detail .patch")).to_be_visible()
    assert page.locator(".detail .patch").text_content() == PATCH
