"""Finance with a language model: the figures are worked out by the team's own rules.

The model is a stub on loopback that says what the test wants; everything else is real.
"""

import pytest
from tests.agents.helpdesk_replies import KEY, MODEL, agent_name
from tests.agents.model_stub import ModelReply, ModelRequest, Stub, call
from tests.engine.engines import manual_engine, run_async

from handrail.teams import install_teams
from handrail.testing.clock import ManualClock

TITLE = "Invoice for 2 x 10.00 and 1 x 5.00"


def hands(to: str, text: str = "") -> ModelReply:
    return call("answer", outcome="handoff", to=to, reason="your turn", text=text)


def test_a_model_takes_its_figures_from_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    turns: dict[str, list[ModelReply]] = {
        "planner": [hands("invoice")],
        "invoice": [
            call("work_out", said=[TITLE, "use 7% tax"]),
            call("read_file", name="nope.csv"),
            hands("review", "total 26.75"),
        ],
    }

    def answer(asked: ModelRequest) -> ModelReply:
        return turns[agent_name(asked)].pop(0)

    async def play() -> None:
        async with Stub(answer) as stub, manual_engine("sqlite://", ManualClock()) as engine:
            monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
            await install_teams(engine, ("finance",), model=MODEL)
            run = await engine.start("finance", title=TITLE, review="skip")
            ended = await run.result(60)
            assert ended.terminal_status == "done_success"
            told = str(stub.asked[-1])
            assert "tax 7% 1.75" in told
            assert "total 26.75" in told
            assert "there is no file 'nope.csv'; there are none" in told

    run_async(play())
