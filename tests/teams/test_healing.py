"""Self-healing on a real repository: what is approved is what is committed, what is committed is
verified, and what cannot be mended reaches a person with everything that was tried."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.commits.sample_repository import git
from tests.teams.healing_shop import ANA, PATIENCE, HealingShop, approve, question

from handrail.engine.dispatch.agent_results import AgentFailedError
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.engine.services.runs import RunHandle
from handrail.kernel.result import Result
from handrail.teams.healing import REVERT_WORKFLOW_ID, HealingAgents, read_service
from handrail.views.approvals import approvals
from handrail.views.history import transitions
from handrail.views.steps import steps

PEOPLE = "shop/people.py"
GREEN = (
    "import unittest\n\n\nclass Slow(unittest.TestCase):\n    def test_it(self):\n        pass\n"
)
RED = GREEN.replace("pass", 'self.fail("the shelf is empty")')


def go(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 3 * PATIENCE))


async def worked(run: RunHandle) -> list[str]:
    """The nodes at which somebody worked, one for each dispatch."""
    return [step.place for step in steps(await run.history())]


async def taken_back(engine: Engine) -> RunHandle:
    """The run that takes a commit back."""
    for _ in range(100):
        found = await engine.run_queries.list(workflow_id=REVERT_WORKFLOW_ID)
        if found.items:
            return engine.run(found.items[0].id)
        await engine.feed.wait(PATIENCE / 100)
    raise AssertionError("nothing was taken back")


@pytest.mark.requirement("L2.1", "L9.6", "L11.2", "L11.6", "L16")
def test_a_bug_is_reproduced_investigated_approved_committed_verified_and_stays(tmp_path: Path):
    async def play():
        shop = HealingShop(tmp_path, "missing-self")
        async with shop.healed() as engine:
            run = await shop.report(engine, "missing-self")
            proposal = await approve(run)
            ended = await run.result(PATIENCE)
            assert ended.terminal_status == "done_success"
            assert await worked(run) == [
                *("triage", "investigation", "investigation", "apply", "verification"),
            ]
            assert [one["exit_code"] for one in proposal["tests"]] == [0, 0]
            assert proposal["risk"]["level"] == "low"
            assert "'rate' is an attribute" in proposal["cause"]["told"]
            assert proposal["cause"]["blame"].endswith("bo: A few changes")
            assert "+        return hours * self.rate" in proposal["patch"]
            (test,) = [path for path in proposal["files"] if path != PEOPLE]
            assert '"/people/fee"' in shop.read(test).replace("'", '"')
            assert "return hours * self.rate" in shop.read(PEOPLE)
            told = shop.log("%an|%cn|%(trailers:key=Bead,valueonly,separator=%x2C)")[0]
            author, committer, bead = told.split("|")
            assert author.startswith("backend-engineer@")
            assert committer.startswith("engineering-manager@")
            assert bead == ended.bead_id
            assert not (await engine.run_queries.list(workflow_id=REVERT_WORKFLOW_ID)).items
            await forged_bead_is_refused(shop, engine, run)

    go(play())


async def forged_bead_is_refused(shop: HealingShop, engine: Engine, good: RunHandle) -> None:
    """Nobody has a good commit taken back by filing a bead."""
    before = shop.log("%H")
    back = await engine.start(
        REVERT_WORKFLOW_ID, title="Take it back", context={"reverts": good.id}
    )
    escalated = await question(back, "escalation")
    assert "has left nothing on the branch" in escalated.text
    assert shop.log("%H") == before


@pytest.mark.requirement("L11.7", "L11.8", "L6.3", "L6.4", "L6.6")
def test_a_failed_verification_is_applied_again_three_times_then_escalated_and_taken_back(
    tmp_path: Path,
):
    """Between approval and commit somebody pushes what makes a test red that the hook does not
    run: only the verification sees it."""

    async def play():
        shop = HealingShop(tmp_path, "missing-self")
        shop.push("slow.py", GREEN)
        shop.service = replace(shop.service, tests="python -m unittest -q tests.test_shop slow")
        async with shop.healed() as engine:
            run = await shop.report(engine, "missing-self")
            asked = await question(run, "approval")
            shop.push("slow.py", RED)
            await run.answer(asked.id, by=ANA, decision="approve")
            escalated = await question(run, "escalation")
            assert (await worked(run))[3:] == ["apply", "verification"] * 4
            assert "3 reworks used up" in escalated.text
            (dossier,) = approvals(await engine.runs.history(run.id))[1:]
            assert dossier.original_bead_id == (await run.state()).bead_id
            assert dossier.node_id == "verification"
            assert "the shelf is empty" in dossier.attempt_history[-1].text
            assert dossier.proposed_next_steps
            fixed = git(shop.bare, "rev-parse", "main")
            assert len(shop.log()) == 5, "the same commit was found again, and not made again"
            await run.answer(escalated.id, "not now", by=ANA, decision="reject")
            assert (await run.result(PATIENCE)).terminal_status == "closed_by_human"
            back = await taken_back(engine)
            assert (await back.result(PATIENCE)).terminal_status == "done_success"
            assert "return hours * rate" in shop.read(PEOPLE)
            assert shop.log("%(trailers:key=Reverts,valueonly,separator=%x2C)")[0] == fixed
            assert shop.read("slow.py") == RED.strip(), "what others pushed stays"

    go(play())


@pytest.mark.requirement("L11.6", "L12.7")
def test_a_patch_that_does_not_fit_any_more_is_made_anew_and_approved_anew(tmp_path: Path):
    async def play():
        shop = HealingShop(tmp_path, "missing-self")
        async with shop.healed() as engine:
            run = await shop.report(engine, "missing-self")
            asked = await question(run, "approval")
            first = (await run.state()).context["proposal"]
            text = shop.read(PEOPLE).replace("return hours * rate", "return rate * hours * 1")
            shop.push(PEOPLE, f"{text}\n")
            await run.answer(asked.id, by=ANA, decision="approve")
            second = await approve(run)
            assert second["patch_id"] != first["patch_id"]
            assert (await run.result(PATIENCE)).terminal_status == "done_success"
            assert "return self.rate * hours * 1" in shop.read(PEOPLE)
            passed = [t.to_node_id for t in transitions(await engine.runs.history(run.id))]
            assert passed.count("approval") == passed.count("apply") == 2

    go(play())


@pytest.mark.requirement("R2.1", "L11.6")
def test_a_fix_that_a_person_turns_down_is_not_proposed_again(tmp_path: Path):
    async def play():
        shop = HealingShop(tmp_path, "wrong-comparison")
        async with shop.healed() as engine:
            run = await shop.report(engine, "wrong-comparison")
            asked = await question(run, "approval")
            first = (await run.state()).context["proposal"]
            shop.push("README.md", "The search begins anew on another commit.\n")
            await run.answer(asked.id, "mend the condition itself", by=ANA, decision="revise")
            second = await approve(run)
            assert second["patch_id"] != first["patch_id"]
            assert (await run.result(PATIENCE)).terminal_status == "done_success"
            said = [step.text for step in steps(await engine.runs.history(run.id))]
            assert any("one that a person has turned down" in text for text in said)

    go(play())


@pytest.mark.requirement("L2.4", "L2.6", "L6.4")
def test_a_repair_in_a_protected_folder_is_told_to_the_ceo_and_not_made(tmp_path: Path):
    async def play():
        shop = HealingShop(tmp_path, "protected")
        before = shop.log()
        async with shop.healed() as engine:
            run = await shop.report(engine, "protected")
            escalated = await question(run, "escalation")
            assert "5 of 5 attempts" in escalated.text
            (dossier,) = approvals(await engine.runs.history(run.id))
            assert [one.n for one in dossier.attempt_history] == [1, 2, 3, 4, 5]
            assert "vendor/weights.py" in dossier.attempt_history[-1].text
            assert "must not be touched" in dossier.attempt_history[-1].text
            await run.answer(escalated.id, "ask the vendor", by=ANA, decision="reject")
            assert (await run.result(PATIENCE)).terminal_status == "closed_by_human"
            assert shop.log() == before

    go(play())


@pytest.mark.requirement("L11.8", "L16", "L7.3")
def test_what_a_run_pushed_while_it_was_closed_is_taken_back_by_whoever_heals_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The commit is on the branch, and nobody was told: the engine then ends, too."""
    commits = HealingAgents.apply

    async def closed_meanwhile(healers: HealingAgents, dispatch: Dispatch) -> Result:
        told = await commits(healers, dispatch)
        await healers.engine.run(dispatch.run.id).close(by=ANA, reason="not this one")
        return told

    async def play():
        url = f"sqlite:///{tmp_path / 'work.db'}"
        shop = HealingShop(tmp_path, "missing-self")
        before = shop.read(PEOPLE)
        healing = shop.service
        shop.service = replace(healing, reverts=False)
        async with shop.healed(url) as engine:
            run = await shop.report(engine, "missing-self")
            await approve(run)
            ended = await run.result(PATIENCE)
            assert ended.terminal_status == "closed_by_human"
            assert "commit" not in ended.context
            assert shop.read(PEOPLE) != before
        shop.service = healing
        async with shop.healed(url) as engine:
            back = await taken_back(engine)
            assert (await back.result(PATIENCE)).terminal_status == "done_success"
            assert shop.read(PEOPLE) == before
        async with shop.healed(url) as engine:
            assert (
                len((await engine.run_queries.list(workflow_id=REVERT_WORKFLOW_ID)).items) == 1
            ), "once"

    monkeypatch.setattr(HealingAgents, "apply", closed_meanwhile)
    go(play())


