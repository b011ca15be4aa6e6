"""The folders of a lane: objects that are kept, working copies of beads, and a folder for each
commit that is being made.

    HOME/kept.git       what was fetched before, so that little is fetched again; may be deleted
    HOME/beads/BEAD     the working copy of a bead, and HOME/beads/BEAD.base, what it began with
    HOME/at-work/ID     one commit in the making; nobody else uses it, and it is gone afterwards

A process that is killed leaves its folder at work. It is removed by a later one, when it is older
than anything that could still use it.
"""

import contextlib
import shutil
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from handrail.commits.git import Git
from handrail.commits.repository import Repository
from handrail.commits.trouble import NotApplied

LEFT_SECONDS = 3_600
"""After which a folder at work is nobody's: no command lasts that long."""
KEPT_SECONDS = 600
"""What is kept may be so old: the rest is fetched for each commit."""
LOCK_SECONDS = 600
"""After which a lock file of git is one of somebody who was killed."""


class Places:
    def __init__(self, repository: Repository, home: Path) -> None:
        self.repository, self.home = repository, home.resolve()
        self.kept = Git(self.home / "kept.git", None, repository.variables)

    @asynccontextmanager
    async def at_work(self, tree: Path | None = None) -> AsyncGenerator[Git]:
        """An empty repository of one's own, with that working tree or a fresh one."""
        self._sweep()
        folder = self.home / "at-work" / uuid4().hex
        fresh = folder / "tree"
        fresh.mkdir(parents=True)
        git = Git(folder / "git", tree or fresh, self.repository.variables)
        git.lay_out(self.kept.folder)
        try:
            yield git
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def refresh(self) -> None:
        """What can be kept is kept. If not, more is fetched later; nothing else depends on it."""
        fresh = self.kept.folder / "fetched"
        if fresh.exists() and time.time() - fresh.stat().st_mtime < KEPT_SECONDS:
            return
        self.kept.lay_out()
        fresh.touch()
        head = self.repository.head
        quiet = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
        with contextlib.suppress(NotApplied):
            ran = await self.kept.run(*quiet, "--", self.repository.url, f"+{head}:{head}")
            if ran.exit_code:
                _drop_old(self.kept.folder.rglob("*.lock"), LOCK_SECONDS)

    def _sweep(self) -> None:
        _drop_old((self.home / "at-work").glob("*"), LEFT_SECONDS)


def _drop_old(paths: Iterable[Path], seconds: float) -> None:
    for path in list(paths):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > seconds:
                path.unlink() if path.is_file() else shutil.rmtree(path)
