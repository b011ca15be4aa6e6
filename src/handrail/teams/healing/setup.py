"""Describe somebody's service by looking at its repository, and check that it can be healed.

Looking reads files and git's configuration, and runs nothing. Checking runs what healing would run,
in a clean copy of the branch, and pushes nothing.
"""

import json
import os
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from handrail.agents.commands import CommandLimits, run_command_sync
from handrail.commits import CommitRejectedError
from handrail.commits.fence import FenceRef
from handrail.commits.git import Git
from handrail.commits.hooks import install_hooks
from handrail.kernel.decision import Value
from handrail.kernel.definition.limits import Constraints
from handrail.kernel.result import Check
from handrail.teams.coding.checks import detect_test_commands, run_check
from handrail.teams.coding.workspace import NotAllowedError, Workspace
from handrail.teams.healing.request_test import read_examples
from handrail.teams.healing.service import Service

GIT_LIMITS = CommandLimits(seconds=30)
PYTHONS = (".venv/bin/python", "venv/bin/python", "env/bin/python")
LOCK_FILES = {"uv.lock": "uv run python", "poetry.lock": "poetry run python"}
OTHER_TESTS = {"package.json": "npm test", "go.mod": "go test ./...", "Cargo.toml": "cargo test"}
_APP = re.compile(
    r"^(?P<name>[A-Za-z_]\w*)(?:\s*:[^=\n]+)?\s*=\s*(?:\w+\.)*"
    r"(?P<kind>Flask|FastAPI|Starlette|Litestar|Quart|get_wsgi_application|get_asgi_application"
    r"|create_app|make_app)\("
    r"|^(?P<plain>def|async def) (?P<function>app|application)\(",
    re.MULTILINE,
)
_FRAMEWORKS = {
    "get_wsgi_application": "Django",
    "get_asgi_application": "Django",
    "def": "WSGI",
    "async def": "ASGI",
}
_ASK_APP = (
    "import importlib, inspect; app = getattr(importlib.import_module({module!r}), {name!r}); "
    "is_asgi = any(map(inspect.iscoroutinefunction, (app, type(app).__call__))); "
    "raise SystemExit(('ASGI' if is_asgi else 'WSGI') if callable(app) else 'no app')"
)


class ServiceSketch(Value):
    """What a repository shows of the service in it; "" for what it does not show."""

    url: str
    branch: str
    app: str = ""
    framework: str = ""
    python: str = ""
    tests: str = ""
    hooks: str = ""
    required_hooks: tuple[str, ...] = ()
    has_examples: bool = False


class SetupCheck(Value):
    """A line of the check. `state` is "-" where nothing is needed."""

    name: Literal["reproduce", "test", "hooks", "push", "model"]
    state: Literal["yes", "no", "-"]
    detail: str


def sketch_service(folder: Path) -> ServiceSketch:
    """Return what the repository in a folder shows. Raises `NotAllowedError` if it is none."""
    top = _git(folder, "rev-parse", "--show-toplevel")
    if not top:
        raise NotAllowedError(f"'{folder}' is in no git repository; name a service's own folder")
    root = Path(top)
    app, framework = _find_app(root)
    hooks, required_hooks = _find_hooks(root)
    return ServiceSketch(
        url=_git(root, "remote", "get-url", "origin") or str(root),
        branch=_git(root, "symbolic-ref", "--short", "HEAD") or "main",
        app=app,
        framework=framework,
        python=_find_python(root),
        tests=_find_tests(root),
        hooks=hooks,
        required_hooks=required_hooks,
        has_examples=(root / "examples.json").is_file(),
    )


