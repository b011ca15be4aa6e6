"""Every attempt of an investigation begins on a clean copy: what a lost attempt left on disk is in
no later proposal. What an attempt reported is carried on by the run's record alone."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.agents.helpdesk_replies import KEY, MODEL
from tests.agents.model_stub import ModelReply, ModelRequest, Stub, call
from tests.agents.model_stub import fail as http_error
from tests.commits.sample_repository import git
from tests.teams.healing_shop import ANA, PATIENCE, HealingShop, approve, question

from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.kernel.result import Check, Outcome, Result
from handrail.teams.healing import HealingAgents, agents
from handrail.teams.healing.agents import InvestigationResult, ReproductionSetup
from handrail.teams.healing.proposal import Cause
from handrail.teams.healing.sample_shop import load_shop_files
from handrail.views.steps import steps

PEOPLE = "shop/people.py"
RIGHT = load_shop_files()[PEOPLE]
HACK = f"{RIGHT}\n# a hack of an attempt that was lost\n"
SCRATCH = "scratch.txt"
Turn = Callable[[ReproductionSetup], Awaitable[InvestigationResult]]


def play(scene: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scene, 3 * PATIENCE)

    asyncio.run(bounded())


def investigate_by(monkeypatch: pytest.MonkeyPatch, *turns: Turn) -> None:
    """These are the investigations after the first look, one for each attempt."""
    left = list(turns)

    async def investigate(
        healers: HealingAgents, dispatch: Dispatch, bench: ReproductionSetup, check: Check
    ) -> InvestigationResult:
        return await left.pop(0)(bench)

    monkeypatch.setattr(agents, "investigate_by_rules", investigate)


def leave_behind(folder: Path) -> None:
    """What an attempt that is killed in the middle leaves in its copy."""
    (folder / PEOPLE).write_text(HACK)
    (folder / SCRATCH).write_text("tried this and that\n")
    (folder / "ignored.log").write_text("noise\n")
    (folder / "locked").mkdir()
    (folder / "locked" / "file").write_text("noise\n")
    (folder / "locked").chmod(0o500)
    (folder / ".git" / "info" / "exclude").write_text("ignored.log\n")
    git(folder, "add", "--all")
    (folder / ".git" / "index.lock").touch()


def assert_clean(bench: ReproductionSetup) -> None:
    """Nothing but the test that shows the failure differs from the base commit."""
    folder = bench.workspace.root
    status = git(folder, "status", "--porcelain", "--ignored", "--untracked-files=all")
    assert status == f"?? {bench.reproduction.path}"
    assert not (folder / ".git" / "index.lock").exists()


async def repair(bench: ReproductionSetup) -> InvestigationResult:
    assert_clean(bench)
    bench.workspace.write(PEOPLE, RIGHT)
    return InvestigationResult(summary="repaired", cause=Cause(told="`rate` lacks its self"))


async def outcomes(engine: Engine, run_id: str) -> list[str]:
    past = steps(await engine.runs.history(run_id))
    return [step.outcome for step in past if step.place == "investigation"]


@pytest.mark.requirement("L11.6", "L16")
def test_the_edits_of_an_attempt_that_raised_are_not_in_the_next_ones_proposal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def dies(bench: ReproductionSetup) -> InvestigationResult:
        bench.workspace.write(PEOPLE, HACK)
        bench.workspace.write(SCRATCH, "tried this and that\n")
        raise RuntimeError("the endpoint answers 500")

    async def scene() -> None:
        shop = HealingShop(tmp_path, "missing-self")
        async with shop.healed() as engine:
            run = await shop.report(engine, "missing-self")
            proposal = await approve(run)
            assert await outcomes(engine, run.id) == ["continue", "lost", "success"]
            assert proposal["cause"]["told"] == "`rate` lacks its self"
            assert "hack" not in proposal["patch"]
            assert SCRATCH not in proposal["files"]
            assert (await run.result(PATIENCE)).terminal_status == "done_success"
            assert shop.read(PEOPLE) == RIGHT.strip()
            assert SCRATCH not in git(shop.bare, "ls-tree", "-r", "--name-only", "main")

    investigate_by(monkeypatch, dies, repair)
    play(scene())


@pytest.mark.requirement("L4.6", "L11.6", "L16")
def test_what_a_killed_server_left_in_the_copy_is_neither_reproduced_nor_proposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    began = asyncio.Event()

    async def hangs(bench: ReproductionSetup) -> InvestigationResult:
        leave_behind(bench.workspace.root)
        began.set()
        await asyncio.Event().wait()
        raise AssertionError("nothing wakes it")

    async def scene() -> None:
        url, shop = f"sqlite:///{tmp_path / 'work.db'}", HealingShop(tmp_path, "missing-self")
        async with shop.healed(url) as engine:
            run = await shop.report(engine, "missing-self")
            await asyncio.wait_for(began.wait(), PATIENCE)
        async with shop.healed(url) as engine:
            proposal = await approve(engine.run(run.id))
            assert proposal["cause"]["told"] == "`rate` lacks its self"
            assert [path for path in proposal["files"] if not path.startswith("tests/")] == [PEOPLE]
            assert "hack" not in proposal["patch"]

    investigate_by(monkeypatch, hangs, repair)
    play(scene())


@pytest.mark.requirement("L11.6")
def test_a_repair_that_left_other_tests_red_is_not_where_the_next_attempt_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def breaks_the_shop(bench: ReproductionSetup) -> InvestigationResult:
        bench.workspace.write(PEOPLE, RIGHT)
        bench.workspace.write("tests/test_red.py", "import nothing_of_this_name\n")
        return InvestigationResult(summary="repaired", cause=Cause(told="a guess"))

    async def scene() -> None:
        shop = HealingShop(tmp_path, "missing-self")
        async with shop.healed() as engine:
            run = await shop.report(engine, "missing-self")
            proposal = await approve(run)
            assert await outcomes(engine, run.id) == ["continue", "continue", "success"]
            assert "tests/test_red.py" not in proposal["files"]

    investigate_by(monkeypatch, breaks_the_shop, repair)
    play(scene())


@pytest.mark.requirement("L11.6", "L16")
def test_a_failure_that_does_not_show_again_on_the_same_commit_is_told_and_not_proposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its test depends on something outside of the repository, which is there after the triage."""
    weather, triage = tmp_path / "weather", HealingAgents.triage

    async def triaged(healers: HealingAgents, dispatch: Dispatch) -> Result:
        result = await triage(healers, dispatch)
        weather.touch()
        return result

    async def scene() -> None:
        shop = HealingShop(tmp_path)
        shop.push(
            "tests/test_weather.py",
            "import os\nimport unittest\n\n\nclass Weather(unittest.TestCase):\n"
            f"    def test_it(self):\n        self.assertTrue(os.path.exists({str(weather)!r}))\n",
        )
        async with shop.healed() as engine:
            run = await engine.start(
                "auto-bug-workflow",
                title="It rains",
                context={"test": "tests.test_weather.Weather.test_it"},
            )
            escalated = await question(run, "escalation")
            base = git(shop.bare, "rev-parse", "main")
            assert "the test tests.test_weather.Weather.test_it failed at triage" in escalated.text
            assert f"does not fail now, on the same commit {base[:12]}" in escalated.text
            assert "proposal" not in (await run.state()).context

    monkeypatch.setattr(HealingAgents, "triage", triaged)
    play(scene())


