"""What lies beside the runs is taken care of with them: files, credentials, figures."""

from contextlib import closing
from pathlib import Path
from typing import Any

from tests.engine.at_work import ANA, chain, go, node, opened

from handrail.engine import care
from handrail.engine.audit import verify
from handrail.engine.doctor import examine
from handrail.engine.engine import Engine
from handrail.store.urls import open_records
from handrail.testing import rows as a
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]


async def fill(engine: Engine) -> str:
    await engine.define(chain(node("a")))
    bead = await engine.file_bead(title="t", workflow_id="w")
    await engine.put_file(bead.id, "every byte", bytes(range(256)))
    await engine.run(bead.execution_id or "").close(by=ANA, reason="enough")
    await engine.add_credential(a.credential("c1", works_as='["coder"]'))
    await engine.keep_answers([a.key("http:k1")])
    await engine.figures()
    return bead.id


async def beside(engine: Engine, bead_id: str) -> list[Any]:
    store = engine.store
    return [
        store.files(bead_id),
        store.file(bead_id, "every byte"),
        store.credentials("token"),
        store.key("http:k1", "ola"),
        store.sums(None, None),
        store.node_sums(None, None),
    ]


def test_a_backup_brings_back_everything_that_lies_beside_the_runs(
    shared_url: str, clock: ManualClock, tmp_path: Path
):
    async def play():
        async with opened(shared_url, clock) as engine:
            bead_id = await fill(engine)
            before = await beside(engine, bead_id)
            with closing(open_records(shared_url)) as records:
                care.backup(records, tmp_path / "b")
            await engine.revoke_credential("c1")
            await engine.put_file(bead_id, "another", b"")
            assert await beside(engine, bead_id) != before
            with closing(open_records(shared_url)) as records:
                care.restore(records, tmp_path / "b", clock.now())
            assert await beside(engine, bead_id) == before

    go(play())


def test_what_lies_beside_the_runs_is_no_fault(shared_url: str, clock: ManualClock, tmp_path: Path):
    async def play():
        async with opened(shared_url, clock) as engine:
            bead_id = await fill(engine)
            clock.advance(60)
            with closing(open_records(shared_url)) as records:
                assert verify(records).unaltered
                assert examine(records, clock.now()) == []
                care.archive(records, tmp_path / "old.jsonl", by="root", now=clock.now())
                assert verify(records).unaltered
                assert examine(records, clock.now()) == []
            (sums,) = engine.store.sums(None, None)
            assert sums.runs == 1
            assert engine.store.file(bead_id, "every byte") is not None

    go(play())
