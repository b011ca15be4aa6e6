"""`handrail answer` where several people have to approve: who has, and who is asked still."""

from pathlib import Path

import pytest
from tests.cli.command_line import run_command, write_definition
from tests.cli.command_targets import isolate
from tests.engine.engines import chain, node

from handrail.store.sqlite.store import SqliteStore


def test_an_approval_that_is_not_the_last_one_says_who_is_asked_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    here = isolate(monkeypatch, tmp_path / "here")
    look = node("look", "approval", approvers=["ceo", "bob"], quorum=2)
    file = write_definition(here, chain(look, id="two"))
    SqliteStore(str(here / "two.db")).close()
    database = ("--database", f"sqlite:///{here / 'two.db'}")
    made = run_command("bead", "create", file, "--title", "pay", *database)
    assert made.code == 0, made.err
    shown = run_command("answer", "q1", *database)
    assert "0 of 2 have approved; asked still: ceo, bob" in shown.out
    noted = run_command("answer", "q1", "ok", *database)
    assert (noted.code, noted.err) == (0, "")
    assert "noted; 1 of 2 have approved (" in noted.out
    assert noted.out.endswith("asked still: ceo, bob\n")
    again = run_command("answer", "q1", "ok", *database)
    assert (again.code, "has approved" in again.err) == (2, True)
