"""A real server with the built-in teams, and a real browser that somebody has signed in with."""

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from playwright.sync_api import Browser, sync_playwright
from tests.page.samples import filled
from tests.page.site import Site

ROOT = Path(__file__).parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome")


def load(name: str) -> ModuleType:
    """A script of the page's own, as a module."""
    spec = importlib.util.spec_from_file_location(f"web_{name}", ROOT / "web" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def chromium() -> str:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"there is no Chromium here ({', '.join(NAMES)}): apt-get install chromium")
    return found


@pytest.fixture(scope="session")
def built() -> None:
    """The page as its sources are now."""
    build = load("build")
    try:
        build.build()
    except build.NotBuilt as error:
        pytest.fail(f"the page cannot be built: {error}")


@pytest.fixture(scope="session")
def axe() -> str:
    """The accessibility checker, as a script."""
    build = load("build")
    build.install(dev=True)
    return (ROOT / "web/node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """Of one module at a time: while it is there, its loop keeps others from `asyncio.run`."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        yield browser
        browser.close()


@pytest.fixture
def site(built: None, browser: Browser, tmp_path: Path) -> Iterator[Site]:
    with Site(f"sqlite:///{tmp_path / 'work.db'}", browser) as site:
        yield site


@pytest.fixture(scope="module")
def lasting(
    built: None, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """A site that the tests of a module share: for those that leave nothing behind."""
    with Site(f"sqlite:///{tmp_path_factory.mktemp('site') / 'work.db'}", browser) as site:
        yield site


@pytest.fixture(scope="module")
def samples(lasting: Site) -> dict[str, str]:
    """Something to see in every view of the lasting site; runs by their titles."""
    return filled(lasting)


@pytest.fixture
def full(lasting: Site, samples: dict[str, str]) -> Iterator[tuple[Site, dict[str, str]]]:
    """The lasting site with all of that, for those who only look."""
    yield lasting, samples
    lasting.close_pages()
