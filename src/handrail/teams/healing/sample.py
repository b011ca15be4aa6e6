"""A small web shop in a real repository, with as many of its bugs as somebody wants to see healed.

It is made of `sample/shop.yaml` (the shop as it should be) and `sample/bugs.yaml` (what can be
wrong with it, and the request that shows it). The repository is a bare one with two commits by two
people, so that there is somebody to blame.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import yaml

from handrail.agents.commands import CommandLimits, run_here
from handrail.commits import Repository
from handrail.kernel.decision import Value, learn
from handrail.teams.healing.service import Service

SAMPLE = Path(__file__).parent / "sample"
LIMITS = CommandLimits(seconds=60)
APP = "shop.app:app"
PEOPLE = {"The shop": "ana", "A few changes": "bo"}
"""The titles of the two commits, and who made them."""


class Change(Value):
    path: str
    right: str
    wrong: str


class Request(Value):
    """One request, and what it should be answered; without an answer nobody wrote it down."""

    path: str
    method: str = "GET"
    query: str = ""
    body: Any = None
    answer: Any = msgspec.UNSET


class Bug(Value):
    changes: tuple[Change, ...]
    request: Request
    fixable: bool = False


learn(Bug)


def bugs() -> dict[str, Bug]:
    text = (SAMPLE / "bugs.yaml").read_text(encoding="utf-8")
    return msgspec.convert(yaml.safe_load(text), dict[str, Bug])


def shop_files(wrong: tuple[str, ...] = ()) -> dict[str, str]:
    """The shop with these bugs: path -> text."""
    files: dict[str, str] = yaml.safe_load((SAMPLE / "shop.yaml").read_text(encoding="utf-8"))
    known = bugs()
    told = [bug.request for bug in known.values() if bug.request.answer is not msgspec.UNSET]
    files["examples.json"] = json.dumps(msgspec.to_builtins(told), indent=1) + "\n"
    for name in wrong:
        for change in known[name].changes:
            assert files[change.path].count(change.right) == 1, (name, change.path)
            files[change.path] = files[change.path].replace(change.right, change.wrong)
    return files


def make_shop(folder: Path, wrong: tuple[str, ...]) -> Service:
    """A bare repository under the folder with the shop and these bugs, and the service of it."""
    bare, first = folder / "shop.git", folder / "first"
    folder.mkdir(parents=True, exist_ok=True)
    _git(folder, "init", "--quiet", "--bare", "--initial-branch=main", str(bare))
    _git(folder, "init", "--quiet", "--initial-branch=main", str(first))
    for title, files in zip(PEOPLE, (shop_files(), shop_files(wrong)), strict=True):
        for path, text in files.items():
            place = first / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        _git(first, "add", "--all")
        _git(first, "commit", "--quiet", "--allow-empty", "-m", title, who=PEOPLE[title])
    _git(first, "push", "--quiet", str(bare), "main")
    return shop_service(folder)


def shop_service(folder: Path) -> Service:
    """The service of a shop that was made there."""
    repository = Repository(
        url=str(folder / "shop.git"),
        hooks=".githooks",
        required_hooks=("pre-commit",),
        protected=("vendor/",),
    )
    return Service(repository=repository, home=str(folder / "home"), app=APP)


def deploy(service: Service, folder: Path) -> None:
    """The branch as it is now, in a folder, as a service would run it."""
    if folder.is_dir():
        _git(folder, "pull", "--quiet", "--ff-only")
    else:
        _git(folder.parent, "clone", "--quiet", service.repository.url, str(folder))


def address(request: Request) -> str:
    return f"{request.path}?{request.query}" if request.query else request.path


def _git(folder: Path, *words: str, who: str = "ana") -> None:
    """Git as a person uses it, apart from whatever is configured on this machine."""
    person = {"NAME": who, "EMAIL": f"{who}@shop.invalid"}
    named = {f"GIT_{kind}_{key}": value for kind in ("AUTHOR", "COMMITTER")
             for key, value in person.items()}  # fmt: skip
    clean = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", **named}
    ran = run_here(("git", *words), folder, LIMITS, variables=clean)
    if ran.exit_code:
        said = ran.stderr.decode("utf-8", "replace").strip()
        raise RuntimeError(f"'git {words[0]}' failed in '{folder}': {said}")
