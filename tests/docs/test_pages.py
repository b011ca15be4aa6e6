"""What the pages show is what happens: files are valid, sessions are real, the Python runs.

A block of code whose first line is a comment with a name is a file of the page, and is written
before the sessions run, in the page's own folder. In a session `...` stands for any lines.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from pytest_examples import CodeExample, EvalExample, find_examples
from tests.cli.command_line import CommandResult, run_command
from tests.cli.command_targets import isolate
from tests.client.live_server import PATIENCE, Server
from tests.docs import generated_parts as written
from tests.teams.test_healing_frameworks import FLASK, make_repository

from handrail.server.settings import DATABASE_DEFAULT
from handrail.teams import install_teams

pytest_plugins = ["tests.fixtures_postgres"]

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = ("quickstart", "client", *(f"howto/{page.stem}" for page in (DOCS / "howto").glob("*.md")))
EVERY = sorted([ROOT / "README.md", *DOCS.glob("*.md"), *DOCS.glob("howto/*.md")])
FILE = re.compile(r"```\w+\n# (\S+\.\w+)\n(.*?)```", flags=re.S)
SESSION = re.compile(r"```console\n(.*?)```", flags=re.S)
EXAMPLES = [
    example
    for page in PAGES
    for example in find_examples(str(DOCS / f"{page}.md"))
    if example.prefix.strip() == "python" and not FILE.match(f"```python\n{example.source}```")
]
DIFFERS = (
    (re.compile(r"\b[0-9a-f]{64}\b"), "HASH"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "MOMENT"),
    (re.compile(r"\b[\d.]+ s\b"), "SECONDS"),
    (re.compile(r"\b[\d.]+ [kM]B\b"), "SIZE"),
    (re.compile(r"@[0-9a-f]{8}\b"), "@ENGINE"),
    (re.compile(r"--python \S+"), "--python PYTHON"),
)
"""What is not the same each time."""


def text_of(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def plain(text: str) -> str:
    for pattern, name in DIFFERS:
        text = pattern.sub(name, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def as_shown(shown: str, happened: str) -> bool:
    """Line by line; `...` is any number of lines."""
    literal = re.sub(r"([\[\]*?])", r"[\1]", plain(shown))
    return fnmatchcase(plain(happened), re.sub(r"(^|\n)\.\.\.(\n|$)", "*", literal))


def sessions(page: str) -> Iterator[tuple[str, str]]:
    """Every command of the page with what it prints."""
    for block in SESSION.findall(text_of(page)):
        for step in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, shown = step.partition("\n")
            yield command, shown


def done(command: str) -> CommandResult:
    """`handrail …`, with what a shell before the `|` says as its input."""
    said, _, asked = command.rpartition(" | ")
    stdin = subprocess.check_output(["bash", "-c", said], text=True) if said else ""
    words = shlex.split(asked)
    assert words[0] == "handrail", command
    return run_command(*words[1:], stdin=stdin)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("UV", raising=False)  # the pages have `handrail` on the path
    return isolate(monkeypatch, tmp_path / "page")


def write_files(page: str, folder: Path) -> list[str]:
    found = FILE.findall(text_of(page))
    for name, text in found:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"# {name}\n{text}")  # the block as it is copied, whole
    return [name for name, _ in found]


@pytest.mark.parametrize("page", PAGES)
def test_the_sessions_of_a_page_are_real(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    write_files(page, folder)
    if "heal-your-service" in page:  # in the clone of one
        make_repository(folder.parent, FLASK)
        monkeypatch.chdir(folder.parent / "work")
        monkeypatch.setenv("HOME", str(folder))
    if "back-up" in page:  # of something
        Path(".handrail").mkdir()
        assert run_command("run", "helpdesk", "--database", DATABASE_DEFAULT).code == 0
    for command, shown in sessions(page):
        called = done(command)
        assert as_shown(shown, called.out + called.err), f"{command}\n{called.out}{called.err}"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: f"{one.path.stem}-{one.start_line}")
def test_the_python_of_a_page_prints_what_it_says(
    example: CodeExample, eval_example: EvalExample, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    eval_example.set_config(line_length=120)
    with served("handrail.Client(" in example.source, folder, monkeypatch):
        eval_example.run_print_check(example)


@contextmanager
def served(wanted: bool, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server with the built-in agents, and a token that may answer."""
    if not wanted:
        yield
        return
    with Server(f"sqlite:///{folder / 'served.db'}") as server:
        server.do(install_teams(server.engine))
        patch.setenv("HANDRAIL_SERVER", server.url)
        patch.setenv("HANDRAIL_TOKEN", server.token("ceo", "ana"))
        yield


