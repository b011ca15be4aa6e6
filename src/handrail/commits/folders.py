"""The folders of a lane: cached objects, working copies of beads, and a folder for each commit in
the making.

    HOME/kept.git       what was fetched before, so that little is fetched again; may be deleted
    HOME/beads/BEAD     the working copy of a bead, and HOME/beads/BEAD.base, what it began with
    HOME/at-work/ID     one commit in the making; used by one process, and removed afterwards

A process that is killed leaves its scratch folder. A later one removes the folder when it is older
than anything that could still use it.
"""

import contextlib
import shutil
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from handrail.commits.errors import CommitRejectedError
from handrail.commits.git import Git
from handrail.commits.repository import Repository

ABANDONED_SECONDS = 3_600
"""After which a scratch folder is abandoned: no command lasts that long."""
CACHE_SECONDS_MAX = 600
"""The cache may be so old: the rest is fetched for each commit."""
STALE_LOCK_SECONDS = 600
"""After which a lock file of git belongs to a killed process."""


class LaneFolders:
    def __init__(self, repository: Repository, home: Path) -> None:
        self.repository, self.home = repository, home.resolve()
        self.object_cache = Git(self.home / "kept.git", None, repository.variables)

    @asynccontextmanager
    async def open_scratch(self, tree: Path | None = None) -> AsyncGenerator[Git]:
        """Open an empty repository of the caller's own, with that working tree or a fresh one."""
        self._remove_abandoned()
        folder = self.home / "at-work" / uuid4().hex
        scratch_tree = folder / "tree"
        scratch_tree.mkdir(parents=True)
        git = Git(folder / "git", tree or scratch_tree, self.repository.variables)
        git.init(self.object_cache.folder)
        try:
            yield git
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def refresh_cache(self) -> None:
        """Refresh the cache if possible. If not, more is fetched later; nothing else depends on
        it.
        """
        marker = self.object_cache.folder / "fetched"
        if marker.exists() and time.time() - marker.stat().st_mtime < CACHE_SECONDS_MAX:
            return
        self.object_cache.init()
        marker.touch()
        head = self.repository.head_ref
        command = (
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
        )
        with contextlib.suppress(CommitRejectedError):
            completed = await self.object_cache.run(
                *command, "--", self.repository.url, f"+{head}:{head}"
            )
            if completed.exit_code:
                _remove_old(self.object_cache.folder.rglob("*.lock"), STALE_LOCK_SECONDS)

    def _remove_abandoned(self) -> None:
        _remove_old((self.home / "at-work").glob("*"), ABANDONED_SECONDS)


def _remove_old(paths: Iterable[Path], seconds: float) -> None:
    for path in list(paths):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > seconds:
                path.unlink() if path.is_file() else shutil.rmtree(path)
