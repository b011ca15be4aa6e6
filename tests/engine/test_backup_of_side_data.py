"""What lies beside the runs is taken care of with them: files, credentials, figures."""

from contextlib import closing
from pathlib import Path
from typing import Any

from tests.engine.engines import ANA, chain, manual_engine, node, run_async

from handrail.engine.audit.doctor import check_database
from handrail.engine.audit.verification import verify
from handrail.engine.engine import Engine
from handrail.engine.maintenance import retention
from handrail.store.urls import open_maintenance_store
from handrail.testing import row_factories as a
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]


async def fill(engine: Engine) -> str:
    await engine.define(chain(node("a")))
    bead = await engine.beads.create(title="t", workflow_id="w")
    await engine.beads.put_file(bead.id, "every byte", bytes(range(256)))
    await engine.run(bead.execution_id or "").close(by=ANA, reason="enough")
    await engine.credentials.add(a.credential("c1", works_as='["coder"]'))
    await engine.stored_answers.put([a.key("http:k1")])
    await engine.statistics.by_definition()
    return bead.id


async def beside(engine: Engine, bead_id: str) -> list[Any]:
    store = engine.store
    return [
        store.beads.list_files(bead_id),
        store.beads.get_file(bead_id, "every byte"),
        store.credentials.list("token"),
        store.idempotency_keys.get("http:k1", "ola"),
        store.stats.sum_definitions(None, None),
        store.stats.sum_nodes(None, None),
    ]


def test_a_backup_brings_back_everything_that_lies_beside_the_runs(
    shared_url: str, clock: ManualClock, tmp_path: Path
):
    async def play():
        async with manual_engine(shared_url, clock) as engine:
            bead_id = await fill(engine)
            before = await beside(engine, bead_id)
            with closing(open_maintenance_store(shared_url)) as records:
                retention.backup(records, tmp_path / "b")
            await engine.credentials.revoke("c1", by="ann")
            await engine.beads.put_file(bead_id, "another", b"")
            assert await beside(engine, bead_id) != before
            with closing(open_maintenance_store(shared_url)) as records:
                retention.restore(records, tmp_path / "b", clock.now())
            assert await beside(engine, bead_id) == before

    run_async(play())


def test_what_lies_beside_the_runs_is_no_fault(shared_url: str, clock: ManualClock, tmp_path: Path):
    async def play():
        async with manual_engine(shared_url, clock) as engine:
            bead_id = await fill(engine)
            clock.advance(60)
            with closing(open_maintenance_store(shared_url)) as records:
                assert verify(records).unaltered
                assert check_database(records, clock.now()) == []
                retention.archive(records, tmp_path / "old.jsonl", by="root", now=clock.now())
                assert verify(records).unaltered
                assert check_database(records, clock.now()) == []
            (sums,) = engine.store.stats.sum_definitions(None, None)
            assert sums.runs == 1
            assert engine.store.beads.get_file(bead_id, "every byte") is not None

    run_async(play())
