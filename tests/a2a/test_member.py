"""An agent that speaks A2A, made with the official SDK, as a member: a whole bead to its end."""

import asyncio
from typing import Any

import pytest
from tests.a2a.a2a_server import run_async
from tests.a2a.sdk_agent import Agent, Play, complete_with, serve_agent, words
from tests.agents.agent_runs import FIX, PAIR
from tests.engine.engines import (
    ANA,
    PATIENCE,
    chain,
    manual_engine,
    node,
    start_run,
    wait_until_async,
)

from handrail.agents.a2a import a2a_agent
from handrail.engine.engine import Engine
from handrail.engine.services.runs import RunHandle
from handrail.testing.clock import ManualClock

VARIABLE, TOKEN = "TRIAGE_TOKEN", "triage-secret-0123456789"
ROLE = "backend-engineer"


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)


def play(plays: Play, scene: Any, document: dict[str, Any] = FIX) -> Agent:
    """A run of the definition, all of whose agents are that one."""

    async def played() -> Agent:
        async with serve_agent(plays) as agent, manual_engine("sqlite://", ManualClock()) as engine:
            works = a2a_agent(agent.url, token_from=VARIABLE)
            engine.add_agent(works, ROLE, "asker", "closer")
            run = await start_run(engine, document, title="500 on /invoices")
            await scene(run, engine, agent)
            return agent

    return run_async(played())


@pytest.mark.parametrize("needs", ["requires_input", "requires_auth"])
def test_what_the_agent_asks_a_person_answers_and_the_same_task_goes_on(needs: str):
    async def plays(agent: Agent, updater: Any, said: str) -> None:
        if len(agent.heard) == 1:
            await getattr(updater, needs)(words("Net or gross?"))
        else:
            await complete_with(updater, f"the total is {said}")

    async def scene(run: RunHandle, engine: Engine, agent: Agent) -> None:
        (question,) = await run.questions(PATIENCE)
        assert (question.kind, question.text) == ("clarification_request", "Net or gross?")
        await run.answer(question.id, "net", by=ANA)
        ended = await run.result(PATIENCE)
        assert ended.terminal_status == "done_success"
        assert ended.context["a2a"] == {}, "nothing waits over there"
        (_, last) = (await run.report()).steps
        assert last.text == "the total is net"

    agent = play(plays, scene, chain(node("fix")))
    (first, asked), (second, answer) = agent.heard
    assert first == second, "it is one task"
    assert "500 on /invoices" in asked
    assert answer == "net"
    assert agent.tokens == {f"Bearer {TOKEN}"}


def test_in_a_team_its_last_line_hands_over_and_ends_the_run():
    async def plays(agent: Agent, updater: Any, said: str) -> None:
        first = "You are the agent 'asker'" in said
        await complete_with(
            updater, "ok\n" + ("HANDOFF: closer: x" if first else "TERMINATE_WORKFLOW: y")
        )

    async def scene(run: RunHandle, engine: Engine, agent: Agent) -> None:
        ended = await run.result(PATIENCE)
        assert ended.stop is not None
        assert (ended.terminal_status, ended.stop.reason) == ("done_success", "y")

    assert len(play(plays, scene, PAIR).heard) == 2


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ("failed", "there is no such invoice"),
        ("reject", "there is no such invoice"),
        ("cancel", "there is no such invoice"),
        ("failed", ""),
    ],
)
def test_a_task_that_fails_is_a_failure_with_its_words(ends: str, said: str):
    async def plays(agent: Agent, updater: Any, _: str) -> None:
        await getattr(updater, ends)(words(said) if said else None)

    async def scene(run: RunHandle, engine: Engine, agent: Agent) -> None:
        await run.questions(PATIENCE)
        (step,) = (await run.report()).steps
        assert (step.outcome, step.text) == ("failure", said or "the agent failed")

    play(plays, scene)


async def never(agent: Agent, updater: Any, said: str) -> None:
    await asyncio.Event().wait()


def test_a_run_that_is_closed_cancels_the_task():
    async def scene(run: RunHandle, engine: Engine, agent: Agent) -> None:
        await wait_until_async(lambda: bool(agent.heard))
        await run.close(by=ANA, reason="no longer needed")
        await wait_until_async(lambda: bool(agent.cancelled))

    agent = play(never, scene)
    assert agent.cancelled == [agent.heard[0][0]]
