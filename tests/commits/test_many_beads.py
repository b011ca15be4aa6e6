"""Many beads, several workers, one repository, through the real engine: commits never overlap,
every one is its author's and went through the hooks, and none is lost or made twice (L12)."""

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from tests.commits.bead_workers import ANA, FIX, SHARED, crew
from tests.commits.sample_repository import SampleRepository, git
from tests.commits.server_processes import Servers, open_crewed_servers, wait_for_processes
from tests.kernel.driven_run import chain, node
from tests.patience import PATIENCE

import handrail.engine.opening as opening
from handrail.api.operation import PersonRole
from handrail.commits import commit_agent
from handrail.kernel import lock as locks
from handrail.kernel.result import Outcome, Result
from handrail.kernel.run.events import Claimed, Reported
from handrail.kernel.run.state import Person

pytest_plugins = ["tests.fixtures_postgres"]
HERE = Path(__file__).parent
LONG = bool(os.environ.get("HANDRAIL_LONG"))
decode = msgspec.json.Decoder(tuple[locks.LockEvent, ...]).decode


@pytest.fixture
def sample(tmp_path: Path) -> SampleRepository:
    sample = SampleRepository(tmp_path / "sample", {SHARED: "last: nobody\n"})
    sample.put_gates()
    return sample


async def recorded(url: str) -> tuple[list[locks.LockEvent], dict[str, set[str]]]:
    """The lock's events; for each run the agents that brought a fix, or took it to be applied."""
    async with opening.open(url, visit=True) as engine:
        told = [
            event for row in engine.store.journal.read("lock:app") for event in decode(row.body)
        ]
        hands: dict[str, set[str]] = {}
        for run in (await engine.run_queries.list(limit=100)).items:
            events = await engine.runs.history(run.id)
            fixed = {e.agent for e in events if isinstance(e, Reported) and e.step_id == "fix"}
            held = {e.agent for e in events if isinstance(e, Claimed) and e.step_id == "apply"}
            hands[run.id] = fixed | {agent.partition("@")[0] for agent in held}
        return told, hands


def check_record(sample: SampleRepository, url: str) -> None:
    """Every commit came with the fence of a grant to its own run. Of one file, whichever it is, no
    commit's grant began before that of the one before it was gone; nor of the whole repository.
    Authors and committers are those that the record names."""
    events, hands = asyncio.run(recorded(url))
    lock = locks.CommitLock(repository="app")
    held: dict[int, tuple[str, datetime, datetime]] = {}
    for event in events:
        before, lock = lock.holder, locks.evolve(lock, event)
        if before is not None and lock.holder is None:
            held[before.fence] = before.request.run, before.granted_at, event.at
    assert lock.holder is None
    pushed = sample.fences()
    assert set(pushed) == set(sample.log()[1:])
    for told in sample.log("%H|%an|%cn|%(trailers:key=Run,valueonly,separator=%x2C)")[1:]:
        commit, author, committer, run = told.split("|")
        assert held[pushed[commit]][0] == run
        assert {author, committer} <= hands[run]
    names = git(sample.bare, "ls-tree", "-r", "--name-only", "main").splitlines()
    for paths in ([], *([name] for name in names)):
        spans = [held[pushed[one]][1:] for one in sample.log("%H", *paths) if one in pushed]
        assert all(gone <= granted for (_, gone), (granted, _) in pairwise(spans))


def check_history(sample: SampleRepository, count: int) -> None:
    """A line without a fork, one commit a bead, each through the hook, on its own parent."""
    commits = sample.log("%H")
    line = [f"{commit} {parent}" for parent, commit in pairwise(commits)]
    assert sample.log("%H %P")[1:] == line
    titles = sample.log("%s")
    assert sorted(titles[1:]) == sorted(f"Bug {n}" for n in range(count))
    assert all(name.startswith("specialist-") for name in sample.log("%an")[1:])
    assert all(name.startswith("manager-") for name in sample.log("%cn")[1:])
    assert set(commits[:-1]) <= set(sample.traced())
    for n, told in enumerate(
        sample.log("%(trailers:key=Approved-by,valueonly,separator=%x2C)")[1:]
    ):
        assert told == "ana", (n, told)
    names = git(sample.bare, "ls-tree", "--name-only", "main").splitlines()
    assert set(names) == {SHARED, *(f"bead-{n}.txt" for n in range(count))}
    git(sample.bare, "fsck", "--strict")


@pytest.mark.requirement("L12.1", "L12.2", "L12.3", "L12.4", "L12.6")
@pytest.mark.parametrize("count", [50 if LONG else 8])
def test_beads_of_five_workers_are_committed_one_at_a_time(
    count: int, sample: SampleRepository, tmp_path: Path
):
    url = f"sqlite:///{tmp_path / 'work.db'}"
    assert asyncio.run(crew(url, tmp_path, sample.bare, count)) == {"done_success": count}
    check_history(sample, count)
    check_record(sample, url)


def child(url: str, folder: Path, count: int, bare: Path) -> subprocess.Popen[str]:
    words = [
        sys.executable,
        str(HERE / "bead_workers.py"),
        "work",
        url,
        str(folder),
        str(bare),
        str(count),
    ]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.heavy
@pytest.mark.requirement("L12.5", "L12.2", "L16")
def test_workers_that_are_killed_at_any_moment_lose_and_double_nothing(
    sample: SampleRepository, tmp_path: Path
):
    url, count = f"sqlite:///{tmp_path / 'work.db'}", 30 if LONG else 8
    chance = random.Random(1)
    for _ in range(12 if LONG else 3):
        one = child(url, tmp_path, count, sample.bare)
        time.sleep(2 + 4 * chance.random())  # it is killed wherever it is
        one.kill()
        one.communicate()
    told, _ = child(url, tmp_path, count, sample.bare).communicate(timeout=600)
    assert json.loads(told) == {"done_success": count}
    check_history(sample, count)
    check_record(sample, url)


