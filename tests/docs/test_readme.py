"""What the README shows is what happens: its Python runs, its sessions are real."""

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pytest_examples import CodeExample, EvalExample, find_examples
from tests.cli.command_line import run_command
from tests.client.live_server import Server

from handrail.engine.document_parser import load_document
from handrail.kernel.definition.plan import check_definition
from handrail.teams import install_teams

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
SESSIONS = re.findall(r"```console\n\$ uv run handrail (.*?)\n(.*?)```", TEXT, flags=re.S)
PYTHON = [one for one in find_examples(str(README)) if one.prefix.strip() == "python"]
FILES = re.findall(r"```yaml\n# (\S+)\n(.*?)```", TEXT, flags=re.S)


@pytest.mark.parametrize("example", PYTHON, ids=[f"line-{one.start_line}" for one in PYTHON])
def test_the_python_of_the_readme_runs_and_prints_what_it_says(
    example: CodeExample,
    eval_example: EvalExample,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES:
        (tmp_path / name).write_text(text)
    eval_example.set_config(line_length=120)
    with served(example, tmp_path, monkeypatch):
        eval_example.run_print_check(example)


@contextmanager
def served(example: CodeExample, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """As the commands above the example say: a server with the built-in agents, and a token."""
    if "handrail.Client()" not in example.source:
        yield
        return
    with Server(f"sqlite:///{folder / 'served.db'}") as server:
        server.do(install_teams(server.engine))
        patch.setenv("HANDRAIL_SERVER", server.url)
        patch.setenv("HANDRAIL_TOKEN", server.token("operator", "ana"))
        yield


def without_times(text: str) -> list[str]:
    """How long a run took differs, and the digest of a traceback with Python's version."""
    return [
        re.sub(r", [\d.]+ s$|(?<=#)[0-9a-f]{12}\b", "", line)
        for line in text.rstrip("\n").splitlines()
    ]


@pytest.mark.parametrize(("command", "shown"), SESSIONS, ids=[command for command, _ in SESSIONS])
def test_the_sessions_of_the_readme_are_real(
    command: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES:
        (tmp_path / name).write_text(text)
    expected, happened = without_times(shown), without_times(run_command(*shlex.split(command)).out)
    if expected[0] == "...":
        expected = expected[1:]
        happened = happened[-len(expected) :]
    assert happened == expected


def test_the_definitions_of_the_readme_are_valid():
    assert FILES
    for _, text in FILES:
        document, problems = load_document(text)
        assert problems == []
        assert check_definition(document)[1].errors == ()


def test_every_page_the_readme_and_the_architecture_point_to_is_there():
    for page in (README, ROOT / "ARCHITECTURE.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_architecture_names_every_room_and_only_files_that_exist():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    source = ROOT / "src/handrail"
    rooms = text.partition("## The rooms")[2].partition("## ")[0]
    packages = [path.name for path in source.iterdir() if (path / "__init__.py").exists()]
    missing = [name for name in packages if not re.search(rf"\b{name}\b", rooms)]
    assert not missing, f"say in ARCHITECTURE.md what is in {missing}"
    for room in ("kernel", "engine"):
        parts = [path.name for path in (source / room).iterdir() if (path / "__init__.py").exists()]
        missing = [name for name in parts if f"{name}/" not in rooms]
        assert not missing, f"say in ARCHITECTURE.md what is in {room}/{missing}"
    for name in re.findall(r"`((?:[\w]+/)*\w+\.py)`", text):
        assert list(source.rglob(name)) or (ROOT / name).exists(), f"ARCHITECTURE.md: no {name}"
