"""How a failure is made again, and what is said of a fix, piece by piece."""

from pathlib import Path

import pytest

from handrail.commits import PatchProposal, Repository
from handrail.kernel.definition.limits import Constraints
from handrail.teams.coding.failures import parse_tracebacks
from handrail.teams.coding.workspace import NotAllowedError, Workspace
from handrail.teams.healing.proposal import assess_risk
from handrail.teams.healing.reproduction import (
    build_reproduction,
    is_same_failure,
    reported_failure,
)
from handrail.teams.healing.service import Service

APP = "shop.app:app"
EXAMPLES = """[
 {"path": "/orders/17", "answer": {"n": 17}},
 {"path": "/orders/18", "query": "a=b", "status": 201, "answer": [null, true]},
 {"path": "/orders", "method": "POST", "body": {"n": 1}}
]"""
TOLD = """Traceback (most recent call last):
  File "/srv/app/shop/app.py", line 9, in app
    return total()
  File "/srv/app/shop/totals.py", line 3, in total
    return 1 / 0
ZeroDivisionError: division by zero
"""


@pytest.fixture
def shop(tmp_path: Path) -> Workspace:
    (tmp_path / "examples.json").write_text(EXAMPLES)
    return Workspace(tmp_path, Constraints())


def error(method: str, route: str, path: str = "") -> dict[str, object]:
    return {"error": {"method": method, "route": route, "path": path}}


def shows(
    shop: Workspace,
    context: dict[str, object],
    title: str = "It fails",
    app: str = APP,
    test_commands: tuple[str, ...] = (),
):
    repository = Repository(url="/srv/git/shop.git")
    service = Service(repository=repository, home="/x", app=app, test_commands=test_commands)
    return build_reproduction(shop, context, title, service)


def test_all_examples_of_the_route_become_tests_that_expect_their_answers(shop: Workspace):
    found = shows(shop, error("GET", "/orders/{}"))
    compile(found.text, found.path, "exec")
    assert found.text.count("    def test_") == 2
    assert "self.assertEqual(answer, {'n': 17})" in found.text
    assert "self.assertEqual(answer, [None, True])" in found.text
    assert "self.assertEqual(status, 201)" in found.text
    name = found.path.removesuffix(".py").replace("/", ".")
    assert found.command == f"python -m unittest {name}"
    assert shows(shop, error("GET", "/orders/{}")) == found, "the same file, not another one"


def test_an_example_without_an_answer_must_only_not_be_an_error(shop: Workspace):
    found = shows(shop, error("POST", "/orders"))
    assert "ask('POST', '/orders', '', b'{\"n\": 1}', 'application/json')" in found.text
    assert "self.assertLess(status, 500, answer)" in found.text


def test_a_bare_route_needs_no_example(shop: Workspace):
    assert "ask('GET', '/health')" in shows(shop, error("GET", "/health")).text


def test_the_path_that_failed_comes_before_other_paths_of_its_template(shop: Workspace):
    found = shows(shop, error("GET", "/orders/{order_id}", "/orders/17"))
    assert found.text.count("    def test_") == 1
    assert "'/orders/17'" in found.text
    assert found.label == "GET /orders/{order_id}"
    others = shows(shop, error("GET", "/orders/<int:order>", "/orders/99"))
    assert others.text.count("    def test_") == 2
    without_example = shows(shop, error("GET", "/people/{}", "/people/ana-7"))
    assert "ask('GET', '/people/ana-7')" in without_example.text


@pytest.mark.parametrize(
    ("context", "app", "told"),
    [
        (error("GET", "/people/{}"), APP, "no request for GET /people/{}"),
        (error("PUT", "/health"), APP, "no request for PUT /health"),
        ({}, APP, "the bead names no request that failed"),
        (error("GET", "/health"), "", "the service names no app"),
        ({"test": "x; rm -r"}, APP, "context.test 'x; rm -r' is not run"),
        ({"test": "npm test; rm -r"}, APP, "`test_commands` of the service's file"),
        ({"test": ["npm", "test"]}, APP, "is not run"),
        ({"test": ""}, APP, "is not run"),
    ],
)
def test_what_cannot_be_made_again_is_told(shop: Workspace, context, app: str, told: str):
    with pytest.raises(NotAllowedError) as raised:
        shows(shop, context, app=app)
    assert told in str(raised.value)