def write_service(sketch: ServiceSketch, home: Path) -> str:
    """Return the text of a `service.yaml`: what was seen, and as comments what was not."""

    def line(key: str, value: object, comment: str, *, indent: str = "") -> str:
        if value:
            return f"{indent}{key}: {json.dumps(value, ensure_ascii=False)}  # {comment}\n"
        return f"{indent}# {key}:  # {comment}\n"

    return (
        "# What Handrail heals: HANDRAIL_SERVICE=service.yaml handrail serve --builtin-agents\n"
        "repository:\n"
        + line("url", sketch.url, "what git clones and pushes to", indent="  ")
        + line("branch", sketch.branch, "what is committed to", indent="  ")
        + line("hooks", sketch.hooks, "the folder of the repository's hooks", indent="  ")
        + line("required_hooks", sketch.required_hooks, "nothing goes in without", indent="  ")
        + line("protected", (), "folders that no patch may touch: [vendor/]", indent="  ")
        + line("home", str(home), "working copies, outside of the repository")
        + line("app", sketch.app, "a WSGI or ASGI app, as module:name")
        + line("python", sketch.python, "the interpreter with the service's packages")
        + line("tests", sketch.tests, "the command of all tests")
        + line("examples", "examples.json", "requests with their answers, in the repository")
        + line("test_commands", (), "what a bead's own test may begin with: [npm test]")
    )


async def check_service(service: Service, model: str) -> list[SetupCheck]:
    """Run what healing would run, in a clean copy of the branch."""
    try:
        folder = await service.working_copies.open("heal-check", fresh=True)
    except CommitRejectedError as error:
        return [SetupCheck(name="push", state="no", detail=str(error))]
    try:
        workspace = Workspace(folder, service.constraints, python=service.python_command)
        return [
            await _check_reproduction(service, workspace),
            await _check_tests(service, workspace),
            await _check_hooks(service, folder),
            await _check_push(service, folder),
            _check_model(model),
        ]
    finally:
        service.working_copies.remove("heal-check")


async def _check_reproduction(service: Service, workspace: Workspace) -> SetupCheck:
    if not service.app:
        detail = "no `app` is named; without one each bug needs a test of its own (context.test)"
        return SetupCheck(name="reproduce", state="no", detail=detail)
    module, _, name = service.app.partition(":")
    source = _ASK_APP.format(module=module, name=name or "app")
    check = await run_check(workspace, f"python -c {shlex.quote(source)}", CommandLimits())
    answer = _last_line(check)
    if answer not in ("WSGI", "ASGI"):
        detail = f"{service.app} cannot be imported by {' '.join(workspace.python)}: {answer}"
        return SetupCheck(name="reproduce", state="no", detail=f"{detail}; see `app`, `python`")
    try:
        examples = (
            read_examples(workspace.read(service.examples))
            if service.examples in workspace.files()
            else []
        )
    except (msgspec.DecodeError, NotAllowedError) as error:
        detail = f"{service.examples} cannot be read: {error}"
        return SetupCheck(name="reproduce", state="no", detail=detail)
    count = f"{len(examples)} request{'s' if len(examples) > 1 else ''}"
    has = count if examples else "no requests yet, so that only a GET is asked again"
    detail = f"{service.app} is a {answer} app; {service.examples} has {has}"
    return SetupCheck(name="reproduce", state="yes", detail=detail)


async def _check_tests(service: Service, workspace: Workspace) -> SetupCheck:
    command = service.tests or next(iter(detect_test_commands(workspace)), "")
    if not command:
        detail = "no tests are found; write one, or name their command in `tests`"
        return SetupCheck(name="test", state="no", detail=detail)
    started = time.monotonic()
    check = await run_check(workspace, command, CommandLimits())
    seconds = time.monotonic() - started
    if check.exit_code:
        detail = f"{command} ends with {check.exit_code} on a clean copy: {_last_line(check)}"
        return SetupCheck(name="test", state="no", detail=f"{detail}; a repair must find it green")
    return SetupCheck(name="test", state="yes", detail=f"{command} is green in {seconds:.1f} s")


async def _check_hooks(service: Service, folder: Path) -> SetupCheck:
    git = Git(folder / ".git", folder, service.repository.variables)
    try:
        installed = await install_hooks(
            git, service.repository, "HEAD", folder / ".git" / "laid-out"
        )
    except CommitRejectedError as error:
        return SetupCheck(name="hooks", state="no", detail=str(error))
    names = sorted(path.name for path in installed.iterdir())
    detail = ", ".join(names) or "none; every approved commit goes in"
    return SetupCheck(name="hooks", state="yes" if names else "-", detail=detail)