@pytest.mark.requirement("L11.6", "L16")
def test_a_failure_that_somebody_else_mended_is_proposed_as_its_test_alone_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    triage = HealingAgents.triage

    async def scene() -> None:
        shop = HealingShop(tmp_path, "missing-self")

        async def triaged(healers: HealingAgents, dispatch: Dispatch) -> Result:
            result = await triage(healers, dispatch)
            shop.push(PEOPLE, RIGHT)
            return result

        monkeypatch.setattr(HealingAgents, "triage", triaged)
        async with shop.healed() as engine:
            run = await shop.report(engine, "missing-self")
            await question(run, "approval")
            proposal = (await run.state()).context["proposal"]
            base = git(shop.bare, "rev-parse", "main")
            assert proposal["base"] == base
            assert [path.rpartition("_")[0] for path in proposal["files"]] == [
                "tests/test_people_fee"
            ]
            told = proposal["cause"]["told"]
            assert told.startswith(
                f"GET /people/fee does not fail on main any more, at {base[:12]}"
            )
            assert "this attempt changed no code" in told

    play(scene())


class Script:
    """A model that gives these replies, one after the other."""

    def __init__(self, *replies: ModelReply | Callable[[ModelRequest], ModelReply]) -> None:
        self.replies = list(replies)

    def __call__(self, asked: ModelRequest) -> ModelReply:
        reply = self.replies.pop(0)
        return reply if isinstance(reply, ModelReply) else reply(asked)


