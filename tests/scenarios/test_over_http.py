"""What went wrong in public projects, where it went wrong: between a server and its callers."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine.engines import chain, node
from tests.scenarios.server_scenarios import PAYS, Play, question
from tests.server.harness import (
    ASKS,
    CEO,
    OPERATOR,
    PLAIN,
    WORKER,
    ServerHarness,
    expect_json,
    expect_problem,
)
from tests.server.http_agents import last_seq, register_agent, register_hub_agents

DEADLINE = chain(node("fix"), node("look", "approval", deadline=60), id="deadline")


async def answer(harness: ServerHarness, approval: dict[str, Any], **body: Any) -> Any:
    return await harness.ceo.post(f"/approvals/{approval['id']}/answer", json=body)


@pytest.mark.requirement("H3.1", "H3.4")
def test_two_agents_handed_over_to_each_other_for_ever(at: Callable[[Play], None]) -> None:
    async def scenario(harness: ServerHarness) -> None:
        agents = await register_hub_agents(harness)
        bead = await harness.file("hub")
        end = {}
        for n in range(6):
            place, other = [("orchestrator", "memory"), ("memory", "orchestrator")][n % 2]
            end = await agents[place].work(None, text=f"hm\nHANDOFF: {other}: your turn")
        assert end["execution"]["terminal_status"] == "aborted_stuck"
        assert end["execution"]["stop"]["rule"] == "repeated_pattern"
        assert len(end["execution"]["stop"]["pattern"]) == 2
        assert (await agents["orchestrator"].claims()).status_code == 204
        assert expect_json(await harness.viewer.get(f"/beads/{bead['id']}"))["status"] == "error"

    at(scenario)


def as_killed(harness: ServerHarness, folder: Path) -> ServerHarness:
    """Another server on what the disk would have if this one were killed now."""
    folder.mkdir()
    here = Path(harness.url.removeprefix("sqlite:///"))
    for file in (here, here.with_name(f"{here.name}-wal")):
        shutil.copy(file, folder / file.name)
    return ServerHarness(f"sqlite:///{folder / here.name}", harness.clock)


def test_a_crash_before_the_first_checkpoint_dropped_an_accepted_run(
    at: Callable[[Play], None], tmp_path: Path
) -> None:
    async def scenario(harness: ServerHarness) -> None:
        await harness.define(PLAIN)
        run = (await harness.file("plain"))["execution_id"]
        async with as_killed(harness, tmp_path / "after").opened() as after:
            agent = await register_agent(after, "coder-7", WORKER)
            assert (await agent.claim())["execution_id"] == run

    at(scenario)


def test_pending_approvals_were_gone_after_a_restart(
    at: Callable[[Play], None], tmp_path: Path
) -> None:
    async def scenario(harness: ServerHarness) -> None:
        asked = await harness.asked()
        async with as_killed(harness, tmp_path / "after").opened() as after:
            assert (await question(after))["id"] == asked["id"]
            answered = expect_json(await answer(after, asked, text="OK"))
            assert answered["execution"]["terminal_status"] == "done_success"

    at(scenario)


def test_an_old_answer_approved_the_newest_result(at: Callable[[Play], None]) -> None:
    async def scenario(harness: ServerHarness) -> None:
        old = await harness.asked()
        expect_json(await answer(harness, old, text="make it shorter"))
        await harness.quiet()
        new = await question(harness)
        assert new["id"] != old["id"]
        replayed = await answer(harness, old, text="OK", digest=old["digest"])
        assert replayed.status_code == 409, replayed.text
        assert (await question(harness))["id"] == new["id"]
        assert (CEO, "replayed_answer") in await harness.notes(new["execution_id"])

    at(scenario)


def test_an_approval_of_1_paid_82000(at: Callable[[Play], None]) -> None:
    async def scenario(harness: ServerHarness) -> None:
        await harness.define(PAYS)
        agent = await register_agent(harness, "coder-7", WORKER)
        bead = await harness.file("pays", context={"amount": 1})
        await agent.work()
        shown = await question(harness)
        body = {"context": {"amount": 82_000}}
        expect_json(await harness.operator.patch(f"/beads/{bead['id']}", json=body))
        late = await answer(harness, shown, decision="approve", digest=shown["digest"])
        assert late.status_code == 409, late.text
        assert (await agent.claims()).status_code == 204
        again = await question(harness)
        expect_json(await answer(harness, again, decision="approve", digest=again["digest"]))
        paying = await agent.claim()
        assert (paying["node"], paying["bead"]["context"]["amount"]) == ("pay", 82_000)

    at(scenario)


def test_an_expired_approval_could_be_approved_until_a_sweeper_ran(
    at: Callable[[Play], None],
) -> None:
    async def scenario(harness: ServerHarness) -> None:
        await harness.define(DEADLINE)
        agent = await register_agent(harness, "coder-7", WORKER)
        await harness.file("deadline")
        await agent.work()
        asked = await question(harness)
        harness.clock.advance(seconds=60)
        late = await answer(harness, asked, decision="approve")
        assert late.status_code == 409, late.text
        view = expect_json(await harness.viewer.get(f"/executions/{asked['execution_id']}"))
        assert view["terminal_status"] == "aborted_stuck"
        assert view["stop"]["rule"] == "human_deadline"

    at(scenario)


def test_the_approvers_name_came_from_the_client(at: Callable[[Play], None]) -> None:
    async def scenario(harness: ServerHarness) -> None:
        asked = await harness.asked()
        run, before = asked["execution_id"], await last_seq(harness, asked["execution_id"])
        path = f"/approvals/{asked['id']}/answer"
        forged = await harness.operator.post(path, json={"text": "OK", "by": CEO})
        expect_problem(forged, 403, "forged_author")
        assert await last_seq(harness, run) == before
        assert (OPERATOR, "forged_author") in await harness.notes(run)
        answered = expect_json(await answer(harness, asked, text="OK", by=CEO))
        assert answered["approval"]["by"] == CEO

    at(scenario)


def test_work_claimed_by_a_dead_agent_stayed_claimed(at: Callable[[Play], None]) -> None:
    async def scenario(harness: ServerHarness) -> None:
        await harness.define(PLAIN)
        dead = await register_agent(harness, "dead", WORKER)
        await harness.file("plain")
        first = await dead.claim()
        alive = await register_agent(harness, "alive", WORKER)
        harness.clock.advance(seconds=59)
        await alive.beat()
        await harness.engine.tick()
        assert (await alive.claims()).status_code == 204
        harness.clock.advance(seconds=2)
        await harness.engine.tick()
        second = await alive.claim()
        assert second["fence"] > first["fence"]
        expect_problem(await dead.report(first), 409, "late")
        assert expect_json(await alive.report(second))["accepted"] is True

    at(scenario)


def test_live_work_was_taken_away_while_its_agent_was_heartbeating(
    at: Callable[[Play], None],
) -> None:
    async def scenario(harness: ServerHarness) -> None:
        await harness.define(PLAIN)
        busy = await register_agent(harness, "busy", WORKER)
        await harness.file("plain")
        dispatch = await busy.claim()
        thief = await register_agent(harness, "thief", WORKER)
        for _ in range(10):
            harness.clock.advance(seconds=50)
            assert (await busy.beat(holding=[dispatch["id"]]))["ended"] == []
            await harness.engine.tick()
            assert (await thief.claims()).status_code == 204
        assert expect_json(await busy.report(dispatch))["accepted"] is True

    at(scenario)


def test_the_history_given_to_the_planner_was_cut(at: Callable[[Play], None]) -> None:
    async def scenario(harness: ServerHarness) -> None:
        agents = await register_hub_agents(harness)
        await harness.file("hub")
        said = "a very long finding " * 1_000
        text = f"{said}\nHANDOFF: memory: look"
        await agents["orchestrator"].work(None, text=text)
        dispatch = await agents["memory"].claim()
        assert [step["text"] for step in dispatch["history"]] == [text]

    at(scenario)


def test_plain_words_became_revisions_and_nonsense_an_approval(at: Callable[[Play], None]) -> None:
    async def scenario(harness: ServerHarness) -> None:
        await harness.define(ASKS)
        asked = await harness.asked()
        before = await last_seq(harness, asked["execution_id"])
        for text in ("", "hm", "?", "no", "wait"):
            refused = expect_problem(
                await answer(harness, asked, text=text), 422, "ambiguous_answer"
            )
            assert {one["message"] for one in refused["errors"]} == {"approve", "revise", "reject"}
        assert await last_seq(harness, asked["execution_id"]) == before
        answered = expect_json(await answer(harness, asked, text="Looks good to me."))
        assert answered["execution"]["terminal_status"] == "done_success"

    at(scenario)
