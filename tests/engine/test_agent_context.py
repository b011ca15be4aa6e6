"""What an agent is told of its definition and of what is counted, with its dispatch."""

import pytest
from tests.engine.engines import (
    DONE,
    chain,
    events_of,
    manual_engine,
    node,
    refusal_code,
    register_worker,
    run_async,
    start_run,
)
from tests.kernel.driven_run import DrivenRun, green, red, team

from handrail.engine.dispatch.agent_results import AgentFailedError
from handrail.engine.dispatch.dispatch import build_briefing
from handrail.kernel.result import Evidence, Outcome, Result, Usage
from handrail.kernel.run.events import Faulted, Lost
from handrail.testing.clock import ManualClock
from handrail.views.dispatches import RepeatedFailure, ResearchGoal

HUB = team(
    {"hub": ["spoke", "closer"], "spoke": ["hub"], "closer": ["hub"]},
    terminator="closer",
    agents={
        "hub": {"description": "Decides."},
        "spoke": {
            "description": "Works.",
            "marker": "WORKFLOW_COMPLETE",
            "tasks": [{"id": "dig", "once": True, "description": "Dig.", "when": "deep == true"}],
        },
    },
    stop_rules={"max_handoffs": 9, "max_edge": 5},
    metadata={"context": ["deep", "found"]},
)


def brief(run: DrivenRun):
    (token,) = run.run.positions.values()
    return build_briefing(run.plan, run.run, token)


def test_a_briefing_says_who_one_is_and_to_whom_one_may_turn():
    run = DrivenRun(HUB, context={"deep": True})
    known = brief(run)
    assert (known.kind, known.name, known.you, known.terminator) == (
        *("team", "t", "Decides."),
        "closer",
    )
    spoke, closer = known.colleagues
    assert (spoke.id, spoke.marker, spoke.tasks[0].done) == ("spoke", "WORKFLOW_COMPLETE", False)
    assert (closer.id, closer.handed) == ("closer", 0)
    assert known.facts == ("deep", "found")
    assert (known.limits["max_handoffs"], known.limits["max_edge"]) == (9, 5)
    assert "max_tokens" not in known.limits, "what is off is not there"


def test_a_briefing_counts_along():
    run = DrivenRun(HUB, context={"deep": True})
    run.hand("spoke", usage=Usage(tokens=7, cost=0.5))
    run.hand("hub", evidence=Evidence(score=0.4))
    run.hand("closer")
    run.hand("hub", evidence=red("pytest", "boom"))
    known = brief(run)
    assert (known.used.handoffs, known.used.tokens, known.used.cost) == (4, 7, 0.5)
    assert known.colleagues[0].tasks[0].done
    assert known.research == (ResearchGoal(goal="spoke/dig", best=0.4, in_vain=0),)
    ((failing),) = known.failing
    assert isinstance(failing, RepeatedFailure)
    assert (failing.count, failing.signature.split(" | ")[:2]) == (1, ["pytest", "boom"])
    run.hand("closer")
    run.hand("hub", evidence=green("pytest"))
    assert brief(run).failing == ()


def test_a_node_of_a_workflow_has_a_briefing_too():
    run = DrivenRun(chain(node("fix", description="Mend it.")))
    known = brief(run)
    assert (known.kind, known.you, known.colleagues) == ("workflow", "Mend it.", ())


# What an attempt in vain has cost


@pytest.mark.requirement("K1")
def test_an_attempt_that_came_to_nothing_is_counted_if_it_cost_something(clock: ManualClock):
    costs = iter([Usage(tokens=70), Usage()])

    async def fails(dispatch: object) -> Result:
        cost = next(costs, None)
        if cost is None:
            return Result(outcome=Outcome.SUCCESS, text="done", usage=Usage(tokens=1))
        raise AgentFailedError("nobody answered; try again", cost)

    async def play():
        async with manual_engine("sqlite://", clock) as engine:
            engine.add_agent(fails, "backend-engineer")
            run = await start_run(engine, chain(node("fix")))
            assert (await run.result(60)).ledger.tokens == 71
            (fault,) = await events_of(engine, run.id, Faulted)
            (lost,) = await events_of(engine, run.id, Lost)
            assert fault.message == "nobody answered; try again"
            assert "nobody answered; try again" in lost.reason

    run_async(play())


def test_what_an_agent_outside_used_before_it_gave_up_is_counted(clock: ManualClock):
    async def play():
        async with manual_engine("sqlite://", clock) as engine:
            run = await start_run(engine, chain(node("fix")))
            ada = await register_worker(engine, name="ada")
            first = await ada.get()
            used = Usage(tokens=30)
            await engine.dispatches.hand_back(first.id, "ada", first.fence, "no model", used)
            assert (
                await refusal_code(
                    engine.dispatches.hand_back(first.id, "ada", first.fence, "", used)
                )
                == "late"
            )
            await ada.work(DONE)
            ended = await run.result(60)
            assert (ended.terminal_status, ended.ledger.tokens) == ("done_success", 30)
            (fault,) = await events_of(engine, run.id, Faulted)
            assert fault.message == "ada handed it back: no model"

    run_async(play())
