"""How quick the page is: its first view, ten thousand runs, thousands of steps, many tabs."""

import asyncio
import os
import time

import pytest
from playwright.sync_api import Page, Response, expect
from tests.engine.engines import chain, node
from tests.page.channel_agents import Talk
from tests.page.site import Site
from tests.server.harness import WORKER

from handrail.kernel.result import Outcome, Result
from handrail.kernel.run.commands import Pause, Resume
from handrail.kernel.run.state import Person

FIRST_VIEW_BYTES = 250_000
FIRST_VIEW_SECONDS = 1.5
STEPS = 5_000
RUN_SECONDS = 2.0
RUNS = 10_000
LONG = bool(os.environ.get("HANDRAIL_LONG"))
TABS, PEOPLE = (50, 5) if LONG else (12, 3)
UPDATE_SECONDS = 1.0
OPENED_MS = 120_000
pytestmark = pytest.mark.alone
FRAME_MS = 100
TRIES = 3
"""The machine may be busy with something else: the best of so many counts."""
SINCE_START = "() => performance.now() / 1000"
FRAMES = """async () => {
  const rows = document.querySelector('.rows');
  const gaps = [];
  let last = performance.now();
  for (let n = 0; n < 120; n++) {
    rows.scrollTop += 400;
    await new Promise(requestAnimationFrame);
    gaps.push(performance.now() - last);
    last = performance.now();
  }
  return gaps.sort((a, b) => a - b)[Math.floor(gaps.length * 0.95)];
}"""


WATCH = """([selector, text]) => {
  window.__seen = new Promise(found => {
    const look = () => {
      if (document.querySelector(selector).textContent.includes(text)) found(Date.now());
    };
    const all = { subtree: true, childList: true, characterData: true };
    new MutationObserver(look).observe(document.body, all);
  });
}"""
SEEN = "() => window.__seen.then(at => at / 1000)"
ANA = Person(name="ana", role="ceo")


def test_the_first_view_is_small_and_soon_there(site: Site):
    site.settled(site.file("finance", "Invoice for 1 x 10"))
    page = site.visit()
    seconds: list[float] = []
    sizes: list[int] = []
    for _ in range(TRIES):
        context = site.context(storage_state=page.context.storage_state())
        fresh = context.new_page()
        got: list[Response] = []
        fresh.on("response", lambda one, got=got: got.append(one))
        fresh.goto("/inbox")
        fresh.get_by_role("button", name="Approve").wait_for()
        seconds.append(fresh.evaluate(SINCE_START))
        files = [one for one in got if "/api/" not in one.url]
        sizes = [one.request.sizes()["responseBodySize"] for one in files]
        assert sum(sizes) < FIRST_VIEW_BYTES
        assert not [one.url for one in files if "graph" in one.url or "chart" in one.url]
        context.close()
    print(f"first view: {sum(sizes)} bytes, there after {min(seconds):.2f} s")
    assert min(seconds) < FIRST_VIEW_SECONDS


def test_a_run_of_thousands_of_steps_opens_at_once(site: Site):
    long = node("work", multi_dispatch=True, max_attempts=STEPS)
    site.define(chain(long, id="long", stop_rules={"max_steps": 2 * STEPS}))
    done = 0

    def work(_: object) -> Result:
        nonlocal done
        done += 1
        return Result(outcome=Outcome.CONTINUE if done < STEPS else Outcome.SUCCESS, text=f"{done}")

    site.employ(work, WORKER)
    run = site.file("long", "Many steps")
    site.patience(run)
    page = site.visit()
    seconds: list[float] = []
    for _ in range(TRIES):
        page.goto(f"/runs/{run}")
        page.locator(".lane-row").first.wait_for()
        page.locator(".node").first.wait_for()
        seconds.append(page.evaluate(SINCE_START))
    print(f"a run of {done} steps: there after {min(seconds):.2f} s")
    assert min(seconds) < RUN_SECONDS
    expect(page.get_by_role("group", name=f"{STEPS} steps")).to_be_visible()


def test_ten_thousand_runs_are_scrolled_and_filtered_without_jank(site: Site):
    site.define(chain(node("wait"), id="many"))

    async def fill() -> None:
        for first in range(0, RUNS, 500):
            titles = [f"Number {n}" for n in range(first, first + 500)]
            await asyncio.gather(*(site.engine.start("many", title=one) for one in titles))

    site.do(fill())
    page = site.visit("/runs")
    page.locator(".row").first.wait_for()
    gap = min(page.evaluate(FRAMES) for _ in range(TRIES))
    print(f"95 % of frames while scrolling come within {gap:.0f} ms")
    assert gap < FRAME_MS
    assert page.locator(".row").count() < 60, "only what is seen is drawn"
    page.get_by_label("Search runs").fill("Number 1234")
    page.get_by_label("Search runs").press("Enter")
    expect(page.locator(".row")).to_have_count(1)


def test_what_happens_is_seen_in_every_open_tab_within_a_second(site: Site):
    """Tabs of several people; every second one looks at a conversation, the others at a run."""
    talk = Talk(site)
    site.define(chain(node("wait"), id="one"))
    run = site.file("one", "Watched by many")
    tabs: list[Page] = []
    for n in range(PEOPLE):
        first = site.visit(name=f"ana{n}")
        tabs += [first, *(first.context.new_page() for _ in range(TABS // PEOPLE - 1))]
    talks, runs = tabs[::2], tabs[1::2]
    for tab in tabs:
        tab.goto(talk.path if tab in talks else f"/runs/{run}", wait_until="commit")
    for tab in tabs:
        shown = ".seat-active" if tab in talks else ".sentence .state"
        tab.locator(shown).wait_for(timeout=OPENED_MS)
    waits: list[float] = []
    acts = (Pause(by=ANA, reason="look"), Resume(by=ANA, reason="go on"))
    for n in range(TRIES):
        act = acts[n % 2]
        for tab in talks:
            tab.evaluate(WATCH, [".log-lines", f"Word {n}."])
        for tab in runs:
            tab.evaluate(WATCH, [".sentence .state", "Running" if n % 2 else "Paused"])
        begun = time.time()
        talk.post(f"Word {n}.")
        site.do(site.engine.runs.override(run, act))
        waits.append(max(tab.evaluate(SEEN) for tab in tabs) - begun)
    print(f"{len(tabs)} tabs: the last one shows it after {min(waits):.2f} s")
    assert min(waits) < UPDATE_SECONDS
