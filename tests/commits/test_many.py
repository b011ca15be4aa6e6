"""Many beads, several workers, one repository, through the real engine: commits never overlap,
every one is its author's and went through the hooks, and none is lost or made twice (L12)."""

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from tests.commits.crew import ANA, FIX, SHARED, crew
from tests.commits.houses import House, git
from tests.kernel.driving import chain, node
from tests.patience import PATIENCE

import handrail.engine.opening as opening
from handrail.commits import commit_agent
from handrail.kernel import lock as locks
from handrail.kernel.result import Outcome, Result

pytest_plugins = ["tests.fixtures_postgres"]
HERE = Path(__file__).parent
LONG = bool(os.environ.get("HANDRAIL_LONG"))
decode = msgspec.json.Decoder(tuple[locks.LockEvent, ...]).decode


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "house", {SHARED: "last: nobody\n"})


async def lock_events(url: str) -> list[locks.LockEvent]:
    async with opening.open(url, visit=True) as engine:
        return [event for entry in engine.store.journal("lock:app") for event in decode(entry.body)]


def check_lock(events: list[locks.LockEvent]) -> None:
    """No grant before the last holder is gone; fences rise."""
    lock = locks.Lock(repository="app")
    for event in events:
        lock = locks.evolve(lock, event)
    fences = [event.fence for event in events if isinstance(event, locks.LockGranted)]
    assert fences == sorted(set(fences))
    assert lock.holder is None


def check_history(house: House, count: int) -> None:
    """A line without a fork, one commit a bead, each through the hook, on its own parent."""
    commits = house.log("%H")
    line = [f"{commit} {parent}" for parent, commit in pairwise(commits)]
    assert house.log("%H %P")[1:] == line
    titles = house.log("%s")
    assert sorted(titles[1:]) == sorted(f"Bug {n}" for n in range(count))
    assert all(name.startswith("specialist-") for name in house.log("%an")[1:])
    assert all(name.startswith("manager-") for name in house.log("%cn")[1:])
    assert set(commits[:-1]) <= set(house.traced())
    for n, told in enumerate(house.log("%(trailers:key=Approved-by,valueonly,separator=%x2C)")[1:]):
        assert told == "ana", (n, told)
    names = git(house.bare, "ls-tree", "--name-only", "main").splitlines()
    assert set(names) == {SHARED, *(f"bead-{n}.txt" for n in range(count))}
    git(house.bare, "fsck", "--strict")


@pytest.mark.requirement("L12.1", "L12.2", "L12.3", "L12.4", "L12.6")
@pytest.mark.parametrize("count", [50 if LONG else 8])
def test_beads_of_five_workers_are_committed_one_at_a_time(
    count: int, house: House, tmp_path: Path
):
    url = f"sqlite:///{tmp_path / 'work.db'}"
    assert asyncio.run(crew(url, tmp_path, count, house.bare)) == {"done_success": count}
    check_history(house, count)
    check_lock(asyncio.run(lock_events(url)))


def child(url: str, folder: Path, count: int, bare: Path) -> subprocess.Popen[str]:
    words = [sys.executable, str(HERE / "crew.py"), url, str(folder), str(count), str(bare)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.heavy
@pytest.mark.requirement("L12.5", "L12.2", "L16")
def test_workers_that_are_killed_at_any_moment_lose_and_double_nothing(
    house: House, tmp_path: Path
):
    url, count = f"sqlite:///{tmp_path / 'work.db'}", 30 if LONG else 8
    chance = random.Random(1)
    for _ in range(12 if LONG else 3):
        one = child(url, tmp_path, count, house.bare)
        time.sleep(2 + 4 * chance.random())  # it is killed wherever it is
        one.kill()
        one.communicate()
    told, _ = child(url, tmp_path, count, house.bare).communicate(timeout=600)
    assert json.loads(told) == {"done_success": count}
    check_history(house, count)
    check_lock(asyncio.run(lock_events(url)))


@pytest.mark.heavy
@pytest.mark.requirement("L12.1", "L12.2")
def test_two_engines_on_one_postgres_share_the_lane(
    house: House, tmp_path: Path, postgres_url: str
):
    count = 50 if LONG else 12
    both = [child(postgres_url, tmp_path, count, house.bare) for _ in range(2)]
    for one in both:
        told, _ = one.communicate(timeout=900)
        assert json.loads(told) == {"done_success": count}
    check_history(house, count)
    check_lock(asyncio.run(lock_events(postgres_url)))


@pytest.mark.requirement("L11.6", "L16")
def test_only_what_a_person_approved_is_committed(house: House, tmp_path: Path):
    """The specialist changes the proposal in the context after it was approved, in vain."""

    async def play():
        url = f"sqlite:///{tmp_path / 'work.db'}"
        async with opening.open(url) as engine:
            await engine.define(FIX, by="crew")
            good = await house.propose("b1", {"bead-0.txt": "fixed 0\n"})
            bad = await house.propose("b2", {"bead-0.txt": "evil\n"})
            brought = {"proposal": msgspec.to_builtins(good)}
            await engine.add_agent(
                lambda d: Result(outcome=Outcome.SUCCESS, text="so", data=brought),
                *("backend-engineer",),
                name="specialist-0",
            )
            commit = commit_agent(house.lane, "manager-0")

            async def swapped(dispatch):
                other = {"proposal": msgspec.to_builtins(bad)}
                await engine.patch_bead(dispatch.bead.id, other, ANA)
                return await commit(dispatch)

            await engine.add_agent(swapped, "engineering-manager", name="manager-0")
            run = await engine.start(FIX["id"], title="Bug 0", context={"n": 0})
            (question,) = await run.questions(PATIENCE)
            await run.answer(question.id, by=ANA, decision="approve")
            assert (await run.result(PATIENCE)).terminal_status == "done_success"
            assert house.read("bead-0.txt") == "fixed 0"

    asyncio.run(play())


@pytest.mark.requirement("L16")
def test_without_an_approval_nothing_is_committed(house: House, tmp_path: Path):
    async def play():
        bare = chain(node("apply", kind="commit", role="engineering-manager"))
        async with opening.open(f"sqlite:///{tmp_path / 'work.db'}") as engine:
            await engine.define(bare, by="crew")
            proposal = await house.propose("b1", {"bead-0.txt": "fixed 0\n"})
            await engine.add_agent(
                commit_agent(house.lane, "m"), "engineering-manager", name="manager-0"
            )
            context = {"proposal": msgspec.to_builtins(proposal)}
            run = await engine.start("w", title="Bug 0", context=context)
            (question,) = await run.questions(PATIENCE)
            assert question.kind == "escalation"
            assert "nobody approved" in (await run.state()).context["not_applied"]["told"]
            assert house.log("%s") == ["begin"]

    asyncio.run(play())
