"""Every dispatch with its result in full."""

import pytest
from msgspec.structs import asdict
from tests.kernel import histories
from tests.kernel.driven_run import DrivenRun, chain, green, node, used

from handrail.kernel.run import commands as c
from handrail.views.steps import step_details, steps


@pytest.mark.requirement("L6.7")
def test_a_step_has_everything_that_its_agent_brought_back():
    d = DrivenRun(chain(node("a")))
    said = {"text": "done", "data": {"x": 1}, "evidence": green(), "usage": used(tokens=5)}
    d.fail("a", reason="no disk")
    d.claim("a")
    d.do(c.Lose(fence=2, reason="no heartbeat"))
    d.succeed("a", **said)
    failed, lost, done = step_details(d.events)
    assert [one.dispatch_id for one in (failed, lost, done)] == ["r1.d1", "r1.d2", "r1.d3"]
    assert failed.result is not None
    assert failed.result.reason == "no disk"
    assert (lost.outcome, lost.result) == ("lost", None)
    assert done.result is not None
    assert {name: getattr(done.result, name) for name in said} == said
    assert {one.role for one in (failed, lost, done)} == {"backend-engineer"}


def test_an_answer_that_could_not_be_used_is_kept_as_it_came():
    d = DrivenRun(chain(node("a")))
    d.claim("a")
    d.do(c.Report(fence=1, agent="a-1", malformed="no JSON"))
    first, second = step_details(d.events)
    assert (first.outcome, first.result is not None) == ("malformed", True)
    assert (second.outcome, second.result) == ("", None)


@pytest.mark.parametrize("make", histories.DRIVEN, ids=lambda make: make.__name__)
def test_full_steps_are_the_steps_with_more_to_them(make):
    d = make()
    for plain, full in zip(steps(d.events), step_details(d.events), strict=True):
        assert asdict(plain).items() <= asdict(full).items()
        assert (full.result is not None) <= bool(full.outcome)