async def killed_at(sample: SampleRepository, servers: Servers, moment: str, beads: int) -> None:
    """Whoever holds the lock is killed there. What it left running goes on when the next holder has
    come, and is too late."""
    gate = sample.gates[moment]
    await servers.file(beads)
    holder = await servers.holder(gate)
    fence = sample.fence()
    await servers.kill(holder)
    await wait_for_processes(lambda: sample.fence() > fence)
    await asyncio.to_thread(gate.open)


@pytest.mark.heavy
@pytest.mark.requirement("L12.1", "L12.2", "L12.5", "L12.6", "L16")
def test_two_servers_on_one_postgres_share_the_lane_whoever_is_killed(
    sample: SampleRepository, tmp_path: Path, postgres_url: str
):
    """In the middle of a commit, of a push, between push and word, and anywhere."""
    rounds, beads = (3, 5) if LONG else (1, 2)

    async def play() -> list[str]:
        async with open_crewed_servers(postgres_url, tmp_path, sample) as servers:
            for _ in range(rounds):
                for moment in sample.gates:
                    await killed_at(sample, servers, moment, beads)
            await servers.file(beads)
            await servers.kill(servers.alive[0])
            ended = await servers.ended()
            assert servers.kills == 3 * rounds + 1
            await asyncio.to_thread(servers.command, "verify")
            await asyncio.to_thread(servers.command, "doctor")
            return ended

    ended = asyncio.run(play())
    count = 50 if LONG else 8
    assert ended == ["done_success"] * count
    check_history(sample, count)
    check_record(sample, postgres_url)


@pytest.mark.requirement("L11.6", "L16")
def test_only_what_a_person_approved_is_committed(sample: SampleRepository, tmp_path: Path):
    """The specialist changes the proposal in the context after it was approved, in vain."""

    async def play():
        url = f"sqlite:///{tmp_path / 'work.db'}"
        async with opening.open(url) as engine:
            await engine.define(FIX, by="crew")
            good = await sample.propose("b1", {"bead-0.txt": "fixed 0\n"})
            bad = await sample.propose("b2", {"bead-0.txt": "evil\n"})
            brought = {"proposal": msgspec.to_builtins(good)}
            await engine.add_agent(
                lambda d: Result(outcome=Outcome.SUCCESS, text="so", data=brought),
                *("backend-engineer",),
                name="specialist-0",
            )
            commit = commit_agent(sample.lane, "manager-0")

            async def swapped(dispatch):
                other = {"proposal": msgspec.to_builtins(bad)}
                await engine.beads.patch(dispatch.bead.id, other, ANA)
                return await commit(dispatch)

            await engine.add_agent(swapped, "engineering-manager", name="manager-0")
            run = await engine.start(FIX["id"], title="Bug 0", context={"n": 0})
            (question,) = await run.questions(PATIENCE)
            await run.answer(question.id, by=ANA, decision="approve")
            assert (await run.result(PATIENCE)).terminal_status == "done_success"
            assert sample.read("bead-0.txt") == "fixed 0"

    asyncio.run(play())


@pytest.mark.requirement("L16")
@pytest.mark.parametrize("role", ["operator", "ceo"])
def test_without_an_approval_of_a_ceo_nothing_is_committed(
    role: PersonRole, sample: SampleRepository, tmp_path: Path
):
    """The definition names an operator as its approver: that answer counts, and is not enough."""

    async def play():
        approved = chain(
            node("look", "approval", approvers=["oprah"]),
            node("apply", kind="commit", role="engineering-manager"),
        )
        async with opening.open(f"sqlite:///{tmp_path / 'work.db'}") as engine:
            await engine.define(approved, by="crew")
            proposal = await sample.propose("b1", {"bead-0.txt": "fixed 0\n"})
            await engine.add_agent(
                commit_agent(sample.lane, "m"), "engineering-manager", name="manager-0"
            )
            context = {"proposal": msgspec.to_builtins(proposal)}
            run = await engine.start("w", title="Bug 0", context=context)
            (question,) = await run.questions(PATIENCE)
            oprah = Person(name="oprah", role=role)
            await run.answer(question.id, by=oprah, decision="approve")
            if role == "ceo":
                assert (await run.result(PATIENCE)).terminal_status == "done_success"
                return
            (question,) = await run.questions(PATIENCE)
            assert question.kind == "escalation"
            not_applied = (await run.state()).context["not_applied"]
            assert not_applied["told"].startswith("no ceo approved the patch")
            assert sample.log("%s") == ["begin"]

    asyncio.run(play())


@pytest.mark.requirement("L16")
def test_without_an_approval_nothing_is_committed(sample: SampleRepository, tmp_path: Path):
    async def play():
        bare = chain(node("apply", kind="commit", role="engineering-manager"))
        async with opening.open(f"sqlite:///{tmp_path / 'work.db'}") as engine:
            await engine.define(bare, by="crew")
            proposal = await sample.propose("b1", {"bead-0.txt": "fixed 0\n"})
            await engine.add_agent(
                commit_agent(sample.lane, "m"), "engineering-manager", name="manager-0"
            )
            context = {"proposal": msgspec.to_builtins(proposal)}
            run = await engine.start("w", title="Bug 0", context=context)
            (question,) = await run.questions(PATIENCE)
            assert question.kind == "escalation"
            assert "nobody approved" in (await run.state()).context["not_applied"]["told"]
            assert sample.log("%s") == ["begin"]

    asyncio.run(play())
