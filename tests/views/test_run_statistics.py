"""What is counted of a run that has ended."""

import pytest
from tests.kernel import histories
from tests.kernel.driven_run import ANA, DrivenRun, chain, node, team, used

from handrail.kernel.run import commands as c
from handrail.kernel.run.events import Claimed
from handrail.views.statistics import NodeStatistics, run_statistics
from handrail.views.steps import attempts, retries


def test_a_run_that_goes_on_has_no_figures():
    assert run_statistics(DrivenRun(chain(node("a"))).events) is None


@pytest.mark.requirement("L14.1", "L14.2", "L14.4")
def test_a_plain_run_needed_no_retry():
    d = DrivenRun(chain(node("a"), node("b")))
    d.advance(10)
    d.succeed("a", usage=used(tokens=7, cost=0.5))
    d.advance(5)
    d.succeed("b", usage=used(tokens=3, cost=0.25))
    counted = run_statistics(d.events)
    assert counted is not None
    assert (counted.seconds, counted.terminal_status, counted.escalations) == (
        15,
        "done_success",
        0,
    )
    assert (counted.tokens, counted.cost) == (10, 0.75)
    assert counted.nodes == {name: NodeStatistics(visits=1, dispatches=1) for name in ("a", "b")}


@pytest.mark.requirement("L14.3", "L14.4")
def test_retries_and_escalations_are_counted_and_what_was_used_in_vain_too():
    d = DrivenRun(chain(node("a", max_attempts=2), node("b")))
    d.fail("a", usage=used(tokens=5))
    d.fail("a", usage=used(tokens=5))
    d.answer(decision="revise", text="once more")
    d.succeed("a")
    d.succeed("b")
    counted = run_statistics(d.events)
    assert counted is not None
    assert counted.escalations == 1
    assert counted.nodes["a"] == NodeStatistics(visits=2, dispatches=3)
    assert counted.nodes["b"] == NodeStatistics(visits=1, dispatches=1)
    assert counted.tokens == 10


@pytest.mark.requirement("L2.5", "L14.5")
def test_the_cycles_of_an_investigation_are_its_dispatches():
    d = DrivenRun(chain(node("a", multi_dispatch=True, kind="investigation", max_attempts=5)))
    for _ in range(3):
        d.report("a", outcome="continue")
    d.succeed("a")
    counted = run_statistics(d.events)
    assert counted is not None
    assert counted.nodes == {"a": NodeStatistics(visits=1, dispatches=4)}


def test_the_agents_of_a_team_are_counted_by_their_turns():
    d = DrivenRun(team({"p": ["q"], "q": ["p"]}, terminator="p"))
    d.hand("q")
    d.hand("p")
    d.report(outcome="terminate")
    counted = run_statistics(d.events)
    assert counted is not None
    assert counted.nodes["p"] == NodeStatistics(visits=2, dispatches=2)
    assert counted.nodes["q"] == NodeStatistics(visits=1, dispatches=1)


@pytest.mark.parametrize("make", histories.DRIVEN, ids=lambda make: make.__name__)
def test_every_claimed_dispatch_of_any_run_is_counted_once(make):
    d = make()
    counted = run_statistics(d.events)
    assert (counted is None) == (not d.run.has_ended)
    if counted is not None:
        assert {name: one.dispatches for name, one in counted.nodes.items()} == attempts(d.events)
        assert sum(one.dispatches for one in counted.nodes.values()) == len(d.of(Claimed))
        assert all(one.visits for one in counted.nodes.values())
        assert (counted.tokens, counted.cost) == (d.run.ledger.tokens, d.run.ledger.cost)


@pytest.mark.requirement("L14.4", "L14.5")
def test_an_offer_that_nobody_took_is_no_dispatch():
    d = DrivenRun(chain(node("a")))
    d.do(c.Close(by=ANA, reason="not now"))
    counted = run_statistics(d.events)
    assert counted is not None
    assert (counted.nodes, attempts(d.events), retries(d.events)) == ({}, {}, {})


@pytest.mark.requirement("L14.4")
def test_a_second_attempt_is_a_retry_once_it_is_claimed():
    d = DrivenRun(chain(node("a")))
    d.fail("a")
    assert (attempts(d.events), retries(d.events)) == ({"a": 1}, {})
    d.claim("a")
    assert (attempts(d.events), retries(d.events)) == ({"a": 2}, {"a": 1})
