"""The page and those who mean it ill, and those who cannot see it or use a mouse."""

import os

import httpx
import pytest
from playwright.sync_api import Page, expect
from tests.engine.engines import chain, node
from tests.page.channel_agents import Talk
from tests.page.samples import ROOM, question
from tests.page.site import NARROW, WIDE, Site
from tests.server.harness import WORKER

from handrail.kernel.result import Check, Evidence, Outcome, Result

LONG = bool(os.environ.get("HANDRAIL_LONG"))
RUN = "window.top.__ran=1"
PAYLOADS = [
    payload
    for handler in ("onerror", "onload", "onfocus", "ontoggle", "onbegin", "onmouseover")
    for payload in (
        f"<img src=x {handler}={RUN}>",
        f"<svg {handler}={RUN}>",
        f"<svg><animate {handler}={RUN} attributeName=x dur=1s>",
        f"<details open {handler}={RUN}>x</details>",
        f"<input autofocus {handler}={RUN}>",
        f"<body {handler}={RUN}>",
        f'"><img src=x {handler}={RUN}>',
        f"'><img src=x {handler}={RUN}>",
        f"</textarea><img src=x {handler}={RUN}>",
        f"</pre></code><img src=x {handler}={RUN}>",
        f"![x](x){{{handler}={RUN}}}",
        f"<IMG SRC=x {handler.upper()}={RUN}>",
        f"<img/src=x/{handler}={RUN}>",
        f"<<img src=x {handler}={RUN}>>",
        f"<math><mtext><img src=x {handler}={RUN}></mtext></math>",
    )
] + [
    payload
    for address in (
        f"javascript:{RUN}",
        f"JaVaScRiPt:{RUN}",
        f"java\tscript:{RUN}",
        f" javascript:{RUN}",
        f"&#106;avascript:{RUN}",
        f"data:text/html,<script>{RUN}</script>",
        f"data:text/html;base64,PHNjcmlwdD4=#{RUN}",
        f"vbscript:{RUN}",
        f"//evil.test/x.js#{RUN}",
        f"\x01javascript:{RUN}",
    )
    for payload in (
        f"[click]({address})",
        f"![x]({address})",
        f"[click]: {address}\n\n[click]",
        f"<a href='{address}'>click</a>",
        f"<{address}>",
        f"<iframe src='{address}'></iframe>",
        f"<form action='{address}'><button>x</button></form>",
        f"<object data='{address}'></object>",
        f"<meta http-equiv=refresh content='0;url={address}'>",
        f"<base href='{address}'>",
        f"<script src='{address}'></script>",
    )
]
MORE = [
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"{{{{constructor.constructor('{RUN}')()}}}}",
    f"${{{RUN}}}",
    f"<style>@import 'javascript:{RUN}';</style>",
    f"```\n</code></pre><script>{RUN}</script>\n```",
    f"| a |\n|---|\n| <script>{RUN}</script> |",
    f"- [x] <script>{RUN}</script>",
    f"> <script>{RUN}</script>",
    f"# <script>{RUN}</script>",
]


def test_none_of_two_hundred_payloads_runs_in_any_field(site: Site):
    payloads = [one.replace("\x01", " ") for one in (*PAYLOADS, *MORE)]
    assert len(payloads) >= 200
    everything = "\n\n".join(payloads)
    document = chain(node("fix"), node("look", "approval", revise_to="fix"), id="asks")
    document["nodes"][2]["description"] = payloads[0]
    document["description"] = payloads[-1]
    site.define(document)
    stderr = Check(command=payloads[1], exit_code=1, stderr=everything[:2000])
    said = Result(
        outcome=Outcome.SUCCESS,
        text=everything,
        data={"proposal": everything, payloads[2]: payloads[3]},
        evidence=Evidence(checks=(stderr,)),
    )
    site.employ(lambda _: said, WORKER)
    run = site.file("asks", payloads[4], description=everything, context={"note": everything})
    site.settled(run, "waiting")
    talk = Talk(site, name=payloads[4].replace("/", ""))
    talk.say("ada", everything)
    talk.post(everything)
    page = site.visit(f"/inbox/{question(site, run)}")
    looked_at(page, ".result")
    page.get_by_label("Your answer").fill(payloads[5])
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_text("Sent back with your text.")).to_be_visible()
    site.settled(run, "waiting")
    for path, shown in (
        (f"/inbox/{question(site, run)}", ".result"),
        ("/runs", ".row"),
        (f"/runs/{run}", ".lane-row"),
        (f"/runs/{run}?tab=iterations", ".round"),
        (f"/runs/{run}?tab=report", ".markdown"),
        (f"/runs/{run}?tab=events", ".event-row"),
        (f"/runs/{run}?tab=context", ".context"),
        ("/definitions/asks", ".node"),
        ("/definitions/asks?tab=edit", ".editor"),
        ("/audit?all=1", ".audit"),
        ("/channels", ".card"),
        (talk.path, ".line-person"),
    ):
        page.goto(path)
        looked_at(page, shown)
        if shown in (".lane-row", ".event-row"):
            page.locator(shown).first.click()
            looked_at(page, shown)
    assert not site.wrong, "nothing even tried"


