"""`handrail answer`: what it shows of a question, and whom it still asks where several approve."""

from pathlib import Path

import pytest
from tests.cli.command_line import run_command, write_definition
from tests.cli.command_targets import isolate
from tests.engine.engines import chain, manual_engine, node, register_worker, run_async

from handrail.kernel.result import Check, Evidence, Outcome, Result
from handrail.store.sqlite.store import SqliteStore
from handrail.testing.clock import ManualClock


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


def test_an_escalation_is_shown_with_every_visit_and_the_last_failing_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    isolate(monkeypatch, tmp_path / "here")
    url = f"sqlite:///{tmp_path / 'e.db'}"

    async def fail_twice() -> None:
        document = chain(node("a"), node("b", max_attempts=1, on_failure={"rework": "a", "max": 1}))
        async with manual_engine(url, ManualClock()) as engine:
            await engine.define(document)
            await engine.beads.create(title="t", workflow_id="w")
            worker = await register_worker(engine, name="w1")
            for output in ("first", "second"):
                await worker.work(Result(outcome=Outcome.SUCCESS))
                red = Evidence(checks=(Check(command="pytest", exit_code=1, stderr=output),))
                await worker.work(Result(outcome=Outcome.FAILURE, text=output, evidence=red))

    run_async(fail_twice())
    shown = run_command("answer", "q1", "--database", url).out.splitlines()
    assert shown[1:5] == [
        "  visit 1, attempt 1 by w1: failure: first",
        "  visit 2, attempt 1 by w1: failure: second",
        "  last failed check, at b: pytest: exit code 1",
        "  | second",
    ]