async def _check_push(service: Service, folder: Path) -> SetupCheck:
    """Ask the repository whether it would take a push of what it has."""
    repository = service.repository
    git = Git(folder / ".git", folder, repository.variables)
    target = f"{repository.branch} of {repository.url}"
    if _is_checked_out(repository.url, repository.branch):
        detail = f"{target} is checked out there, and git refuses a push; use a bare repository"
        return SetupCheck(name="push", state="no", detail=detail)
    try:
        head = await FenceRef(git, repository, 0).fetch()
        await git.check_output(
            "push", "--dry-run", "--quiet", repository.url, f"{head}:{repository.head_ref}"
        )
    except CommitRejectedError as error:
        return SetupCheck(name="push", state="no", detail=f"{target}: {error}")
    return SetupCheck(name="push", state="yes", detail=f"{target} can be pushed to")


def _check_model(model: str) -> SetupCheck:
    if not model:
        detail = "repairs by rule alone; HANDRAIL_MODEL names a model that investigates"
        return SetupCheck(name="model", state="-", detail=detail)
    from handrail.teams.healing.model_investigator import model_investigator

    try:
        model_investigator(model)
    except ValueError as error:
        return SetupCheck(name="model", state="no", detail=str(error))
    return SetupCheck(name="model", state="yes", detail=f"{model} investigates")


def _find_app(root: Path) -> tuple[str, str]:
    """Return the app that lies nearest to the root, and its framework."""
    return next(iter(sorted(_apps(root), key=lambda app: (app[0].count("."), app))), ("", ""))


def _apps(root: Path) -> Iterator[tuple[str, str]]:
    workspace = Workspace(root, Constraints())
    for path in workspace.python_files():
        if path.startswith(("tests/", "test/", "docs/")) or Path(path).name.startswith("test_"):
            continue
        for match in _APP.finditer(workspace.read(path)):
            module = path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__")
            kind = match["kind"] or match["plain"]
            name = match["name"] or match["function"]
            yield f"{module.replace('/', '.')}:{name}", _FRAMEWORKS.get(kind, kind)


def _find_hooks(root: Path) -> tuple[str, tuple[str, ...]]:
    configured = _git(root, "config", "core.hooksPath")
    for folder in (configured, ".githooks"):
        path = root / folder
        if folder and not Path(folder).is_absolute() and path.is_dir():
            names = sorted(file.name for file in path.iterdir() if os.access(file, os.X_OK))
            return folder, tuple(name for name in names if name.startswith("pre-"))
    return "", ()


def _find_python(root: Path) -> str:
    own = next((name for name in PYTHONS if os.access(root / name, os.X_OK)), "")
    locked = (command for file, command in LOCK_FILES.items() if (root / file).is_file())
    return own or next(locked, "")


def _find_tests(root: Path) -> str:
    other = (command for file, command in OTHER_TESTS.items() if (root / file).is_file())
    # Whether pytest is there is the service's own environment's to say, so a sign of it is enough.
    workspace = Workspace(root, Constraints(), python=("its-own-python",))
    return next(iter(detect_test_commands(workspace)), "") or next(other, "")


def _is_checked_out(url: str, branch: str) -> bool:
    folder = Path(url.removeprefix("file://"))
    if not folder.is_dir() or _git(folder, "rev-parse", "--is-bare-repository") == "true":
        return False
    return _git(folder, "symbolic-ref", "--short", "HEAD") == branch


def _git(folder: Path, *args: str) -> str:
    """Return what git prints, "" if it fails."""
    completed = run_command_sync(("git", "-C", str(folder), *args), Path.cwd(), GIT_LIMITS)
    return completed.stdout.decode("utf-8", "replace").strip() if not completed.exit_code else ""


def _last_line(check: Check) -> str:
    lines = [line.strip() for line in check.stderr.splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"exit code {check.exit_code}"
