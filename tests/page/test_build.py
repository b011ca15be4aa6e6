"""Building the page: only when something changed, and without harm where it cannot be built."""

from pathlib import Path
from types import ModuleType

import pytest
from tests.page.conftest import load


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The build of a page whose sources lie in a folder of the test."""
    module = load("build")
    web = tmp_path / "web"
    (web / "src").mkdir(parents=True)
    (web / "index.html").write_text("<!doctype html>")
    (web / "package.json").write_text('{"dependencies": {}}')
    monkeypatch.setattr(module, "WEB", web)
    monkeypatch.setattr(module, "BUILT", tmp_path / "dist")
    return module


def no_node(*_: object) -> list[str]:
    raise AssertionError("nobody needs Node")


def test_nothing_is_done_while_nothing_has_changed(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    built = build.BUILT
    built.mkdir()
    (built / build.STAMP).write_text(build.fingerprint())
    monkeypatch.setattr(build, "_node", no_node)
    assert build.build() is False
    (build.WEB / "src/main.tsx").write_text("changed")
    with pytest.raises(AssertionError, match="nobody needs Node"):
        build.build()


def test_what_is_made_from_the_api_or_only_checks_is_no_change(build: ModuleType):
    before = build.fingerprint()
    (build.WEB / "src/types.gen.ts").write_text("generated")
    (build.WEB / "node_modules").mkdir()
    assert build.fingerprint() == before
    (build.WEB / "src/main.tsx").write_text("changed")
    assert build.fingerprint() != before


def test_without_node_it_is_said_why_and_what_was_built_stays(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    def missing() -> list[str]:
        raise build.NotBuilt("there is no Node")

    monkeypatch.setattr(build, "_node", missing)
    build.BUILT.mkdir()
    (build.BUILT / "index.html").write_text("the page of yesterday")
    with pytest.raises(build.NotBuilt, match="there is no Node"):
        build.build()
    assert (build.BUILT / build.NOT_BUILT).read_text() == "there is no Node\n"
    assert (build.BUILT / "index.html").read_text() == "the page of yesterday"


def test_a_command_that_fails_brings_its_last_words(build: ModuleType):
    with pytest.raises(build.NotBuilt, match="no such page"):
        build.run(["python3", "-c", "raise SystemExit('no such page')"], 60)
