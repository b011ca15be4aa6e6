"""A push that nobody was told of, since every attempt was lost: the commit is found again, whatever
a person does then, and is made once."""

import asyncio
from pathlib import Path

import pytest
from tests.commits.bead_workers import ANA, FIX, specialist
from tests.commits.sample_repository import SampleRepository
from tests.patience import PATIENCE

import handrail.engine.opening as opening
from handrail.commits import commit_agent
from handrail.engine.dispatch.agent_results import AgentFailedError
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.services.runs import RunHandle
from handrail.kernel.result import Result
from handrail.views.approvals import approvals

ATTEMPTS = 2


async def once_more(run: RunHandle, asked: str) -> None:
    await run.answer(asked, "do it again", by=ANA, decision="revise")


async def to_apply(run: RunHandle, asked: str) -> None:
    await run.move("apply", by=ANA, reason="it may be there")


async def to_fix(run: RunHandle, asked: str) -> None:
    """What is on the branch is proposed as it stands, and says so."""
    await run.move("fix", by=ANA, reason="propose it again")
    (question,) = await run.questions(PATIENCE)
    shown = approvals(await run.history())[-1]
    assert shown.id == question.id
    assert shown.type == "approval"
    assert shown.proposal["commit"]
    await run.answer(question.id, by=ANA, decision="approve")


@pytest.mark.requirement("L6.4", "L12.5", "L16")
@pytest.mark.parametrize("way", [once_more, to_apply, to_fix])
def test_a_commit_of_which_nobody_heard_is_found_whatever_a_person_does(way, tmp_path: Path):
    async def play():
        sample = SampleRepository(tmp_path / "sample")
        commit = commit_agent(sample.lane, "manager-0")
        lost = 0

        async def dies_afterwards(dispatch: Dispatch) -> Result:
            nonlocal lost
            done = await commit(dispatch)
            if lost < ATTEMPTS:
                lost += 1
                raise AgentFailedError("killed before it told")
            return done

        async with opening.open(f"sqlite:///{tmp_path / 'work.db'}") as engine:
            await engine.define(FIX, by="crew")
            await engine.add_agent(specialist(sample.copies), "backend-engineer", name="specialist")
            await engine.add_agent(dies_afterwards, "engineering-manager", name="manager")
            run = await engine.start(FIX["id"], title="Bug 1", context={"n": 1})
            (question,) = await run.questions(PATIENCE)
            await run.answer(question.id, by=ANA, decision="approve")
            (escalated,) = await run.questions(PATIENCE)
            assert (escalated.kind, escalated.step_id) == ("escalation", "apply")
            assert sample.log("%s") == ["begin", "Bug 1"]
            pushed = sample.head()

            await way(run, escalated.id)
            ended = await run.result(PATIENCE)
            assert ended.terminal_status == "done_success"
            assert ended.context["commit"] == pushed == sample.head()

    asyncio.run(play())
