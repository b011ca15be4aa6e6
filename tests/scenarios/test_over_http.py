"""What went wrong in public projects, where it went wrong: between a server and its callers."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine.at_work import chain, node
from tests.scenarios.at_server import PAYS, Play, question
from tests.server.crew import crew, outsider, seq_of
from tests.server.house import ASKS, CEO, OPERATOR, PLAIN, WORKER, House, problem, told

DEADLINE = chain(node("fix"), node("look", "approval", deadline=60), id="deadline")


async def answer(house: House, approval: dict[str, Any], **body: Any) -> Any:
    return await house.ceo.post(f"/approvals/{approval['id']}/answer", json=body)


@pytest.mark.requirement("H3.1", "H3.4")
def test_two_agents_handed_over_to_each_other_for_ever(at: Callable[[Play], None]) -> None:
    async def scenario(house: House) -> None:
        agents = await crew(house)
        bead = await house.file("hub")
        end = {}
        for n in range(6):
            place, other = [("orchestrator", "memory"), ("memory", "orchestrator")][n % 2]
            end = await agents[place].work(None, text=f"hm\nHANDOFF: {other}: your turn")
        assert end["execution"]["terminal_status"] == "aborted_stuck"
        assert end["execution"]["stop"]["rule"] == "repeated_pattern"
        assert len(end["execution"]["stop"]["pattern"]) == 2
        assert (await agents["orchestrator"].claims()).status_code == 204
        assert told(await house.viewer.get(f"/beads/{bead['id']}"))["status"] == "error"

    at(scenario)


def as_killed(house: House, folder: Path) -> House:
    """Another server on what the disk would have if this one were killed now."""
    folder.mkdir()
    here = Path(house.url.removeprefix("sqlite:///"))
    for file in (here, here.with_name(f"{here.name}-wal")):
        shutil.copy(file, folder / file.name)
    return House(f"sqlite:///{folder / here.name}", house.clock)


def test_a_crash_before_the_first_checkpoint_dropped_an_accepted_run(
    at: Callable[[Play], None], tmp_path: Path
) -> None:
    async def scenario(house: House) -> None:
        await house.define(PLAIN)
        run = (await house.file("plain"))["execution_id"]
        async with as_killed(house, tmp_path / "after").opened() as after:
            agent = await outsider(after, "coder-7", WORKER)
            assert (await agent.claim())["execution_id"] == run

    at(scenario)


def test_pending_approvals_were_gone_after_a_restart(
    at: Callable[[Play], None], tmp_path: Path
) -> None:
    async def scenario(house: House) -> None:
        asked = await house.asked()
        async with as_killed(house, tmp_path / "after").opened() as after:
            assert (await question(after))["id"] == asked["id"]
            answered = told(await answer(after, asked, text="OK"))
            assert answered["execution"]["terminal_status"] == "done_success"

    at(scenario)


def test_an_old_answer_approved_the_newest_result(at: Callable[[Play], None]) -> None:
    async def scenario(house: House) -> None:
        old = await house.asked()
        told(await answer(house, old, text="make it shorter"))
        await house.quiet()
        new = await question(house)
        assert new["id"] != old["id"]
        replayed = await answer(house, old, text="OK", digest=old["digest"])
        assert replayed.status_code == 409, replayed.text
        assert (await question(house))["id"] == new["id"]
        assert (CEO, "replayed_answer") in await house.notes(new["execution_id"])

    at(scenario)


def test_an_approval_of_1_paid_82000(at: Callable[[Play], None]) -> None:
    async def scenario(house: House) -> None:
        await house.define(PAYS)
        agent = await outsider(house, "coder-7", WORKER)
        bead = await house.file("pays", context={"amount": 1})
        await agent.work()
        shown = await question(house)
        body = {"context": {"amount": 82_000}}
        told(await house.operator.patch(f"/beads/{bead['id']}", json=body))
        late = await answer(house, shown, decision="approve", digest=shown["digest"])
        assert late.status_code == 409, late.text
        assert (await agent.claims()).status_code == 204
        again = await question(house)
        told(await answer(house, again, decision="approve", digest=again["digest"]))
        paying = await agent.claim()
        assert (paying["node"], paying["bead"]["context"]["amount"]) == ("pay", 82_000)

    at(scenario)


def test_an_expired_approval_could_be_approved_until_a_sweeper_ran(
    at: Callable[[Play], None],
) -> None:
    async def scenario(house: House) -> None:
        await house.define(DEADLINE)
        agent = await outsider(house, "coder-7", WORKER)
        await house.file("deadline")
        await agent.work()
        asked = await question(house)
        house.clock.advance(seconds=60)
        late = await answer(house, asked, decision="approve")
        assert late.status_code == 409, late.text
        view = told(await house.viewer.get(f"/executions/{asked['execution_id']}"))
        assert view["terminal_status"] == "aborted_stuck"
        assert view["stop"]["rule"] == "human_deadline"

    at(scenario)


def test_the_approvers_name_came_from_the_client(at: Callable[[Play], None]) -> None:
    async def scenario(house: House) -> None:
        asked = await house.asked()
        run, before = asked["execution_id"], await seq_of(house, asked["execution_id"])
        path = f"/approvals/{asked['id']}/answer"
        forged = await house.operator.post(path, json={"text": "OK", "by": CEO})
        problem(forged, 403, "forged_author")
        assert await seq_of(house, run) == before
        assert (OPERATOR, "forged_author") in await house.notes(run)
        answered = told(await answer(house, asked, text="OK", by=CEO))
        assert answered["approval"]["by"] == CEO

    at(scenario)


def test_work_claimed_by_a_dead_agent_stayed_claimed(at: Callable[[Play], None]) -> None:
    async def scenario(house: House) -> None:
        await house.define(PLAIN)
        dead = await outsider(house, "dead", WORKER)
        await house.file("plain")
        first = await dead.claim()
        alive = await outsider(house, "alive", WORKER)
        house.clock.advance(seconds=59)
        await alive.beat()
        await house.engine.tick()
        assert (await alive.claims()).status_code == 204
        house.clock.advance(seconds=2)
        await house.engine.tick()
        second = await alive.claim()
        assert second["fence"] > first["fence"]
        problem(await dead.report(first), 409, "late")
        assert told(await alive.report(second))["accepted"] is True

    at(scenario)


def test_live_work_was_taken_away_while_its_agent_was_heartbeating(
    at: Callable[[Play], None],
) -> None:
    async def scenario(house: House) -> None:
        await house.define(PLAIN)
        busy = await outsider(house, "busy", WORKER)
        await house.file("plain")
        dispatch = await busy.claim()
        thief = await outsider(house, "thief", WORKER)
        for _ in range(10):
            house.clock.advance(seconds=50)
            assert (await busy.beat(holding=[dispatch["id"]]))["ended"] == []
            await house.engine.tick()
            assert (await thief.claims()).status_code == 204
        assert told(await busy.report(dispatch))["accepted"] is True

    at(scenario)


def test_the_history_given_to_the_planner_was_cut(at: Callable[[Play], None]) -> None:
    async def scenario(house: House) -> None:
        agents = await crew(house)
        await house.file("hub")
        said = "a very long finding " * 1_000
        text = f"{said}\nHANDOFF: memory: look"
        await agents["orchestrator"].work(None, text=text)
        dispatch = await agents["memory"].claim()
        assert [step["text"] for step in dispatch["history"]] == [text]

    at(scenario)


def test_plain_words_became_revisions_and_nonsense_an_approval(at: Callable[[Play], None]) -> None:
    async def scenario(house: House) -> None:
        await house.define(ASKS)
        asked = await house.asked()
        before = await seq_of(house, asked["execution_id"])
        for text in ("", "hm", "?", "no", "wait"):
            refused = problem(await answer(house, asked, text=text), 422, "ambiguous_answer")
            assert {one["message"] for one in refused["errors"]} == {"approve", "revise", "reject"}
        assert await seq_of(house, asked["execution_id"]) == before
        answered = told(await answer(house, asked, text="Looks good to me."))
        assert answered["execution"]["terminal_status"] == "done_success"

    at(scenario)
