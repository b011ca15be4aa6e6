"""What a client is told about each tool: its title, its effects, the form of its answer."""

from pathlib import Path

from tests.engine.engines import run_async
from tests.mcp.in_process_agent import open_agent_session
from tests.server.harness import PLAIN, ServerHarness

from handrail.testing.clock import ManualClock

READING = {"context", "read_file", "hear"}
REPEATABLE = {"context", "read_file", "progress", "answer"}


def test_every_tool_says_its_effects_and_the_form_of_its_answer(tmp_path: Path):
    run_async(look_at_tools(ServerHarness(f"sqlite:///{tmp_path}/work.db", ManualClock())))


async def look_at_tools(harness: ServerHarness) -> None:
    async with harness.opened(), open_agent_session(harness) as (agent, _):
        tools = {tool.name: tool for tool in (await agent.client.list_tools()).tools}
    assert len(tools) == 11
    for tool in tools.values():
        assert tool.title
        assert tool.annotations is not None
        assert tool.annotations.open_world_hint is False
        assert tool.output_schema is not None
        assert tool.output_schema["type"] == "object"
        assert "text" in tool.output_schema["required"]
    hints = {name: tool.annotations for name, tool in tools.items() if tool.annotations}
    assert {name for name, hint in hints.items() if hint.read_only_hint} == READING
    assert {name for name, hint in hints.items() if hint.destructive_hint} == {"give_back"}
    assert {name for name, hint in hints.items() if hint.idempotent_hint} == REPEATABLE


def test_structured_content_says_what_a_program_needs(tmp_path: Path):
    run_async(take_a_bead(ServerHarness(f"sqlite:///{tmp_path}/work.db", ManualClock())))


async def take_a_bead(harness: ServerHarness) -> None:
    async with harness.opened(), open_agent_session(harness) as (agent, _):
        await harness.define(PLAIN)
        await harness.file("plain")

        async def call(tool: str, **arguments: object) -> dict[str, object]:
            found = (await agent.client.call_tool(tool, arguments)).structured_content
            assert found is not None
            return {name: value for name, value in found.items() if name != "text"}

        assert await call("register", roles=["backend-engineer"]) == {
            "agent_id": "coder-1",
            "roles": ["backend-engineer"],
            "channels": [],
        }
        claimed = await call("claim", wait=0)
        assert (claimed["kind"], claimed["channel"]) == ("dispatch", "")
        assert await call("progress") == {"dispatch_id": claimed["id"], "ended": False}
        assert await call("answer", outcome="success", text="fixed") == {
            "dispatch_id": claimed["id"],
            "accepted": True,
            "terminal_status": "done_success",
        }
        assert (await call("claim", wait=0))["kind"] == "nothing"
