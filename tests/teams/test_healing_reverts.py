"""What a run has pushed is taken back if it does not end well: all of it, told or not."""

import asyncio
from itertools import count
from pathlib import Path

import msgspec
import pytest
from tests.commits.sample_repository import SampleRepository
from tests.kernel.driven_run import chain, node
from tests.patience import PATIENCE

from handrail.commits import commit_agent
from handrail.engine import opening
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.services.runs import RunHandle
from handrail.kernel.result import Result
from handrail.kernel.run.state import PendingApproval, Person
from handrail.teams.healing.reverts import REVERT_WORKFLOW, REVERT_WORKFLOW_ID, revert_run
from handrail.teams.scripted import fail, succeed

ANA = Person(name="ana", role="ceo")
HEALS = chain(
    node("fix"),
    node("approval", "approval", role="ceo", revise_to="fix"),
    node("apply", role="engineering-manager", kind="commit"),
    node("check", role="qa-engineer", max_attempts=1),
)


async def asked(run: RunHandle, place: str) -> PendingApproval:
    (question,) = await run.questions(PATIENCE)
    assert question.step_id == place
    return question


@pytest.mark.requirement("L11.8", "L16", "L7.2")
def test_every_commit_of_a_run_that_ends_badly_is_taken_back_the_newest_first(tmp_path: Path):
    async def play():
        sample = SampleRepository(tmp_path)
        before, rounds = sample.read("app.py"), count(1)
        commit = commit_agent(sample.lane, "manager")

        async def fix(dispatch: Dispatch) -> Result:
            text = f"def total(n):\n    return n + {next(rounds)}\n"
            proposal = await sample.propose(dispatch.bead.id, {"app.py": text})
            return succeed("so", data={"proposal": msgspec.to_builtins(proposal)})

        async with opening.open(f"sqlite:///{tmp_path / 'work.db'}") as engine:

            async def manage(dispatch: Dispatch) -> Result:
                if dispatch.node == "revert":
                    return await revert_run(engine, sample.lane, dispatch)
                return await commit(dispatch)

            for document in (HEALS, REVERT_WORKFLOW):
                await engine.define(document)
            await engine.add_agent(fix, "backend-engineer")
            await engine.add_agent(manage, "engineering-manager")
            await engine.add_agent(lambda _: fail("it is red"), "qa-engineer")
            run = await engine.start("w", title="Total")
            for _ in range(2):
                await run.answer((await asked(run, "approval")).id, by=ANA, decision="approve")
                await asked(run, "check")
                await run.move("fix", by=ANA, reason="not like this")
            third = await asked(run, "approval")
            await run.answer(third.id, "leave it", by=ANA, decision="reject")
            assert (await run.result(PATIENCE)).terminal_status == "closed_by_human"
            assert sample.read("app.py").endswith("n + 2")

            back = await engine.start(REVERT_WORKFLOW_ID, title="Back", context={"reverts": run.id})
            assert (await back.result(PATIENCE)).terminal_status == "done_success"
            assert sample.read("app.py") == before
            first, second = sample.log()[1:3]
            reverted = sample.log("by %(trailers:key=Reverts,valueonly,separator=%x2C)")
            assert reverted[3:] == [f"by {second}", f"by {first}"]

    asyncio.run(play())
