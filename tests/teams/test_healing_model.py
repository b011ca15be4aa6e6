"""The investigation by a language model: it works in the bead's copy, and what it says counts for
nothing until the tests say so too. The model is a stub on loopback; everything else is real."""

import asyncio
import re
from pathlib import Path

import pytest
from tests.agents.helpdesk_replies import KEY, MODEL
from tests.agents.model_stub import TOKENS, ModelReply, ModelRequest, Stub, call
from tests.teams.healing_shop import ANA, PATIENCE, HealingShop, question

from handrail.teams.healing.sample_shop import load_shop_files
from handrail.views.steps import steps

PEOPLE = "shop/people.py"
RIGHT = load_shop_files()[PEOPLE]
GREEN = (
    "import unittest\n\n\nclass Request(unittest.TestCase):\n    def test_it(self):\n        pass\n"
)


class Model:
    """First it cheats and says that all is well; then it mends the bug."""

    def __init__(self) -> None:
        self.test = ""
        self.said = [
            call("list_files"),
            self._silences,
            call("write_file", path="vendor/weights.py", text="BOXES = ()\n"),
            call("write_file", path=".githooks/pre-commit", text="#!/bin/sh\n"),
            call("answer", outcome="success", text="The test is green now."),
            call("write_file", path=PEOPLE, text=RIGHT),
            call("run_check", command="python -m unittest"),
            call("answer", outcome="success", text="`rate` lacks its self.\nThat is all."),
        ]

    def _silences(self, asked: ModelRequest) -> ModelReply:
        found = re.search(r"tests/test_people_fee_\w+\.py", "\n".join(asked.results))
        assert found is not None, asked.results
        self.test = found[0]
        return call("write_file", path=self.test, text=GREEN)

    def __call__(self, asked: ModelRequest) -> ModelReply:
        said = self.said.pop(0)
        return said if isinstance(said, ModelReply) else said(asked)


@pytest.mark.requirement("L16", "L2.1")
def test_a_model_that_cheats_is_measured_and_one_that_mends_is_proposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def play() -> None:
        shop, model = HealingShop(tmp_path, "missing-self"), Model()
        async with Stub(model) as stub:
            monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
            async with shop.healed(model=MODEL) as engine:
                run = await shop.report(engine, "missing-self")
                asked = await question(run, "approval")
                proposal = (await run.state()).context["proposal"]
                assert set(proposal["files"]) == {PEOPLE, model.test}
                assert '"/people/fee"' in proposal["patch"].replace("'", '"')
                assert proposal["cause"]["told"] == "`rate` lacks its self."
                assert [one["exit_code"] for one in proposal["tests"]] == [0, 0]
                tried = [s for s in steps(await engine.runs.history(run.id)) if s.place != "triage"]
                assert [one.outcome for one in tried] == ["continue", "continue", "success"]
                assert "not done: vendor/weights.py" in tried[1].text
                assert "not done: .githooks/pre-commit" in tried[1].text
                assert (await run.report()).usage.tokens == TOKENS * len(stub.asked)
                await run.answer(asked.id, by=ANA, decision="reject", text="enough")
                assert (await run.result(PATIENCE)).terminal_status == "closed_by_human"
                assert len(shop.log()) == 2

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    asyncio.run(asyncio.wait_for(play(), 2 * PATIENCE))
