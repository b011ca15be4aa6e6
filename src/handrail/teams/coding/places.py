"""Where coding runs may work: a folder, a worktree of a repository, or a copy of the sample.

`context.folder` is worked in as it is. For `context.repository` a worktree is made, on a branch of
its own (`handrail/RUN`), under `.handrail/worktrees/` of the repository; what the run leaves there
is for people to look at and merge. Both must lie in a folder that the setting `workspaces` allows.
Without either the run gets a fresh copy of the sample project, in a folder of this user that
nobody else can write to.

Which folder a run has follows from its bead and its id alone, so whoever takes over after a crash
works in the same one.
"""

import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import yaml

from handrail.agents.commands import CommandLimits, run_here
from handrail.kernel.decision import Value, learn
from handrail.kernel.definition import Constraints
from handrail.teams.coding.workspace import NotAllowed, Workspace

SAMPLE = Path(__file__).parent / "sample"
KEPT_SECONDS = 7 * 86400
"""How long a copy of the sample is kept after its run."""
PRUNED_MAX = 100
"""Old copies that are removed when a new one is made."""
GIT = CommandLimits(seconds=60)
NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
"""A hook of the repository would be a command that nobody has looked at."""
IGNORED = "/.handrail/"


class Bug(Value):
    """One fault that a copy of the sample can be given."""

    path: str
    right: str
    wrong: str


class Scene(Value):
    """What a copy of the sample is made to show: faults, a goal, and how the run should end."""

    title: str
    bugs: tuple[str, ...] = ()
    goal: str = ""


class Scenes(Value):
    bugs: dict[str, Bug]
    scenes: dict[str, Scene]


learn(Scenes)


def sample_files() -> dict[str, str]:
    """The sample project: path -> text. All of its tests pass."""
    return yaml.safe_load((SAMPLE / "project.yaml").read_text(encoding="utf-8"))


def scenes() -> Scenes:
    text = (SAMPLE / "scenes.yaml").read_text(encoding="utf-8")
    return msgspec.convert(yaml.safe_load(text), Scenes)


def scene_of(context: dict[str, Any]) -> Scene:
    """The one that `context.demo` names: a scene, or a single bug."""
    known, wanted = scenes(), context.get("demo")
    name = wanted if isinstance(wanted, str) else ""
    if name in known.bugs:
        return Scene(title=name, bugs=(name,))
    return known.scenes.get(name) or known.scenes[""]


class Places:
    """The folders that runs of this process may work in."""

    def __init__(self, allowed: tuple[str, ...] = (), scratch: Path | None = None) -> None:
        self.allowed, self._scratch = allowed, scratch

    def open(self, run_id: str, context: dict[str, Any], constraints: Constraints) -> Workspace:
        """The run's folder, made if it is not there. Raises `NotAllowed`."""
        folder, repository = context.get("folder"), context.get("repository")
        if repository:
            root = self._worktree(self._checked("repository", repository), run_id)
        elif folder:
            root = self._checked("folder", folder)
        else:
            return Workspace(self._copy(run_id, context), constraints, sample=True)
        return Workspace(root, constraints)

    def _checked(self, key: str, given: object) -> Path:
        if not isinstance(given, str) or "\0" in given or not Path(given).is_absolute():
            raise NotAllowed(f"context.{key} is {given!r}; give the whole path of a folder")
        try:
            place = Path(given).resolve(strict=True)
        except (OSError, RuntimeError):
            raise NotAllowed(f"context.{key} '{given}' is not there; name one that is") from None
        roots = [Path(one).expanduser().resolve() for one in self.allowed]
        if not any(place == root or root in place.parents for root in roots):
            allowed = ", ".join(map(str, roots)) or "none"
            told = f"context.{key} '{given}' lies in no folder that coding runs may work in"
            raise NotAllowed(f"{told}; add it to the setting `workspaces` (now: {allowed})")
        if not place.is_dir():
            raise NotAllowed(f"context.{key} '{given}' is no folder; name one")
        return place

    def _worktree(self, repository: Path, run_id: str) -> Path:
        place = repository / ".handrail" / "worktrees" / run_id
        if place.is_dir():
            return place
        _ignore(repository)
        made = ("worktree", "add", "--quiet", "-b", f"handrail/{run_id}", str(place))
        ran = run_here(("git", *NO_HOOKS, *made), repository, GIT)
        if ran.exit_code:
            said = ran.stderr.decode("utf-8", "replace").strip()[-300:]
            told = f"no worktree of '{repository}' could be made: {said}"
            raise NotAllowed(f"{told}; give a git repository with at least one commit")
        return place

    def _copy(self, run_id: str, context: dict[str, Any]) -> Path:
        samples = self.scratch / "samples"
        samples.mkdir(mode=0o700, exist_ok=True)
        place = samples / run_id
        if not place.is_dir():
            _prune(samples)
            making = Path(tempfile.mkdtemp(dir=samples, prefix=".making-"))
            write_sample(making, scene_of(context).bugs)
            making.rename(place)
        return place

    @property
    def scratch(self) -> Path:
        """A folder of this user's own: no link, and nobody else may write to it."""
        place = self._scratch or Path(tempfile.gettempdir()) / f"handrail-{os.getuid()}"
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = place.lstat()
        private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o022
        if not private or found.st_uid != os.getuid():
            raise NotAllowed(f"'{place}' is not this user's own folder; remove it, or set TMPDIR")
        return place


def write_sample(folder: Path, bugs: tuple[str, ...] = ()) -> None:
    """The sample project in that folder, with these faults."""
    files, known = sample_files(), scenes().bugs
    for name in bugs:
        bug = known[name]
        assert files[bug.path].count(bug.right) == 1, name
        files[bug.path] = files[bug.path].replace(bug.right, bug.wrong)
    for path, text in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")


def _prune(samples: Path) -> None:
    """Copies that nobody has touched for long; a few at a time."""
    before = time.time() - KEPT_SECONDS
    old = [one for one in samples.iterdir() if one.lstat().st_mtime < before]
    for one in old[:PRUNED_MAX]:
        shutil.rmtree(one, ignore_errors=True)


def _ignore(repository: Path) -> None:
    """The folder of worktrees is no change of the repository."""
    ran = run_here(("git", "rev-parse", "--git-common-dir"), repository, GIT)
    if ran.exit_code:
        return  # what comes next says what is wrong
    exclude = repository / ran.stdout.decode().strip() / "info" / "exclude"
    exclude.parent.mkdir(parents=True, exist_ok=True)
    held = exclude.read_text(encoding="utf-8") if exclude.is_file() else ""
    if IGNORED not in held.splitlines():
        with exclude.open("a", encoding="utf-8") as file:
            file.write(f"{'' if held.endswith(chr(10)) or not held else chr(10)}{IGNORED}\n")
