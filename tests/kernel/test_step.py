"""`step`: a decision together with the run that its events lead to."""

from datetime import UTC, datetime, timedelta, timezone
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.driven_run import NOON, DrivenRun, chain, node, plan_of

from handrail.kernel.run import commands as c
from handrail.kernel.run.decide import HANDLERS, decide, decide_and_apply
from handrail.kernel.run.events import Moved
from handrail.kernel.run.evolve import isoformat, replay


def test_every_command_of_a_run_that_goes_on_has_a_handler():
    assert HANDLERS.keys() == {*get_args(c.RunCommand)} - {c.Start, c.StartGuarded}


def test_a_step_gives_the_decision_and_the_run_its_events_lead_to():
    plan = plan_of(chain(node("a")))
    start = c.Start(run_id="r", bead_id="b")
    decision, run = decide_and_apply(plan, None, start, NOON)
    assert decision == decide(plan, None, start, NOON)
    assert run == replay(decision.events)


def test_a_step_that_does_nothing_gives_back_the_very_run():
    plan = plan_of(chain(node("a")))
    _, run = decide_and_apply(plan, None, c.Start(run_id="r", bead_id="b"), NOON)
    refused, after = decide_and_apply(plan, run, c.Claim(fence=99, agent="x", roles=()), NOON)
    assert refused.refusal is not None
    assert after is run


def test_a_step_without_a_run_reaches_none():
    refused, run = decide_and_apply(plan_of(chain(node("a"))), None, c.Tick(), NOON)
    assert refused.refusal is not None
    assert run is None


@given(at=st.datetimes(), hours=st.none() | st.integers(-23, 23))
def test_times_are_written_as_python_writes_them(at: datetime, hours: int | None) -> None:
    zone = UTC if hours is None else timezone(timedelta(hours=hours))
    aware = at.replace(tzinfo=zone)
    assert isoformat(aware) == aware.isoformat()
    assert isoformat(at) == at.isoformat()


def test_without_a_reason_the_first_line_that_says_something_stands_for_it():
    run = DrivenRun(chain(node("a")))
    run.succeed("a", text="\n   \n  all done  \nand more")
    assert [moved.reason for moved in run.of(Moved) if moved.source == "a"] == ["all done"]
