"""The hooks of a repository, laid out afresh in a folder of the lane's own before they run.

They come from the branch as it is without the patch, or from a folder of the operator's. So a patch
cannot change them, a file mode cannot switch them off, and what a hook did to the folder is undone
before the next one runs.
"""

import shutil
from pathlib import Path

from handrail.commits.errors import CommitRejectedError
from handrail.commits.git import Git
from handrail.commits.repository import Repository

HOOK_BYTES_MAX = 1_000_000
HOOKS_MAX = 50


async def install_hooks(git: Git, repository: Repository, head: str, folder: Path) -> Path:
    """Install the hooks in the folder and return it. Raises if a required hook is missing."""
    hooks = (
        await _read_branch_hooks(git, repository, head) if repository.tracked_hooks_folder else None
    )
    if hooks is None:
        hooks = _read_folder_hooks(_hooks_source(repository))
    missing = [name for name in repository.required_hooks if name not in hooks]
    if missing:
        message = f"the hook {', '.join(missing)} of {repository.url} is not there"
        raise CommitRejectedError(
            "no_hook", message, "bring it back; nothing is committed without it"
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in hooks.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o755)
    return folder


def _hooks_source(repository: Repository) -> Path:
    if repository.hooks:
        return Path(repository.hooks)
    repository_folder = Path(repository.url.removeprefix("file://"))
    git_folder = repository_folder / ".git"
    return (git_folder if git_folder.is_dir() else repository_folder) / "hooks"


def _read_folder_hooks(folder: Path) -> dict[str, bytes]:
    if not folder.is_dir():
        return {}
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    hook_files = [path for path in files if path.suffix != ".sample"][:HOOKS_MAX]
    return {
        path.relative_to(folder).as_posix(): _check_size(path.read_bytes()) for path in hook_files
    }


async def _read_branch_hooks(git: Git, repository: Repository, head: str) -> dict[str, bytes]:
    hooks_folder = repository.tracked_hooks_folder
    listing = await git.check_output("ls-tree", "-r", "-z", "--full-tree", head, "--", hooks_folder)
    hooks: dict[str, bytes] = {}
    for line in listing.split("\0")[:HOOKS_MAX]:
        header, _, path = line.partition("\t")
        if header.startswith(("100644 ", "100755 ")):
            completed = await git.run("cat-file", "blob", header.split(" ")[2])
            hooks[path.removeprefix(hooks_folder)] = _check_size(completed.stdout)
    return hooks


def _check_size(content: bytes) -> bytes:
    if len(content) > HOOK_BYTES_MAX:
        message = f"a hook has {len(content):,} bytes"
        raise CommitRejectedError("no_hook", message, f"make it smaller than {HOOK_BYTES_MAX:,}")
    return content
