"""An MCP client of the official SDK drives a whole bead to its end, over every transport."""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.client.serving import Server
from tests.mcp.speaking import PATIENCE, ROLE, Connected

from handrail.client.clients import SyncClient


def test_a_coding_agent_takes_a_bead_to_its_end(
    server: Server, office: SyncClient, connected: list[Connected]
):
    token = server.token("agent", "coder-1")
    for connect in connected:
        take_to_its_end(office, lambda connect=connect: connect(token))


def take_to_its_end(office: SyncClient, connect: Callable[[], Any]) -> None:
    filed = office.beads.create("500 on /invoices", workflow_id="fix", context={"severity": 3})
    office.beads.add_file(filed.id, "trace.txt", b"KeyError: 'total'", content_type="text/plain")

    async def play() -> None:
        async with connect() as agent:
            tools = await agent.client.list_tools()
            assert "claim" in [tool.name for tool in tools.tools]
            assert ROLE in await agent.do("register", roles=[ROLE])
            given = await agent.claimed()
            assert "500 on /invoices" in given
            assert "severity" in given
            assert "KeyError" in await agent.do("read_file", name="trace.txt")
            assert "Go on" in await agent.do("progress")
            assert "given the turn again" in await agent.do("ask_person", question="Which total?")
            await asyncio.to_thread(answered, office, "net")
            again = await agent.claimed()
            assert "net" in again.partition("The answer:")[2]
            assert again == await agent.do("context")
            said = await agent.do("answer", outcome="success", text="fixed", data={"done": True})
            assert "accepted" in said
            await asyncio.to_thread(answered, office, "approve")
            assert "nothing to do" in await agent.do("claim", wait=0)

    asyncio.run(play())
    run = office.result(filed.execution_id or "", timeout=PATIENCE)
    assert run.terminal_status == "done_success"
    assert office.beads.get(filed.id).context["done"] is True


def answered(office: SyncClient, text: str) -> None:
    """A person answers the one open question."""
    (question,) = office.approvals.list(status="open").items
    office.approvals.answer(question.id, text)