@pytest.mark.requirement("L6.4", "L11.6", "L12.5")
def test_a_fix_that_was_pushed_by_attempts_that_were_lost_is_shown_as_committed_and_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    commits, lost = HealingAgents.apply, iter(range(3))

    async def dies_afterwards(healers: HealingAgents, dispatch: Dispatch) -> Result:
        told = await commits(healers, dispatch)
        if next(lost, None) is not None:
            raise AgentFailedError("killed before it told")
        return told

    async def play():
        shop = HealingShop(tmp_path, "missing-self")
        async with shop.healed() as engine:
            run = await shop.report(engine, "missing-self")
            first = await approve(run)
            assert (await question(run, "escalation")).step_id == "apply"
            pushed = git(shop.bare, "rev-parse", "main")
            await run.move("investigation", by=ANA, reason="look at it again")
            again = await approve(run)
            assert (again["commit"], again["patch_id"]) == (pushed, first["patch_id"])
            assert (await run.result(PATIENCE)).terminal_status == "done_success"
            assert git(shop.bare, "rev-parse", "main") == pushed

    monkeypatch.setattr(HealingAgents, "apply", dies_afterwards)
    go(play())


def test_what_no_report_names_is_not_guessed_at(tmp_path: Path):
    async def play():
        shop = HealingShop(tmp_path, "missing-self")
        async with shop.healed() as engine:
            run = await engine.start("auto-bug-workflow", title="It is slow")
            escalated = await question(run, "escalation")
            assert "the bead names no request that failed, and no test" in escalated.text

    go(play())


