"""The hooks of a repository, laid out afresh in a folder of the lane's own before they run.

They come from the branch as it is without the patch, or from a folder of the operator's. So a patch
cannot change them, a file mode cannot switch them off, and what a hook did to the folder is undone
before the next one runs.
"""

import shutil
from pathlib import Path

from handrail.commits.git import Git
from handrail.commits.repository import Repository
from handrail.commits.trouble import NotApplied

HOOK_BYTES_MAX = 1_000_000
HOOKS_MAX = 50


async def lay_hooks(git: Git, repository: Repository, head: str, folder: Path) -> Path:
    """The folder, with the hooks in it. Raises if one that is required is missing."""
    found = await _of_branch(git, repository, head) if repository.hooks_within else None
    if found is None:
        found = _of_folder(_own_folder(repository))
    missing = [name for name in repository.required_hooks if name not in found]
    if missing:
        told = f"the hook {', '.join(missing)} of {repository.url} is not there"
        raise NotApplied("no_hook", told, "bring it back; nothing is committed without it")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in found.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o755)
    return folder


def _own_folder(repository: Repository) -> Path:
    if repository.hooks:
        return Path(repository.hooks)
    place = Path(repository.url.removeprefix("file://"))
    inside = place / ".git"
    return (inside if inside.is_dir() else place) / "hooks"


def _of_folder(folder: Path) -> dict[str, bytes]:
    if not folder.is_dir():
        return {}
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    wanted = [path for path in files if path.suffix != ".sample"][:HOOKS_MAX]
    return {path.relative_to(folder).as_posix(): _bounded(path.read_bytes()) for path in wanted}


async def _of_branch(git: Git, repository: Repository, head: str) -> dict[str, bytes]:
    within = repository.hooks_within
    told = await git.say("ls-tree", "-r", "-z", "--full-tree", head, "--", within)
    found: dict[str, bytes] = {}
    for line in told.split("\0")[:HOOKS_MAX]:
        about, _, path = line.partition("\t")
        if about.startswith(("100644 ", "100755 ")):
            ran = await git.run("cat-file", "blob", about.split(" ")[2])
            found[path.removeprefix(within)] = _bounded(ran.stdout)
    return found


def _bounded(content: bytes) -> bytes:
    if len(content) > HOOK_BYTES_MAX:
        told = f"a hook has {len(content):,} bytes"
        raise NotApplied("no_hook", told, f"make it smaller than {HOOK_BYTES_MAX:,}")
    return content
