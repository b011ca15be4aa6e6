"""One agent at one node of a workflow, or at the start of a team, through the real engine."""

from typing import Any

from tests.engine.at_work import chain, go, node, opened, started, team

from handrail.agents.dispatch_input import AgentFunction
from handrail.kernel.run.state import Run
from handrail.testing.clock import ManualClock

FIX = chain(node("fix", max_attempts=1))
PAIR = team({"asker": ["closer"], "closer": ["asker"]}, terminator="closer")


def works(agent: AgentFunction, document: dict[str, Any] = FIX, *roles: str, **start: Any) -> Run:
    """The run at its end, or where a person has to look at it."""

    async def play() -> Run:
        async with opened("sqlite://", ManualClock()) as engine:
            engine.add_agent(agent, *(roles or ("backend-engineer",)))
            run = await started(engine, document, **{"title": "500 on /invoices", **start})
            await run.questions(60)
            return await run.state()

    return go(play())


def told(agent: AgentFunction) -> str:
    """What is said of an agent that brings no result, to whoever has to decide."""
    run = works(agent)
    (question,) = run.pending_approvals.values()
    return question.text