def looked_at(page: Page, shown: str) -> None:
    """It is there, nothing of it ran, and no link leads anywhere but to the web."""
    page.locator(shown).first.wait_for()
    assert page.evaluate("() => window.__ran") is None
    made = "() => document.querySelectorAll('iframe, object, embed, base, meta[http-equiv]').length"
    assert page.evaluate(made) == 0
    links = page.evaluate("() => Array.from(document.links, one => one.protocol)")
    assert set(links) <= {"http:", "https:", "mailto:"}


def test_the_page_brings_a_policy_that_lets_nothing_else_in(site: Site):
    answer = httpx.get(site.url)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "<script>" not in answer.text
    assert "style=" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_another_sites_frame_and_post_are_refused(site: Site):
    page = site.visit()
    stranger = page.context.new_page()
    stranger.route(
        "http://evil.test/**",
        lambda route: route.fulfill(
            content_type="text/html",
            body=f'<iframe src="{site.url}/inbox"></iframe><form method="post" '
            f'action="{site.url}/api/v1/sign-out"><button>x</button></form>',
        ),
    )
    stranger.goto("http://evil.test/")
    assert site.url not in [
        frame.evaluate("() => location.origin") for frame in stranger.frames[1:]
    ]
    with stranger.expect_response("**/api/v1/sign-out") as sent:
        stranger.get_by_role("button", name="x").click()
    assert sent.value.status in (401, 403)
    page.reload()
    expect(page.get_by_text("live", exact=True)).to_be_visible()


def test_a_link_signs_in_once_and_a_used_one_says_so(site: Site):
    path = site.sign_in_path("ana", "admin")
    page = site.context().new_page()
    page.goto(path)
    page.wait_for_url("**/inbox**")
    page.get_by_role("button", name="ana").click()
    expect(page.get_by_text("ana, admin")).to_be_visible()
    other = site.context().new_page()
    other.goto(path)
    expect(other.get_by_text("This link was used before, or has expired.")).to_be_visible()
    expect(other.get_by_text("handrail sign-in")).to_be_visible()
    page.get_by_role("menuitem", name="Sign out").click()
    expect(page.get_by_text("You are not signed in")).to_be_visible()
    page.goto("/runs")
    expect(page.get_by_text("You are not signed in")).to_be_visible()


@pytest.mark.parametrize(
    ("size", "scheme"),
    [(WIDE, "light"), (NARROW, "dark"), *(((WIDE, "dark"), (NARROW, "light")) if LONG else ())],
    ids=lambda value: value if isinstance(value, str) else f"{value[0]} wide",
)
def test_an_accessibility_check_finds_nothing_serious(
    full: tuple[Site, dict[str, str]], axe: str, size: tuple[int, int], scheme: str
):
    site, runs = full
    title = next(title for title in runs if title.startswith("Invoice"))
    page = site.visit(size=size, scheme=scheme)
    found: list[str] = []
    for path, shown in (
        (f"/inbox/{question(site, runs[title])}", ".answer"),
        ("/runs", ".row"),
        (f"/runs/{runs['The printer is on fire']}", ".node"),
        (f"/runs/{runs[title]}?tab=iterations", ".round"),
        (f"/runs/{runs[title]}?tab=events", ".event-row"),
        ("/definitions", ".card"),
        ("/definitions/finance?tab=edit", ".valid"),
        (ROOM, ".line"),
        ("/channels/release", ".seat-waiting"),
        ("/agents", ".agent"),
        ("/figures", ".uplot"),
        ("/memory", ".memories"),
        ("/audit", ".audit"),
    ):
        page.goto(path)
        page.locator(shown).first.wait_for()
        page.evaluate(axe)  # past the policy: it comes from the test, not from the page
        seen = page.evaluate("() => axe.run({ resultTypes: ['violations'] })")
        found += [
            f"{path} {one['id']}: {one['nodes'][0]['failureSummary']} {one['nodes'][0]['html']}"
            for one in seen["violations"]
            if one["impact"] in ("serious", "critical")
        ]
    assert not found, "\n".join(found)
