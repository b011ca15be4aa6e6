"""The plugin that lists the requirements no test names."""

import pytest
from tests import requirements_plugin as plugin

pytest_plugins = ["pytester"]

CATALOGUE = """\
# Requirements

| id | what must hold |
|---|---|
| H1.1 | The first. |
| H1.2 | The second. |
| K3 | The third. |
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A small project with a catalogue; other plugins stay out, they only cost seconds."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makefile(".md", **{"docs/requirements": CATALOGUE})
    pytester.makeini(
        """
        [pytest]
        addopts = --strict-markers -p tests.requirements_plugin
        filterwarnings = error
        markers = requirement(*ids): what a test proves
        """
    )
    pytester.makepyfile(
        test_named="""
        import pytest

        @pytest.mark.requirement("H1.1")
        def test_one(): pass

        @pytest.mark.requirement("K3")
        class TestGroup:
            def test_two(self): pass
        """
    )
    return pytester


@pytest.mark.parametrize("workers", [[], ["-p", "xdist", "-n", "2"]], ids=["alone", "xdist"])
def test_session_ends_with_the_ids_that_no_test_names(project: pytest.Pytester, workers: list[str]):
    result = project.runpytest(*workers)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["requirements: 2 of 3 named by a test; not named: H1.2"])


def test_a_deselected_test_still_counts_as_naming_its_ids(project: pytest.Pytester):
    result = project.runpytest("-k", "test_one")
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines(["requirements: 2 of 3 named by a test; not named: H1.2"])


@pytest.mark.parametrize("workers", [[], ["-p", "xdist", "-n", "1"]], ids=["alone", "xdist"])
def test_a_marker_naming_an_id_outside_the_catalogue_is_a_collection_error(
    project: pytest.Pytester, workers: list[str]
):
    project.makepyfile(
        test_wrong="""
        import pytest

        class TestGroup:
            @pytest.mark.requirement("H9.9")
            def test_unknown(self): pass

            @pytest.mark.requirement("H1.1", "h1.2")
            def test_misspelt(self): pass

            @pytest.mark.requirement()
            def test_empty(self): pass

            @pytest.mark.requirement(3)
            def test_number(self): pass
        """
    )
    result = project.runpytest(*workers)
    assert result.ret != 0
    told = "which docs/requirements.md does not have; correct the id, or add a row for it there"
    result.stdout.fnmatch_lines(
        [
            "*ERROR collecting test_wrong.py*",
            f"test_wrong.py::TestGroup::test_unknown: requirement marker names 'H9.9', {told}",
            f"test_wrong.py::TestGroup::test_misspelt: requirement marker names 'h1.2', {told}",
            f"test_wrong.py::TestGroup::test_empty: requirement marker names '', {told}",
            f"test_wrong.py::TestGroup::test_number: requirement marker names 3, {told}",
        ]
    )


def test_a_project_without_a_catalogue_is_told_so(project: pytest.Pytester):
    (project.path / "docs/requirements.md").unlink()
    result = project.runpytest()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*docs/requirements.md is missing*"])


def test_the_line_says_so_when_every_id_is_named():
    assert plugin.summary(["A1", "A2"], {"A1", "A2"}) == "requirements: 2 of 2 named by a test"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CATALOGUE + "| H1.1 | Again. |\n", ":8: H1.1 stands here a second time"),
        (CATALOGUE + "| H1.3 |\n", ":8: a row must read"),
        (CATALOGUE + "| H1.3, H1.4 | Two. |\n", ":8: a row must read"),
        ("nothing", "no row"),
    ],
)
def test_a_catalogue_that_cannot_be_read_names_the_line(text: str, message: str):
    with pytest.raises(plugin.CatalogueError, match=message):
        plugin.read_catalogue(text)


def test_the_catalogue_of_the_project_has_no_gap_in_its_numbers(pytestconfig: pytest.Config):
    rows = plugin.read_catalogue((pytestconfig.rootpath / plugin.CATALOGUE).read_text("utf-8"))
    last: dict[str, int] = {}
    for name in rows:
        major, _, minor = name[1:].partition(".")
        for group, number in [(name[0], int(major)), (name[0] + major, int(minor or 1))]:
            assert number in (last.get(group, 0), last.get(group, 0) + 1), f"a gap before {name}"
            last[group] = number


def test_catalogue_keeps_its_order_and_the_sentences():
    rows = plugin.read_catalogue(CATALOGUE)
    assert list(rows.items()) == [
        ("H1.1", "The first."),
        ("H1.2", "The second."),
        ("K3", "The third."),
    ]
