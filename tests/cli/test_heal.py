"""`handrail heal`: a service is described by looking at it, and the check says what is missing."""

import sys
from pathlib import Path

import pytest
from tests.cli.command_line import run_command
from tests.commits.sample_repository import git
from tests.teams.test_healing_frameworks import APPS, WSGI, make_repository


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HANDRAIL_MODEL", raising=False)


def shop(folder: Path, app: str = WSGI) -> Path:
    """A clone of a shop's repository, as its developer has it."""
    make_repository(folder, app)
    return folder / "work"


def run(*words: str) -> tuple[int, str]:
    result = run_command("heal", *words)
    return result.code, result.out + result.err


def checked(text: str) -> dict[str, str]:
    """What the table says of each thing."""
    return {line.split()[0]: line.split()[1] for line in text.splitlines()[1:] if line.split()}


@pytest.mark.parametrize(
    ("app", "name"),
    [("flask", "Flask"), ("django", "Django"), ("fastapi", "FastAPI"), ("starlette", "Starlette")],
)
def test_what_init_writes_passes_the_check(tmp_path: Path, app: str, name: str):
    work = shop(tmp_path, APPS[app])
    code, text = run("init", str(work))
    assert code == 0
    assert f"app shop.web:app ({name}), tests python -m unittest" in text
    assert "handrail heal check" in text
    code, text = run("check", str(work))
    expected = {"reproduce": "yes", "test": "yes", "hooks": "yes", "push": "yes", "model": "-"}
    assert (code, checked(text)) == (0, expected), text
    assert "examples.json has 1 request" in text


def test_init_writes_over_no_file_and_needs_a_repository(tmp_path: Path):
    work = shop(tmp_path)
    (work / "service.yaml").write_text("mine")
    code, text = run("init", str(work))
    assert (code, (work / "service.yaml").read_text()) == (2, "mine")
    assert "is there already; edit it, or remove it first" in text
    (tmp_path / "elsewhere").mkdir()
    code, text = run("init", str(tmp_path / "elsewhere"))
    assert code == 2
    assert "is in no git repository; name a service's own folder" in text


def test_init_sees_the_services_own_python_hooks_and_tests_of_other_languages(tmp_path: Path):
    work = shop(tmp_path)
    (work / "tests/test_prices.py").unlink()
    (work / "package.json").write_text("{}")
    (work / "venv/bin").mkdir(parents=True)
    (work / "venv/bin/python").symlink_to(sys.executable)
    (work / "shop/web.py").write_text("import web\napp = web.WSGI()\n")
    run("init", str(work))
    text = (work / "service.yaml").read_text()
    assert 'python: "venv/bin/python"' in text
    assert 'required_hooks: ["pre-commit"]' in text
    assert 'tests: "npm test"' in text
    assert "# app:  # a WSGI or ASGI app, as module:name" in text


def change(work: Path, old: str, new: str) -> None:
    text = (work / "service.yaml").read_text()
    assert old in text, text
    (work / "service.yaml").write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("line", "old", "new", "told"),
    [
        ("reproduce", "shop.web:app", "shop.nowhere:app", "No module named 'shop.nowhere'"),
        ("reproduce", "shop.web:app", "shop.prices:PRICES", "no app; see `app`, `python`"),
        ("reproduce", "app: ", "# app: ", "no `app` is named"),
        ("reproduce", '"examples.json"', '"shop/web.py"', "shop/web.py cannot be read"),
        ("test", "-m unittest", "-m unittest nothing.there", "a repair must find it green"),
        ("hooks", '"pre-commit"', '"pre-receive"', "the hook pre-receive of"),
        ("push", 'branch: "', 'branch: "no-', "no-"),
    ],
)
def test_each_thing_that_does_not_work_says_what_to_do(
    tmp_path: Path, line: str, old: str, new: str, told: str
):
    work = shop(tmp_path)
    run("init", str(work))
    change(work, old, new)
    code, text = run("check", str(work))
    assert (code, checked(text)[line]) == (1, "no"), text
    assert told in text


def test_a_repository_whose_branch_is_checked_out_cannot_be_pushed_to(tmp_path: Path):
    work = shop(tmp_path)
    git(work, "remote", "remove", "origin")
    run("init", str(work))
    code, text = run("check", str(work))
    assert (code, checked(text)["push"]) == (1, "no"), text
    assert "use a bare repository" in text


def test_a_model_that_cannot_be_used_is_a_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    work = shop(tmp_path)
    run("init", str(work))
    monkeypatch.setenv("HANDRAIL_MODEL", "nobody:nothing")
    code, text = run("check", str(work))
    assert (code, checked(text)["model"]) == (1, "no"), text
    assert not [path for path in (tmp_path / "home").rglob("heal-check*") if [*path.iterdir()]]
