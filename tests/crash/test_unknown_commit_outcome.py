"""The connection breaks during a commit, and nobody knows whether it is on disk: nothing is done
twice, nothing is lost, and the engine that lived through it leaves no run behind."""

import asyncio
import os
from pathlib import Path

import pytest
from tests.crash import checks, load

from handrail.engine import opening
from handrail.engine.dispatch import local_agents
from handrail.store.rows import CommitOutcomeUnknownError, StoreError
from handrail.store.sqlite.connection import SqliteDatabase
from handrail.store.store import Store

LONG = bool(os.environ.get("HANDRAIL_LONG"))
SECONDS = 120  # a life takes less than one; on a busy machine many times that
STEP = 1 if LONG else 5


class Breaking(SqliteDatabase):
    """At its Nth commit the connection breaks: before or after it was on disk; and for so many
    questions afterwards the database is away."""

    at, written, away = 0, True, 0
    commits = 0
    left = 0

    def commit(self, writes, at):
        self._present()
        Breaking.commits += 1
        if Breaking.commits != self.at:
            return super().commit(writes, at)
        if self.written:
            super().commit(writes, at)
        Breaking.left = self.away
        raise CommitOutcomeUnknownError(
            "the connection was lost; the write may or may not have been stored"
        )

    def _present(self) -> None:
        if Breaking.left > 0:
            Breaking.left -= 1
            raise StoreError("the database is away; start it")

    def fetch_all(self, query, /, **values):
        if query == "journal":
            self._present()
        return super().fetch_all(query, **values)

    def reserve_dispatches(self, role, limit):
        self._present()
        return super().reserve_dispatches(role, limit)


async def _life(folder: Path) -> None:
    async with asyncio.timeout(SECONDS):
        await load.live(f"sqlite:///{folder}/crash.db", folder, "unsure", len(load.NAMES), lease=60)


@pytest.mark.heavy
@pytest.mark.parametrize("written", [True, False], ids=["written", "not written"])
@pytest.mark.parametrize("away", [0, 1, 4], ids=["back at once", "away", "away for a while"])
def test_a_commit_of_which_nobody_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool, away: int
):
    monkeypatch.setattr(local_agents, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(
        load, "open_store", lambda url: Store(Breaking(url.removeprefix("sqlite:///")))
    )
    monkeypatch.setattr(opening, "open_store", opening.open_store)  # `load` puts its own there
    monkeypatch.setattr(Breaking, "written", written)
    monkeypatch.setattr(Breaking, "away", away)
    wrong, n = [], 1
    while True:
        folder = tmp_path / str(n)
        folder.mkdir()
        Breaking.at, Breaking.commits, Breaking.left = n, 0, 0
        try:
            asyncio.run(_life(folder))
        except TimeoutError:
            wrong.append(f"{n}: stuck: not over after {SECONDS} s")
        found = checks.look(folder, checks.sqlite_rows(folder / "crash.db"))
        wrong += [f"{n}: {what}" for what in found.wrong]
        if Breaking.commits < n or wrong:
            break
        n += STEP
    assert wrong == []
    assert n > 20, "a life has that many commits"
