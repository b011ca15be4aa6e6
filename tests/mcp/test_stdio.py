"""`handrail mcp` over stdio: the end of the process is the end of the agent."""

import asyncio
import time

from tests.client.serving import Server
from tests.mcp.speaking import PATIENCE, ROLE, over_stdio

from handrail.client.clients import SyncClient


def test_an_agent_that_goes_away_gives_its_work_back(server: Server, office: SyncClient):
    filed = office.create_bead("a bug", workflow_id="one")

    async def play() -> None:
        async with over_stdio(server, server.token("agent", "ada")) as agent:
            await agent.do("register", roles=[ROLE])
            await agent.claimed()
            assert len(office.agent("ada").current_work) == 1

    asyncio.run(play())
    until = time.monotonic() + PATIENCE
    while office.agent("ada").current_work and time.monotonic() < until:
        time.sleep(0.05)
    lost = office.steps(filed.execution_id or "").items[0]
    assert (lost.agent, lost.outcome) == ("ada", "lost")