def test_a_failing_test_that_a_person_names_is_mended_as_well(tmp_path: Path):
    async def play():
        shop = HealingShop(tmp_path, "misspelt-attribute")
        shop.push(
            "tests/test_hello.py",
            "import unittest\n\nfrom shop import people\n\n\nclass Hello(unittest.TestCase):\n"
            "    def test_hello(self):\n"
            '        self.assertEqual(people.PEOPLE[0].hello(), "Dear Ana Silva")\n',
        )
        async with shop.healed() as engine:
            run = await engine.start(
                "auto-bug-workflow",
                title="Nobody is greeted",
                context={"test": "tests.test_hello.Hello.test_hello"},
            )
            proposal = await approve(run)
            assert proposal["files"] == [PEOPLE]
            assert (await run.result(PATIENCE)).terminal_status == "done_success"

    go(play())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("home: here", "missing required field `repository`"),
        ("repository: {url: x}\nhome: h\nreverst: no", "unknown field `reverst`"),
        ("repository: {url: '-x'}\nhome: h", "is no address of a repository"),
        ("[", "describes no service"),
    ],
)
def test_a_service_that_cannot_be_read_is_told_in_one_line(tmp_path: Path, text: str, told: str):
    file = tmp_path / "service.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"docs/healing\.md shows one") as raised:
        read_service(file)
    assert told in str(raised.value)