def test_examples_that_cannot_be_read_are_told(tmp_path: Path):
    (tmp_path / "examples.json").write_text("[{}]")
    with pytest.raises(NotAllowedError, match="has no examples that can be read"):
        shows(Workspace(tmp_path, Constraints()), error("GET", "/orders"))


@pytest.mark.parametrize(
    ("test", "command"),
    [
        ("tests.test_a.A.test_b", "python -m unittest tests.test_a.A.test_b"),
        ("tests/test_a.py::test_b", "python -m pytest -q --tb=native tests/test_a.py::test_b"),
        ("python -m unittest tests.test_a", "python -m unittest tests.test_a"),
        ("python -m pytest -k 'a'", None),
        ("npm test -- orders.test.js", "npm test -- orders.test.js"),
        ("npm test -- $(id)", None),
        ("npm testing", None),
        ("go test ./...", None),
    ],
)
def test_a_test_that_the_bead_names_is_run_as_it_is(
    shop: Workspace, test: str, command: str | None
):
    if command is None:
        with pytest.raises(NotAllowedError, match="is not run"):
            shows(shop, {"test": test}, test_commands=("npm test",))
        return
    found = shows(shop, {"test": test}, test_commands=("npm test",))
    assert (found.command, found.path) == (command, "")


@pytest.mark.parametrize("title", ['"""\nimport os', "a\\", "\x00\u202e…", "x" * 500])
def test_no_title_gets_out_of_the_tests_docstring(shop: Workspace, title: str):
    found = shows(shop, error("GET", "/health"), title)
    compile(found.text, found.path, "exec")
    assert "\nimport os\n" not in found.text
    assert max(map(len, found.text.splitlines())) < 120


def test_the_same_failure_is_known_by_its_error_and_place_wherever_the_code_lies():
    told = reported_failure(f"500\n{TOLD}")
    assert told is not None
    here = TOLD.replace("/srv/app/", "")
    (same,) = parse_tracebacks(here.replace("line 3", "line 7"))
    (elsewhere,) = parse_tracebacks(here.replace("totals.py", "sums.py"))
    (other,) = parse_tracebacks(here.replace("ZeroDivisionError", "ValueError"))
    assert [is_same_failure(told, seen) for seen in (same, elsewhere, other)] == [
        True,
        False,
        False,
    ]
    assert is_same_failure(reported_failure("no traceback"), other), (
        "what says nothing excludes nothing"
    )


def proposal(*files: str, lines: int = 1) -> PatchProposal:
    body = "".join(f"+line {n}\n" for n in range(lines))
    patch = "".join(
        f"diff --git a/{f} b/{f}\n--- a/{f}\n+++ b/{f}\n@@ -1 +1 @@\n{body}" for f in files
    )
    return PatchProposal(patch=patch, base="b", patch_id="p", files=files)


@pytest.mark.requirement("L11.6")
@pytest.mark.parametrize(
    ("files", "lines", "pattern", "level"),
    [
        (("a.py", "tests/test_new.py"), 2, "off-by-one", "low"),
        (("a.py",), 11, "off-by-one", "medium"),
        (("a.py", "b.py"), 1, "off-by-one", "medium"),
        (("a.py",), 1, "missing-check", "medium"),
        (("a.py", "tests/test_old.py"), 1, "off-by-one", "high"),
        (("tests/test_new.py",), 50, "", "low"),
    ],
)
def test_the_risk_of_a_fix_follows_from_what_it_changes(
    files: tuple[str, ...], lines: int, pattern: str, level: str
):
    known = frozenset({"a.py", "b.py", "tests/test_old.py"})
    risk = assess_risk(proposal(*files, lines=lines), pattern, known)
    assert risk.level == level
    assert risk.why