def endpoint_down() -> list[ModelReply]:
    """One request that fails, and its retries."""
    return [http_error(500, "the endpoint is down", retry_after_ms="1")] * 3


@pytest.mark.requirement("L11.6", "L16", "L2.1")
def test_a_model_whose_endpoint_dies_in_the_middle_leaves_nothing_in_the_proposal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The scratch file and the hack of the lost attempt are gone; what the attempt before it had
    reported as unfinished is still there."""

    def looks_around(asked: ModelRequest) -> ModelReply:
        assert SCRATCH not in asked.results[-2]
        assert "# half of it" in asked.results[-1]
        assert "hack" not in asked.results[-1]
        return call("write_file", path="shop/extra.py", text="EXTRA = 1\n")

    script = Script(
        call("write_file", path=PEOPLE, text=f"{RIGHT}# half of it\n"),
        call("answer", outcome="continue", text="Half of it is done."),
        call("write_file", path=PEOPLE, text=HACK),
        call("write_file", path=SCRATCH, text="tried this and that\n"),
        *endpoint_down(),
        call("list_files"),
        call("read_file", path=PEOPLE),
        looks_around,
        call("answer", outcome="success", text="`rate` lacks its self."),
    )

    async def scene() -> None:
        shop = HealingShop(tmp_path, "missing-self")
        async with Stub(script) as stub:
            monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
            async with shop.healed(model=MODEL) as engine:
                run = await shop.report(engine, "missing-self")
                await question(run, "approval")
                proposal = (await run.state()).context["proposal"]
                assert (await outcomes(engine, run.id))[::3] == ["continue", "success"]
                tests = [path for path in proposal["files"] if path.startswith("tests/")]
                assert set(proposal["files"]) == {PEOPLE, "shop/extra.py", *tests}
                assert len(tests) == 1
                assert "+# half of it" in proposal["patch"]
                assert "hack" not in proposal["patch"]
                assert proposal["cause"]["told"] == "`rate` lacks its self."
                assert "draft" not in (await run.state()).context

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    play(scene())


@pytest.mark.requirement("R2.1", "L11.6")
def test_a_revision_builds_on_the_recorded_proposal_and_not_on_what_lies_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def revises(asked: ModelRequest) -> ModelReply:
        assert "+        return hours * self.rate" in asked.prompt
        assert "say it in a comment" in asked.prompt
        assert SCRATCH not in asked.results[-1]
        return call("write_file", path=PEOPLE, text=f"{RIGHT}# as the person wants it\n")

    script = Script(
        call("write_file", path=PEOPLE, text=RIGHT),
        call("answer", outcome="success", text="`rate` lacks its self."),
        call("list_files"),
        revises,
        call("answer", outcome="success", text="The same, with a comment."),
    )

    async def scene() -> None:
        shop = HealingShop(tmp_path, "missing-self")
        async with Stub(script) as stub:
            monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
            async with shop.healed(model=MODEL) as engine:
                run = await shop.report(engine, "missing-self")
                asked = await question(run, "approval")
                state = await run.state()
                first = state.context["proposal"]
                leave_behind(await shop.service.working_copies.open(state.bead_id))
                await run.answer(asked.id, "say it in a comment", by=ANA, decision="revise")
                second = await approve(run)
                assert set(second["files"]) == set(first["files"])
                assert "+# as the person wants it" in second["patch"]
                assert "+        return hours * self.rate" in second["patch"]
                assert second["cause"]["told"] == "The same, with a comment."
                assert (await run.result(PATIENCE)).terminal_status == "done_success"

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    play(scene())


@pytest.mark.requirement("L11.6")
def test_an_unfinished_change_is_carried_over_a_question_to_a_person_by_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def unchanged(asked: ModelRequest) -> ModelReply:
        assert "# which way?" in asked.results[-1]
        return call("answer", outcome="success", text="`rate` lacks its self.")

    script = Script(
        call("write_file", path=PEOPLE, text=f"{RIGHT}# which way?\n"),
        call("answer", outcome="ask", question="Which way?"),
        call("read_file", path=PEOPLE),
        unchanged,
    )

    async def scene() -> None:
        shop = HealingShop(tmp_path, "missing-self")
        async with Stub(script) as stub:
            monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
            async with shop.healed(model=MODEL) as engine:
                run = await shop.report(engine, "missing-self")
                asked = await question(run, "clarification_request")
                bead = (await run.state()).bead_id
                shop.service.working_copies.remove(bead)
                shop.push("README.md", "The branch moves on; the attempt's base does not.\n")
                await run.answer(asked.id, "this way", by=ANA)
                await question(run, "approval")
                proposal = (await run.state()).context["proposal"]
                assert "+# which way?" in proposal["patch"]
                assert proposal["base"] == git(shop.bare, "rev-parse", "main^")
                outcome = [s.outcome for s in steps(await engine.runs.history(run.id))]
                assert outcome[1:] == [Outcome.CONTINUE, Outcome.ASK, Outcome.SUCCESS]

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    play(scene())


@pytest.mark.requirement("L11.6")
def test_an_unfinished_change_that_is_too_large_for_the_record_is_dropped_and_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def begins_anew(asked: ModelRequest) -> ModelReply:
        assert "Its unfinished change is not kept" in asked.prompt
        assert "# half of it" not in asked.results[-1]
        return call("write_file", path=PEOPLE, text=RIGHT)

    script = Script(
        call("write_file", path=PEOPLE, text=f"{RIGHT}# half of it\n"),
        call("answer", outcome="continue", text="Half of it is done."),
        call("read_file", path=PEOPLE),
        begins_anew,
        call("answer", outcome="success", text="`rate` lacks its self."),
    )

    async def scene() -> None:
        shop = HealingShop(tmp_path, "missing-self")
        async with Stub(script) as stub:
            monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
            async with shop.healed(model=MODEL) as engine:
                run = await shop.report(engine, "missing-self")
                proposal = await approve(run)
                assert "half of it" not in proposal["patch"]

    monkeypatch.setattr(agents, "DRAFT_BYTES_MAX", 100)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    play(scene())


@pytest.mark.requirement("L11.6", "L16")
def test_a_named_test_that_somebody_else_made_green_leaves_nothing_to_propose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    triage = HealingAgents.triage
    test = "import unittest\n\n\nclass Sky(unittest.TestCase):\n    def test_it(self):\n"

    async def scene() -> None:
        shop = HealingShop(tmp_path)
        shop.push("tests/test_sky.py", f"{test}        self.fail('it rains')\n")

        async def triaged(healers: HealingAgents, dispatch: Dispatch) -> Result:
            result = await triage(healers, dispatch)
            shop.push("tests/test_sky.py", f"{test}        pass\n")
            return result

        monkeypatch.setattr(HealingAgents, "triage", triaged)
        async with shop.healed() as engine:
            context = {"test": "tests.test_sky.Sky.test_it"}
            run = await engine.start("auto-bug-workflow", title="It rains", context=context)
            escalated = await question(run, "escalation")
            assert "does not fail on main any more" in escalated.text
            assert "this attempt changed no code, and there is nothing to propose" in escalated.text

    play(scene())


def test_a_fresh_copy_is_at_the_named_commit_if_that_is_on_the_branch_and_else_at_its_head(
    tmp_path: Path,
):
    async def scene() -> None:
        shop = HealingShop(tmp_path, "missing-self")
        copies, first = shop.service.working_copies, git(shop.bare, "rev-parse", "main")
        shop.push("README.md", "The branch moves on.\n")
        head = git(shop.bare, "rev-parse", "main")
        for commit, begun in ((first, first), ("0" * 40, head), ("--all", head), ("", head)):
            folder = await copies.open("bead", fresh=True, commit=commit)
            assert (copies.base_commit("bead"), git(folder, "rev-parse", "HEAD")) == (begun, begun)
            leave_behind(folder)

    play(scene())


def test_a_patch_that_does_not_fit_the_copy_changes_nothing_in_it(tmp_path: Path):
    async def scene() -> None:
        shop = HealingShop(tmp_path, "missing-self")
        copies = shop.service.working_copies
        folder = await copies.open("bead")
        assert await copies.diff("bead", [PEOPLE, "gone.py"]) == ""
        (folder / PEOPLE).write_text(RIGHT)
        (folder / "new.py").write_text("NEW = 1\n")
        patch = await copies.diff("bead", [PEOPLE, "new.py"])
        assert not await copies.apply_patch("bead", patch), "it is applied already"
        folder = await copies.open("bead", fresh=True)
        assert await copies.apply_patch("bead", patch)
        assert (folder / PEOPLE).read_text() == RIGHT
        assert (folder / "new.py").read_text() == "NEW = 1\n"
        assert await copies.diff("bead", [PEOPLE, "new.py"]) == patch

    play(scene())