def test_the_tests_of_the_page_about_agents_pass(folder: Path):
    files = write_files("howto/write-an-agent", folder)
    assert files == ["agents.py", "test_agents.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull]
    done = subprocess.run(
        [*command, "--rootdir=.", "test_agents.py"], cwd=folder, capture_output=True, text=True,
        timeout=PATIENCE * 5, check=False,
    )  # fmt: skip
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_on_postgresql_the_first_command_makes_the_tables(
    postgres_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    page = text_of("howto/run-on-postgresql")
    (created,) = re.findall(r"^handrail (token create .*?)(?: +#.*)?$", page, flags=re.M)
    monkeypatch.setenv("HANDRAIL_DATABASE", postgres_url)
    for command in (created, "doctor", "verify"):
        called = run_command(*shlex.split(command))
        assert called.code == 0, called


def test_the_worker_of_the_page_about_models_can_be_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    (name,) = write_files("howto/connect-a-model", folder)
    exec((folder / name).read_text(), {})


def test_the_quickstart_ends_with_a_run_at_a_server(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """As its last part says: the starter's worker, a bead, an answer."""
    page = text_of("quickstart").partition("## Serve it")[2]
    assert run_command("init", ".").code == 0
    with Server(f"sqlite:///{folder / 'work.db'}") as server:
        monkeypatch.setenv("HANDRAIL_DATABASE", server.database)
        token = r"\$\(handrail (token create .*)\)"
        made = run_command(*shlex.split(re.findall(token, page)[0]))
        worker, filed = re.findall(r"^handrail ((?:worker|bead create) .*)$", page, flags=re.M)
        command = shlex.split(worker.replace("http://127.0.0.1:8080", server.url))
        environment = {**os.environ, "HANDRAIL_TOKEN": made.out.strip()}
        working = subprocess.Popen([sys.executable, "-m", "handrail", *command], env=environment)
        try:
            run = run_command(*shlex.split(filed)).out.split()[-1]
            question = server.do(_asked(server, run))
            assert "faster start" in run_command("answer", question).out
            assert run_command("answer", question, "OK").code == 0
            assert run_command("show", "--watch", run).code == 0
        finally:
            working.terminate()
            working.wait(PATIENCE)


async def _asked(server: Server, run: str) -> str:
    """The question that the run comes to."""
    handle = server.engine.run(run)
    (question,) = await handle.questions(timeout=PATIENCE)
    return question.id


COMMAND = re.compile(
    r"\bhandrail (?!handrail)((?:[a-z][a-z0-9-]*)(?: [a-z][a-z0-9-]*)*)((?: (?!\|)[^\s`|;&)]+)*)"
)


def named_commands() -> Iterator[tuple[str, str, list[str]]]:
    """Every `handrail COMMAND --option` in the code of any page: page, command, options."""
    known = dict(written.commands())
    for page in EVERY:
        text = page.read_text(encoding="utf-8")
        for code in re.findall(r"```(?:sh|console)\n.*?```|`[^`\n]+`", text, flags=re.S):
            for words, rest in COMMAND.findall(code.replace("\\\n", " ")):
                parts = words.split()
                name = next(
                    (f"handrail {' '.join(parts[:n])}" for n in (2, 1)
                     if f"handrail {' '.join(parts[:n])}" in known), f"handrail {parts[0]}",
                )  # fmt: skip
                yield page.name, name, re.findall(r"(--[a-z-]+)", rest)


def test_every_command_that_a_page_names_is_there_with_its_options():
    known = dict(written.commands())
    groups = {name.rpartition(" ")[0] for name in known}
    found = list(named_commands())
    assert len(found) > 100
    for page, name, options in found:
        assert name in known or name in groups, f"{page}: there is no `{name}`"
        if name in known:
            has = {option for one in known[name].params for option in one.opts} | {"--help"}
            assert set(options) <= has, f"{page}: `{name}` has no {set(options) - has}"


def test_every_link_of_every_page_leads_somewhere():
    for page in EVERY:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
        for target, _, mark in re.findall(r"\]\(([^)#:\s]*)(#([\w-]+))?\)", text):
            file = (page.parent / target).resolve() if target else page
            assert file.exists(), f"{page.name}: {target}"
            if mark:
                heads = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), flags=re.M)
                known = {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads}
                assert mark in known, f"{page.name}: {target}#{mark}"


def test_every_page_is_reached_from_the_index():
    seen, ahead = set[Path](), [DOCS / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in EVERY and page not in seen:
            seen.add(page)
            targets = re.findall(r"\]\(([^)#:\s]+\.md)", page.read_text(encoding="utf-8"))
            ahead += [(page.parent / target).resolve() for target in targets]
    missing = sorted(page.name for page in set(EVERY) - seen - {ROOT / "README.md"})
    assert not missing, f"add to docs/README.md, or to a page that stands there: {missing}"


@pytest.mark.parametrize(
    ("shown", "happened", "same"),
    [
        ("a\n...\nb", "a\nx\ny\nb", True),
        ("...\nb", "b", True),
        ("a\nb", "a\nx\nb", False),
        ("took 0.1 s [x]", "took 3 s [x]", True),
        ("took 0.1 s [x]", "took 3 s x", False),
    ],
)
def test_a_session_is_compared_line_by_line(shown: str, happened: str, same: bool):
    assert as_shown(shown, happened) is same
