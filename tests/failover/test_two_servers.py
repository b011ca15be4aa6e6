"""Two servers on one PostgreSQL: work, streams and answers do not depend on which of them is asked,
and one that dies, or the database's primary, takes nothing with it that was acknowledged."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.failover.cluster import SECONDS, Cluster
from tests.failover.replicated_database import Pair

from handrail.client.clients import AsyncClient

pytest_plugins = ["tests.fixtures_postgres"]

BEADS = 40


async def results(client: AsyncClient, run: str) -> dict[int, str]:
    """The fences whose results the run has taken, with their places."""
    events = [event.data async for event in client.runs.follow(run)]
    return {event["fence"]: event["place"] for event in events if event["type"] == "reported"}


async def through(cluster: Cluster, fault: Callable[[], object] | None = None) -> None:
    """A load; in the middle of it something happens; then everything that was acknowledged is there
    and done, once."""
    async with cluster.open() as client, asyncio.timeout(3 * SECONDS):
        await cluster.file(client, BEADS)
        if fault is not None:
            filing = asyncio.create_task(cluster.file(client, BEADS))
            await asyncio.to_thread(fault)
            await filing
        runs = list(cluster.filed.values())
        ended = await asyncio.gather(*(client.result(run, timeout=SECONDS) for run in runs))
        assert {run.terminal_status for run in ended} == {"done_success"}
        taken = {run: await results(client, run) for run in runs}
        assert {tuple(places.values()) for places in taken.values()} == {("write", "check")}
        assert [done for done in cluster.reported if done[1] not in taken[done[0]]] == []
        assert await cluster.followed() == cluster.seen
    assert len(runs) == BEADS * (1 if fault is None else 2)
    assert set(cluster.begun.values()) == {1}
    assert cluster.reported, "somebody was told that a result was taken"
    cluster.check()


@pytest.mark.heavy
def test_workers_and_streams_are_spread_over_both(postgres_url: str, tmp_path: Path):
    with closing(Cluster(postgres_url, tmp_path)) as cluster:
        asyncio.run(through(cluster))


@pytest.mark.heavy
@pytest.mark.requirement("L4.6", "K1")
def test_a_server_that_is_killed_takes_nothing_with_it(postgres_url: str, tmp_path: Path):
    with closing(Cluster(postgres_url, tmp_path)) as cluster:
        asyncio.run(through(cluster, cluster.servers[0].kill))


@pytest.mark.heavy
@pytest.mark.requirement("L4.6", "K1")
def test_a_primary_that_dies_takes_nothing_with_it(pair: Pair, tmp_path: Path):
    def failover() -> None:
        pair.primary.kill()
        pair.take_over()

    with closing(Cluster(pair.url, tmp_path)) as cluster:
        asyncio.run(through(cluster, failover))
