"""One agent at one node of a workflow, or at the start of a team, through the real engine."""

from typing import Any

from tests.engine.engines import chain, manual_engine, node, run_async, start_run, team

from handrail.agents.dispatch_input import AgentFunction
from handrail.kernel.run.state import Run
from handrail.testing.clock import ManualClock

FIX = chain(node("fix", max_attempts=1))
PAIR = team({"asker": ["closer"], "closer": ["asker"]}, terminator="closer")


def run_agent(
    agent: AgentFunction, document: dict[str, Any] = FIX, *roles: str, **start: Any
) -> Run:
    """The run at its end, or where a person has to look at it."""

    async def play() -> Run:
        async with manual_engine("sqlite://", ManualClock()) as engine:
            engine.add_agent(agent, *(roles or ("backend-engineer",)))
            run = await start_run(engine, document, **{"title": "500 on /invoices", **start})
            await run.questions(60)
            return await run.state()

    return run_async(play())


def failure_text(agent: AgentFunction) -> str:
    """What is said of an agent that brings no result, to whoever has to decide."""
    run = run_agent(agent)
    (question,) = run.pending_approvals.values()
    return question.text
