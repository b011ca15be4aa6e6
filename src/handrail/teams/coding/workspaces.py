"""Where coding runs may work: a folder, a worktree of a repository, or a copy of the sample.

A run works in `context.folder` as it is. For `context.repository` a worktree is made, on a branch
of its own (`handrail/RUN`), under `.handrail/worktrees/` of the repository; people look at what the
run leaves there, and merge it. Both must lie in a folder that the setting `workspaces` allows.
Without either the run gets a fresh copy of the sample project, in a folder that only this user can
write to.

A run's folder follows from its bead and its id alone, so a process that takes over after a crash
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

from handrail.agents.commands import CommandLimits, run_command_sync
from handrail.kernel.decision import Value, prepare_types
from handrail.kernel.definition.limits import Constraints
from handrail.teams.coding.workspace import NotAllowedError, Workspace

SAMPLE_FOLDER = Path(__file__).parent / "sample"
SAMPLE_SECONDS_MAX = 7 * 86400
"""How long a copy of the sample is kept after its run."""
PRUNED_SAMPLES_MAX = 100
"""Old copies that are removed when a new one is made."""
GIT_LIMITS = CommandLimits(seconds=60)
NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
"""A hook of the repository would be an unchecked command."""
GIT_EXCLUDE_LINE = "/.handrail/"


class SampleBug(Value):
    """One fault that a copy of the sample can have."""

    path: str
    right: str
    wrong: str


class Scene(Value):
    """A demonstration on a copy of the sample: faults, a goal, and the expected end of the run."""

    bugs: tuple[str, ...] = ()
    goal: str = ""


class Scenes(Value):
    bugs: dict[str, SampleBug]
    scenes: dict[str, Scene]


prepare_types(Scenes)


def load_sample_files() -> dict[str, str]:
    """Return the sample project: path -> text. All of its tests pass."""
    return yaml.safe_load((SAMPLE_FOLDER / "project.yaml").read_text(encoding="utf-8"))


def load_scenes() -> Scenes:
    text = (SAMPLE_FOLDER / "scenes.yaml").read_text(encoding="utf-8")
    return msgspec.convert(yaml.safe_load(text), Scenes)


def find_scene(context: dict[str, Any]) -> Scene:
    """Return the scene that `context.demo` names: a scene, or a single bug."""
    all_scenes, demo = load_scenes(), context.get("demo")
    name = demo if isinstance(demo, str) else ""
    if name in all_scenes.bugs:
        return Scene(bugs=(name,))
    return all_scenes.scenes.get(name) or all_scenes.scenes[""]


class Workspaces:
    """The folders that runs of this process may work in."""

    def __init__(self, allowed_folders: tuple[str, ...] = (), scratch: Path | None = None) -> None:
        self.allowed_folders, self._scratch = allowed_folders, scratch

    def open(self, run_id: str, context: dict[str, Any], constraints: Constraints) -> Workspace:
        """Open the run's folder, made if it is not there. Raises `NotAllowedError`."""
        folder, repository = context.get("folder"), context.get("repository")
        if repository:
            root = self._add_worktree(self._check_folder("repository", repository), run_id)
        elif folder:
            root = self._check_folder("folder", folder)
        else:
            return Workspace(self._copy_sample(run_id, context), constraints, is_sample=True)
        return Workspace(root, constraints)

    def _check_folder(self, key: str, value: object) -> Path:
        if not isinstance(value, str) or "\0" in value or not Path(value).is_absolute():
            raise NotAllowedError(f"context.{key} is {value!r}; give the whole path of a folder")
        try:
            folder = Path(value).resolve(strict=True)
        except (OSError, RuntimeError):
            raise NotAllowedError(
                f"context.{key} '{value}' is not there; name one that is"
            ) from None
        roots = [
            Path(allowed_folder).expanduser().resolve() for allowed_folder in self.allowed_folders
        ]
        if not any(folder == root or root in folder.parents for root in roots):
            allowed = ", ".join(map(str, roots)) or "none"
            message = f"context.{key} '{value}' lies in no folder that coding runs may work in"
            raise NotAllowedError(f"{message}; add it to the setting `workspaces` (now: {allowed})")
        if not folder.is_dir():
            raise NotAllowedError(f"context.{key} '{value}' is no folder; name one")
        return folder

    def _add_worktree(self, repository: Path, run_id: str) -> Path:
        worktree = repository / ".handrail" / "worktrees" / run_id
        if worktree.is_dir():
            return worktree
        _exclude_worktrees(repository)
        command = ("worktree", "add", "--quiet", "-b", f"handrail/{run_id}", str(worktree))
        completed = run_command_sync(("git", *NO_HOOKS, *command), repository, GIT_LIMITS)
        if completed.exit_code:
            stderr_tail = completed.stderr.decode("utf-8", "replace").strip()[-300:]
            message = f"no worktree of '{repository}' could be made: {stderr_tail}"
            raise NotAllowedError(f"{message}; give a git repository with at least one commit")
        return worktree

    def _copy_sample(self, run_id: str, context: dict[str, Any]) -> Path:
        samples = self.scratch / "samples"
        samples.mkdir(mode=0o700, exist_ok=True)
        copy = samples / run_id
        if not copy.is_dir():
            _prune_samples(samples)
            staging = Path(tempfile.mkdtemp(dir=samples, prefix=".making-"))
            write_sample(staging, find_scene(context).bugs)
            staging.rename(copy)
        return copy

    @property
    def scratch(self) -> Path:
        """A folder of this user's own: no link, and only this user may write to it."""
        folder = self._scratch or Path(tempfile.gettempdir()) / f"handrail-{os.getuid()}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        is_private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o022
        if not is_private or status.st_uid != os.getuid():
            raise NotAllowedError(
                f"'{folder}' is not this user's own folder; remove it, or set TMPDIR"
            )
        return folder


def write_sample(folder: Path, bugs: tuple[str, ...] = ()) -> None:
    """Write the sample project to that folder, with these faults."""
    files, all_bugs = load_sample_files(), load_scenes().bugs
    for name in bugs:
        bug = all_bugs[name]
        assert files[bug.path].count(bug.right) == 1, name
        files[bug.path] = files[bug.path].replace(bug.right, bug.wrong)
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def _prune_samples(samples: Path) -> None:
    """Remove copies that were not touched for long; a few at a time."""
    before = time.time() - SAMPLE_SECONDS_MAX
    old = [sample for sample in samples.iterdir() if sample.lstat().st_mtime < before]
    for sample in old[:PRUNED_SAMPLES_MAX]:
        shutil.rmtree(sample, ignore_errors=True)


def _exclude_worktrees(repository: Path) -> None:
    """Exclude the folder of worktrees from the repository's changes."""
    completed = run_command_sync(("git", "rev-parse", "--git-common-dir"), repository, GIT_LIMITS)
    if completed.exit_code:
        return  # the next git command reports what is wrong
    exclude = repository / completed.stdout.decode().strip() / "info" / "exclude"
    exclude.parent.mkdir(parents=True, exist_ok=True)
    existing = exclude.read_text(encoding="utf-8") if exclude.is_file() else ""
    if GIT_EXCLUDE_LINE not in existing.splitlines():
        with exclude.open("a", encoding="utf-8") as file:
            separator = "" if not existing or existing.endswith("\n") else "\n"
            file.write(f"{separator}{GIT_EXCLUDE_LINE}\n")
