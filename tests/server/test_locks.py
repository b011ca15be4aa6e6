"""Commit locks over HTTP: who holds one, who waits for it, and the fence."""

import pytest
from tests.engine.engines import COMMIT, chain, node, register_worker
from tests.server.harness import ServerHarness, expect_problem, list_all

COMMITS = chain(node("commit", repository="web", **COMMIT), id="commits")
ELSEWHERE = {**chain(node("commit", **COMMIT), id="elsewhere"), "name": "elsewhere"}


@pytest.mark.requirement("L12.2", "L12.3", "L12.4")
async def test_a_lock_shows_its_holder_its_queue_and_its_fence(harness: ServerHarness):
    assert await list_all(harness.viewer, "/locks", limit=10) == []
    await harness.define(COMMITS)
    runs = [(await harness.file("commits", title=f"n{n}"))["execution_id"] for n in range(3)]
    await harness.engine.tick()
    (lock,) = await list_all(harness.viewer, "/locks", limit=10)
    assert (lock["repository"], lock["fence"]) == ("web", 1)
    held = lock["holder"]
    assert (held["execution_id"], held["node_id"], held["fence"]) == (runs[0], "commit", 1)
    assert held["granted_at"] < held["expires_at"]
    assert [one["execution_id"] for one in lock["queue"]] == runs[1:]
    agent = await register_worker(harness.engine, "engineering-manager")
    await agent.work()
    await harness.engine.tick()
    (lock,) = await list_all(harness.viewer, "/locks", limit=10)
    assert (lock["holder"]["execution_id"], lock["fence"]) == (runs[1], 2)
    for _ in runs[1:]:
        await agent.work()
        await harness.engine.tick()
    (lock,) = await list_all(harness.viewer, "/locks", limit=10)
    assert (lock["holder"], lock["queue"], lock["fence"]) == (None, [], 3)


async def test_every_repository_is_listed_also_the_one_without_a_name(harness: ServerHarness):
    for document in (COMMITS, ELSEWHERE):
        await harness.define(document)
        await harness.file(document["id"], title="x")
    await harness.engine.tick()
    found = await list_all(harness.viewer, "/locks", limit=1)
    assert len({one["repository"] for one in found}) == 2


async def test_locks_are_for_people(harness: ServerHarness):
    expect_problem(await harness.reporter.get("/locks"), 403, "forbidden")
    expect_problem(await harness.agent.get("/locks"), 403, "forbidden")
