"""Pictures of every view, for the documentation: HANDRAIL_SCREENSHOTS=1 makes them."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import Page
from tests.page.samples import ROOM, filled, question
from tests.page.site import NARROW, WIDE, Site

from handrail.cli.demo_server import SAMPLES

IMAGES = Path(__file__).parents[2] / "docs/images"


def places(site: Site) -> dict[str, tuple[str, str]]:
    """Name of the picture -> the place, and what is waited for there."""
    runs = filled(site)
    title = next(title for title in runs if title.startswith("Invoice"))
    bug = runs[next(one.title for one in SAMPLES if one.definition == "auto-bug-workflow")]
    return {
        "inbox": (f"/inbox/{question(site, runs[title])}", ".answer"),
        "runs": ("/runs", ".row-bar .bar"),
        "run": (f"/runs/{runs['The printer is on fire']}", ".node"),
        "run-workflow": (f"/runs/{bug}", ".node"),
        "run-iterations": (f"/runs/{runs[title]}?tab=iterations", ".node"),
        "definitions": ("/definitions", ".card"),
        "definition": ("/definitions/auto-bug-workflow", ".node"),
        "definition-edit": ("/definitions/finance?tab=edit", ".node"),
        "channels": (ROOM, ".line"),
        "channel-paused": ("/channels/release", ".seat-waiting"),
        "agents": ("/agents", ".agent"),
        "metrics": ("/figures", ".uplot"),
        "memory": ("/memory", ".memories"),
        "audit": ("/audit", ".audit"),
    }


@pytest.mark.skipif(
    not os.environ.get("HANDRAIL_SCREENSHOTS"), reason="HANDRAIL_SCREENSHOTS=1 makes the pictures"
)
def test_every_view_has_its_pictures(site: Site):
    found = places(site)
    for size in (WIDE, NARROW):
        for scheme in ("light", "dark"):
            page = site.visit(size=size, scheme=scheme)
            for name, (path, shown) in found.items():
                take(page, path, shown, IMAGES / f"{name}-{size[0]}-{scheme}.png")
    assert not site.wrong


def take(page: Page, path: str, shown: str, picture: Path) -> None:
    page.goto(path)
    page.locator(shown).first.wait_for(state="attached")  # on a phone some of it is not shown
    page.evaluate("() => document.fonts.ready")
    picture.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=picture, animations="disabled")
