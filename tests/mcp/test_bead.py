"""An MCP client of the official SDK drives a whole bead to its end, over every transport."""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.client.live_server import Server
from tests.mcp.mcp_clients import PATIENCE, ROLE, Connected

from handrail.client.clients import SyncClient


def test_a_coding_agent_takes_a_bead_to_its_end(
    server: Server, admin_client: SyncClient, connected: list[Connected]
):
    token = server.token("agent", "coder-1")
    for connect in connected:
        take_to_its_end(admin_client, lambda connect=connect: connect(token))


def take_to_its_end(admin_client: SyncClient, connect: Callable[[], Any]) -> None:
    filed = admin_client.beads.create(
        "500 on /invoices", workflow_id="fix", context={"severity": 3}
    )
    admin_client.beads.add_file(
        filed.id, "trace.txt", b"KeyError: 'total'", content_type="text/plain"
    )

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
            await asyncio.to_thread(answered, admin_client, "net")
            again = await agent.claimed()
            assert "net" in again.partition("The answer:")[2]
            assert again == await agent.do("context")
            said = await agent.do("answer", outcome="success", text="fixed", data={"done": True})
            assert "accepted" in said
            await asyncio.to_thread(answered, admin_client, "approve")
            assert "nothing to do" in await agent.do("claim", wait=0)

    asyncio.run(play())
    run = admin_client.result(filed.execution_id or "", timeout=PATIENCE)
    assert run.terminal_status == "done_success"
    assert admin_client.beads.get(filed.id).context["done"] is True


def answered(admin_client: SyncClient, text: str) -> None:
    """A person answers the one open question."""
    (question,) = admin_client.approvals.list(status="open").items
    admin_client.approvals.answer(question.id, text)
