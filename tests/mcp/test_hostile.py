"""What a model sends is hostile, and what it reads is bounded: sizes, shapes, words."""

from typing import Any

import pytest
from tests.client.live_server import Server
from tests.engine.engines import run_async
from tests.mcp.in_process_agent import open_agent_session
from tests.mcp.test_agent_session import Played, play, work_of
from tests.server.harness import WORKER, ServerHarness

from handrail.mcp.agent_sessions import AgentSessions, SessionRefusedError
from handrail.mcp.rendering import PAGE_CHARS
from handrail.mcp.tool_arguments import (
    ARGUMENTS_BYTES_MAX,
    ToolArguments,
    object_schema,
    read_arguments,
)
from handrail.mcp.tools import TOOLS

__all__ = ["play"]
BEYOND_PAGE = 5_000
"""What an answer may have beside a page of text."""


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"a": found}
    return found


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_has_a_schema_with_an_object_at_its_root_and_nothing_unknown(name: str):
    found = object_schema(TOOLS[name].arguments_type)
    assert found["type"] == "object"
    assert found["additionalProperties"] is False
    assert TOOLS[name].description.endswith(".")


@pytest.mark.parametrize("name", [name for name in TOOLS if TOOLS[name].operation is not None])
def test_a_tool_that_is_a_call_says_what_the_call_says_and_takes_its_arguments(name: str):
    tool = TOOLS[name]
    assert tool.operation is not None
    assert tool.description.startswith(f"{tool.operation.summary}. ")
    own = {"dispatch_id", "channel", "page", "end_turn"}
    body = getattr(tool.operation.body, "__struct_fields__", ())
    arguments = {*tool.operation.signature.parameters, *body}
    assert {*tool.arguments_type.__struct_fields__} - own <= arguments


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("register", {}, "lacks `roles`"),
        ("register", {"roles": []}, "roles: should have at least 1 entries"),
        ("register", {"roles": ["x"], "agent_id": "boss"}, "has an unknown `agent_id`"),
        ("claim", {"wait": 1e9}, "wait: should be at most 50"),
        ("claim", {"wait": "long"}, "wait: should be a number, not a text"),
        ("answer", {"outcome": "win"}, "outcome: 'win' is not one of the choices"),
        ("answer", {"outcome": "success", "text": "x" * 400_001}, "at most 400,000 characters"),
        ("answer", {"outcome": "success", "data": {"x": "y" * ARGUMENTS_BYTES_MAX}}, "bytes"),
        ("answer", {"outcome": "success", "by": "ana"}, "has an unknown `by`"),
        ("answer", {"outcome": "success", "data": nested(50_000)}, "cannot be read"),
        ("say", {"text": ""}, "text: should have at least 1 characters"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_in_words(
    tool: str, arguments: dict[str, Any], told: str
):
    found = read_arguments(TOOLS[tool].arguments_type, arguments)
    assert not isinstance(found, ToolArguments)
    assert told in found


def test_no_tool_takes_a_name_to_act_under():
    names = {
        name for tool in TOOLS.values() for name in object_schema(tool.arguments_type)["properties"]
    }
    assert not names & {"agent", "agent_id", "author", "by", "actor", "token", "fence"}


def test_a_long_dispatch_comes_in_pages_and_none_of_it_is_lost(play: Played):
    words = " ".join(f"word{n}" for n in range(12_000))

    async def scene(harness: ServerHarness) -> None:
        await harness.file("plain", description=words)
        async with open_agent_session(harness) as (agent, _):
            await agent.do("register", roles=[WORKER])
            first = await agent.claimed()
            assert "page 1 of" in first
            pages = [await agent.do("context", page=n) for n in range(1, 6)]
            assert pages[0] == first
            assert all(len(one) < PAGE_CHARS + BEYOND_PAGE for one in pages)
            marks = ("(page", "There is no page")
            whole = "".join(
                "\n\n".join(part for part in one.split("\n\n") if not part.startswith(marks))
                for one in pages
            )
            assert words in whole

    play(scene)


def test_what_goes_wrong_is_told_in_words_and_changes_nothing(play: Played):
    async def scene(harness: ServerHarness) -> None:
        await harness.file("plain")
        async with open_agent_session(harness) as (agent, _):
            await agent.do("register", roles=[WORKER])
            assert "no dispatch in hand" in await agent.refused("answer", outcome="success")
            await agent.claimed()
            held = await work_of(harness)
            assert "there is no tool 'rm'" in await agent.refused("rm")
            for name in ("../../x", "x.d1", "x" * 200, f"{held[0]}9"):
                told = await agent.refused("answer", outcome="success", dispatch_id=name)
                assert len(told) < BEYOND_PAGE
            handed = await agent.refused("answer", outcome="handoff")
            assert "needs `to`" in handed
            assert await work_of(harness) == held
            assert "has no file" in await agent.refused("read_file", name="../../etc/passwd")
            assert "accepted" in await agent.do("answer", outcome="success")

    play(scene)


def test_an_agent_speaks_only_for_itself(play: Played):
    async def scene(harness: ServerHarness) -> None:
        await harness.file("plain")
        async with (
            open_agent_session(harness) as (agent, seat),
            open_agent_session(harness, "coder-2") as (other, _),
        ):
            await agent.do("register", roles=[WORKER])
            await other.do("register", roles=[WORKER])
            await agent.claimed()
            (name,) = seat.held
            stolen = await other.refused("answer", outcome="success", dispatch_id=name)
            assert "held by 'coder-1'" in stolen
            assert "report only dispatches" in stolen
            assert await work_of(harness) == (name,)

    play(scene)


def test_an_agent_is_given_only_what_its_token_allows(play: Played):
    async def scene(harness: ServerHarness) -> None:
        await harness.file("plain")
        allowed = {"works_as": ("qa-engineer",), "seconds": 3_600}
        async with (
            open_agent_session(harness, **allowed) as (agent, seat),
            open_agent_session(harness, "ada") as (ada, _),
        ):
            for roles in ([WORKER], ["ceo"], ["qa-engineer", WORKER]):
                assert "roles that your token allows" in await agent.refused(
                    "register", roles=roles
                )
            await agent.do("register", roles=["qa-engineer"])
            assert "nothing to do" in await agent.do("claim", wait=0)
            await ada.do("register", roles=[WORKER])
            await ada.claimed()
            (name,) = await work_of(harness, "ada")
            assert "held by 'ada'" in await agent.refused("progress", dispatch_id=name)
            assert "held by 'ada'" in await agent.refused("give_back", dispatch_id=name, reason="x")
            for tool in ("context", "read_file"):
                asked = {"dispatch_id": name, **({"name": "x"} if tool == "read_file" else {})}
                assert "not in your hands" in await agent.refused(tool, **asked)
            assert "do not have the turn" in await agent.refused("say", text="x", channel="talk")
            harness.clock.advance(seconds=3_601)
            assert "expired or revoked: stop" in await agent.refused("claim", wait=0)
            assert seat.is_rejected
            assert await work_of(harness, "ada") == (name,)

    play(scene)


def test_nobody_sits_down_without_the_token_of_an_agent(server: Server):
    async def scene() -> None:
        async with AgentSessions(server.url) as seats:
            with pytest.raises(SessionRefusedError, match="characters that no token has"):
                await seats.open_session("žluťoučký")
            with pytest.raises(SessionRefusedError, match="is unknown") as wrong:
                await seats.open_session("hr_wrong")
            assert wrong.value.status == 401
            with pytest.raises(SessionRefusedError, match="olga, who is no agent") as person:
                await seats.open_session(olga)
            assert person.value.status == 403
            assert await seats.open_session(ada) is await seats.open_session(ada)
            assert (await seats.open_session(ada)).agent_id == "ada"

    olga, ada = server.token("operator", "olga"), server.token("agent", "ada")

    run_async(scene())
