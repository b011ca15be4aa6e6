"""A small web shop in a real repository, with a choice of bugs to be healed.

It is made of `sample/shop.yaml` (the shop as it should be) and `sample/bugs.yaml` (what can be
wrong with it, and the request that shows it). The repository is a bare one with two commits by two
people, so that blame has an author to find.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import yaml

from handrail.agents.commands import CommandLimits, run_command_sync
from handrail.commits import Repository
from handrail.kernel.decision import Value, prepare_types
from handrail.teams.healing.service import Service

SAMPLE_FOLDER = Path(__file__).parent / "sample"
GIT_LIMITS = CommandLimits(seconds=60)
APP = "shop.app:app"
COMMIT_AUTHORS = {"The shop": "ana", "A few changes": "bo"}
"""The titles of the two commits, and their authors."""


class ShopEdit(Value):
    path: str
    right: str
    wrong: str


class ShopRequest(Value):
    """One request, and the expected response, if the repository has one."""

    path: str
    method: str = "GET"
    query: str = ""
    body: Any = None
    answer: Any = msgspec.UNSET


class ShopBug(Value):
    changes: tuple[ShopEdit, ...]
    request: ShopRequest
    fixable: bool = False


prepare_types(ShopBug)


def load_bugs() -> dict[str, ShopBug]:
    text = (SAMPLE_FOLDER / "bugs.yaml").read_text(encoding="utf-8")
    return msgspec.convert(yaml.safe_load(text), dict[str, ShopBug])


def load_shop_files(bug_names: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the shop with these bugs: path -> text."""
    files: dict[str, str] = yaml.safe_load(
        (SAMPLE_FOLDER / "shop.yaml").read_text(encoding="utf-8")
    )
    all_bugs = load_bugs()
    documented_requests = [
        bug.request for bug in all_bugs.values() if bug.request.answer is not msgspec.UNSET
    ]
    files["examples.json"] = json.dumps(msgspec.to_builtins(documented_requests), indent=1) + "\n"
    for name in bug_names:
        for change in all_bugs[name].changes:
            assert files[change.path].count(change.right) == 1, (name, change.path)
            files[change.path] = files[change.path].replace(change.right, change.wrong)
    return files


def make_shop(folder: Path, bug_names: tuple[str, ...]) -> Service:
    """Make a bare repository with the shop and these bugs under the folder; return its service."""
    bare_repository, worktree = folder / "shop.git", folder / "first"
    folder.mkdir(parents=True, exist_ok=True)
    _git(folder, "init", "--quiet", "--bare", "--initial-branch=main", str(bare_repository))
    _git(folder, "init", "--quiet", "--initial-branch=main", str(worktree))
    for title, files in zip(
        COMMIT_AUTHORS, (load_shop_files(), load_shop_files(bug_names)), strict=True
    ):
        for path, text in files.items():
            target = worktree / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        _git(worktree, "add", "--all")
        _git(
            worktree,
            "commit",
            "--quiet",
            "--allow-empty",
            "-m",
            title,
            author=COMMIT_AUTHORS[title],
        )
    _git(worktree, "push", "--quiet", str(bare_repository), "main")
    return shop_service(folder)


def shop_service(folder: Path) -> Service:
    """Return the service of a shop that was made there."""
    repository = Repository(
        url=str(folder / "shop.git"),
        hooks=".githooks",
        required_hooks=("pre-commit",),
        protected=("vendor/",),
    )
    return Service(repository=repository, home=str(folder / "home"), app=APP)


def deploy(service: Service, folder: Path) -> None:
    """Check out the branch to a folder, as a service would run it."""
    if folder.is_dir():
        _git(folder, "pull", "--quiet", "--ff-only")
    else:
        _git(folder.parent, "clone", "--quiet", service.repository.url, str(folder))


def request_target(request: ShopRequest) -> str:
    return f"{request.path}?{request.query}" if request.query else request.path


def _git(folder: Path, *args: str, author: str = "ana") -> None:
    """Run git as a person does, without the configuration of this machine."""
    identity = {"NAME": author, "EMAIL": f"{author}@shop.invalid"}
    identity_variables = {f"GIT_{kind}_{key}": value for kind in ("AUTHOR", "COMMITTER")
             for key, value in identity.items()}  # fmt: skip
    variables = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", **identity_variables}
    completed = run_command_sync(("git", *args), folder, GIT_LIMITS, variables=variables)
    if completed.exit_code:
        stderr = completed.stderr.decode("utf-8", "replace").strip()
        raise RuntimeError(f"'git {args[0]}' failed in '{folder}': {stderr}")
