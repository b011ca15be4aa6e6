"""What the offline coder can mend, and what the researcher finds: on the sample and its bugs."""

import asyncio
from pathlib import Path

import pytest

from handrail.agents.commands import CommandLimits
from handrail.kernel.definition.limits import Constraints
from handrail.teams.coding import repair_patterns
from handrail.teams.coding.checks import UNITTEST_COMMAND, find_checks, run_checks
from handrail.teams.coding.failures import Failure, TracebackFrame, parse_tracebacks
from handrail.teams.coding.repair_patterns import PATTERN_ORDER, PATTERNS
from handrail.teams.coding.repair_search import RepairSearchResult, search_repair
from handrail.teams.coding.search import find_code_names, research
from handrail.teams.coding.workspace import Workspace
from handrail.teams.coding.workspaces import load_sample_files, load_scenes, write_sample

MENDED = {
    "off-by-one": "off-by-one",
    "wrong-comparison": "comparison",
    "wrong-operator": "operator",
    "missing-return": "missing-return",
    "mutable-default": "mutable-default",
    "wrong-default": "wrong-default",
    "missing-empty-check": "missing-check",
    "misspelt-attribute": "misspelt",
    "misspelt-name": "misspelt",
    "missing-import": "missing-import",
    "wrong-exception": "wrong-exception",
    "inverted-condition": "inverted-condition",
    "wrong-constant": "wrong-constant",
}
"""Bug of the sample -> the pattern that mends it."""
ELSEWHERE = {"not-written-yet", "no-such-service", "fault-in-vendor"}


def made(folder: Path, *bugs: str) -> Workspace:
    folder.mkdir(exist_ok=True)
    write_sample(folder, bugs)
    return Workspace(folder, Constraints(paths=("vendor",)))


def mending(workspace: Workspace, scratch: Path, tried: int = 0) -> RepairSearchResult:
    return asyncio.run(
        search_repair(workspace, UNITTEST_COMMAND, scratch, tried, CommandLimits(seconds=100))
    )


def test_every_pattern_has_a_bug_of_the_sample_and_a_place_in_the_order() -> None:
    assert set(MENDED.values()) == set(PATTERNS)
    assert set(MENDED) | ELSEWHERE == set(load_scenes().bugs)
    ordered = {
        *repair_patterns._EXCEPTION_ORDER,
        *(name for names in PATTERN_ORDER.values() for name in names),
    }
    assert ordered == set(PATTERNS)


@pytest.mark.parametrize("bug", MENDED)
def test_each_kind_of_bug_is_mended_by_its_pattern(tmp_path: Path, bug: str) -> None:
    workspace = made(tmp_path / "project", bug)
    before = {path: workspace.read(path) for path in workspace.files()}
    found = mending(workspace, tmp_path)
    assert found.repair is not None
    assert found.repair.pattern == MENDED[bug]
    assert found.repair.path == load_scenes().bugs[bug].path
    assert {path: workspace.read(path) for path in workspace.files()} == before, "it only proposes"
    assert [path.name for path in tmp_path.iterdir()] == ["project"], "and leaves nothing behind"
    workspace.write(found.repair.path, found.repair.text)
    evidence = asyncio.run(run_checks(workspace, find_checks(workspace, {}), CommandLimits()))
    assert [check.exit_code for check in evidence.checks] == [0]
    if bug != "missing-import":  # an import may stand in another place than it did
        assert workspace.read(found.repair.path) == load_sample_files()[found.repair.path]


def test_what_is_beyond_the_patterns_is_left_as_it_is(tmp_path: Path) -> None:
    found = mending(made(tmp_path / "project", "not-written-yet"), tmp_path)
    assert (found.repair, found.has_more) == (None, False)
    assert found.tried_repairs > 0


def test_a_later_turn_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    workspace = made(tmp_path / "project", "off-by-one")
    first = mending(workspace, tmp_path)
    assert first.tried_repairs > 1
    later = mending(workspace, tmp_path, tried=first.tried_repairs - 1)
    assert (later.repair, later.tried_repairs) == (first.repair, first.tried_repairs)


def test_two_bugs_are_mended_one_after_the_other(tmp_path: Path) -> None:
    workspace = made(tmp_path / "project", "misspelt-name", "missing-import")
    for _ in range(2):
        found = mending(workspace, tmp_path)
        assert found.repair is not None
        workspace.write(found.repair.path, found.repair.text)
    assert workspace.read("shop/words.py") == load_sample_files()["shop/words.py"]
    assert "\nimport math\n" in workspace.read("shop/invoice.py")


def test_positions_count_characters_where_the_tree_counts_bytes(tmp_path: Path) -> None:
    workspace = made(tmp_path / "project")
    source = 'def f(a):\n    """ü ö ä"""\n    return "äöü", a > 3\n'
    workspace.write("shop/umlaut.py", source)
    test = "import unittest\nfrom shop.umlaut import f\n\n\nclass T(unittest.TestCase):\n"
    test += "    def test_f(self):\n        self.assertEqual(f(3)[1], True)\n"
    workspace.write("tests/test_umlaut.py", test)
    found = mending(workspace, tmp_path)
    assert found.repair is not None
    assert found.repair.text == source.replace("a > 3", "a >= 3")


# Research


def found_in(workspace: Workspace, task: str, **documents: str) -> float:
    return research(workspace, task, (), documents).score


@pytest.mark.requirement("S2")
def test_the_score_is_the_share_of_what_is_named_and_found(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    assert found_in(workspace, "`with_tax` in totals.py is wrong") == 1.0
    assert found_in(workspace, "with_tax and frobnicate_ledger disagree") == 0.5
    assert found_in(workspace, "frobnicate_ledger loses reconciliation_buffer") == 0.0
    assert found_in(workspace, "Nothing is named here at all") == 0.0
    told = found_in(workspace, "frobnicate_ledger is slow", notes="see frobnicate_ledger")
    assert told == 1.0


@pytest.mark.requirement("S2")
def test_frames_of_the_traceback_and_what_the_test_calls_are_places(tmp_path: Path) -> None:
    workspace = made(tmp_path, "missing-empty-check")
    evidence = asyncio.run(run_checks(workspace, find_checks(workspace, {}), CommandLimits()))
    failures = parse_tracebacks(evidence.checks[0].stderr)
    found = research(workspace, "average of nothing", failures, {})
    assert found.score == 1.0
    assert "shop/totals.py:14 average" in found.locations
    assert "shop/totals.py:12 average" in found.locations


def test_a_frame_outside_of_the_folder_is_no_place(tmp_path: Path) -> None:
    frame = TracebackFrame(path="/usr/lib/python3/unittest/case.py", line=1, name="run")
    failure = Failure(frames=(frame,), exception="E", message="")
    assert research(made(tmp_path), "frobnicate_ledger", [failure], {}).locations == ()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("look at `total` and `Stock()`", ["total", "Stock"]),
        ("shop.totals.total() is wrong", ["shop.totals.total"]),
        ("README.md says so", ["README.md"]),
        ("OutOfStock is raised", ["OutOfStock"]),
        ("the total is wrong. Sometimes.", []),
    ],
)
def test_what_looks_like_code_is_a_name(text: str, names: list[str]) -> None:
    assert find_code_names(text) == names
