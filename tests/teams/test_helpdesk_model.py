"""The helpdesk worked by a language model, over real HTTP to a stub of one: the same team, and the
same memory, which the model reaches by its tools `find` and `keep`."""

from typing import Any

import pytest
from tests.agents.helpdesk_replies import KEY, MODEL, agent_name, orchestrated, phase
from tests.agents.model_stub import ModelReply, ModelRequest, Stub, call
from tests.engine.engines import PATIENCE, manual_engine, run_async

from handrail.kernel.run.state import Run
from handrail.teams import install_teams
from handrail.testing.clock import ManualClock

MTU = "Set the MTU to 1400."


def says(asked: ModelRequest) -> ModelReply:
    """What a model would: the tool first, then an answer by what it gave."""
    agent = agent_name(asked)
    back: dict[str, Any] = {"outcome": "handoff", "to": "orchestrator", "reason": "done"}
    match agent:
        case "memory":
            return _memory(asked, back)
        case "orchestrator":
            return _orchestrator(asked)
        case "ticketing" if phase(asked) in ("summary_complete", "memory_checked") and (
            "`close`" in asked.prompt
        ):
            return call("answer", outcome="terminate", reason="ticket resolved", text="Closed.")
        case "ticketing":
            return call("answer", **back, text="network", data={"specialty": "network"})
        case "summarization":
            return call("answer", **back, text="Set it.", marker="WORKFLOW_COMPLETE")
        case _:
            return call("answer", **back, text=MTU, data={"resolution": MTU})


def _memory(asked: ModelRequest, back: dict[str, Any]) -> ModelReply:
    stores = "Your task now: `store`" in asked.prompt
    if not asked.results:
        return call("keep", resolution=MTU) if stores else call("find")
    (found,) = asked.results
    if stores:
        words = "Your own words for what is kept: stored"
        return call("answer", **back, text=f"{words} ({found})")
    hit = "alike" in found
    data = {"memory": "hit", "resolution": found.splitlines()[-1]} if hit else {}
    return call("answer", **back, text=found, data=data)


def _orchestrator(asked: ModelRequest) -> ModelReply:
    to, reason = orchestrated(asked)
    if "100% alike" in asked.prompt:
        to, reason = "ticketing", "known"
    return call("answer", outcome="handoff", to=to, reason=reason, text=reason)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.mark.requirement("H5.1")
def test_a_model_keeps_a_resolution_and_finds_it_for_the_next_ticket_like_it(
    monkeypatch: pytest.MonkeyPatch,
):
    async def play() -> None:
        clock = ManualClock()
        async with Stub(says) as stub, manual_engine("sqlite://", clock) as engine:
            monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
            await install_teams(engine, ["helpdesk"], model=MODEL)
            ended: list[Run] = []
            for title in ("VPN drops every hour", "the VPN disconnects every hour"):
                handle = await engine.start("helpdesk", title=title)
                ended.append(await handle.result(PATIENCE))
            first, again = ended
            told = [[s.place for s in await engine.run_queries.steps(run.id)] for run in ended]
            assert [run.terminal_status for run in ended] == ["done_success"] * 2, told
            assert "network" in told[0]
            assert told[1] == ["orchestrator", "memory", "orchestrator", "ticketing"]
            (memory,) = (await engine.memory.list()).items
            assert (memory.resolution, memory.times_used) == (MTU, 1)
            assert (memory.execution_id, memory.status) == (first.id, "kept")
            assert again.context["resolution"] == MTU
            asked = [one for one in stub.asked if agent_name(one) == "memory"]
            assert all({"find", "keep"} <= one.tools.keys() for one in asked)
            others = [one for one in stub.asked if agent_name(one) != "memory"]
            assert all(not {"find", "keep"} & one.tools.keys() for one in others)

    run_async(play())
