"""Under another text than the one with which it began a run decides nothing, and still ends."""

import pytest
from tests.kernel.driven_run import ANA, DrivenRun, chain, node, plan_of

from handrail.kernel.definition.model import Settings
from handrail.kernel.run import commands as c
from handrail.kernel.run.measure import measure
from handrail.kernel.stop.rules import StopRule

pytestmark = pytest.mark.requirement("L16")

PAUSE = Settings().pause_deadline


def begun() -> DrivenRun:
    """A run that has begun under one text, and goes on under another."""
    plan = plan_of(chain(node("a"), node("ok", "approval")), Settings())
    plan.digest = "before"
    run = DrivenRun(plan)
    assert run.run.definition_digest == "before"
    run.plan = plan_of(chain(node("a")), Settings())
    run.plan.digest = "after"
    return run


def code(run: DrivenRun, command: c.RunCommand) -> str:
    refusal = run.do(command).refusal
    return refusal.code if refusal is not None else ""


def test_the_run_is_paused_and_refuses_what_would_lead_on():
    run = begun()
    assert measure(run.plan, run.run) == 1
    for command in (
        c.Claim(fence=1, agent="a-1", roles=("backend-engineer",)),
        c.Resume(by=ANA, reason="go on"),
        c.Move(by=ANA, step_id="a", reason="again"),
    ):
        assert code(run, command) == "definition_changed"
    assert [type(event).__name__ for event in run.events].count("Paused") == 1
    assert run.run.status == "paused"


def test_a_person_closes_it():
    run = begun()
    assert code(run, c.Close(by=ANA, reason="altered")) == ""
    assert run.run.terminal_status == "closed_by_human"


def test_it_ends_with_the_pause_which_an_outage_prolongs():
    run = begun()
    run.advance(1)
    assert code(run, c.PushClocks(seconds=10)) == ""
    run.advance(PAUSE)
    assert not run.run.has_ended
    run.advance(10)
    assert run.run.stop is not None
    assert run.run.stop.rule is StopRule.PAUSE_DEADLINE


def test_who_comes_after_the_pause_hears_that_it_has_ended():
    run = begun()
    run.advance(1)
    run.now = run.run.pause_deadline or run.now
    assert code(run, c.Resume(by=ANA, reason="late")) == "ended"


def test_a_migration_to_another_version_is_decided_under_that_version():
    run = begun()
    migrate = c.Migrate(by=ANA, definition_id="w", version=2, step_id="a", reason="mended")
    assert code(run, migrate) == ""
    assert run.run.definition_digest == "after"
