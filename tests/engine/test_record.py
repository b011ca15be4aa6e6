"""Rows that people write are on record: who wrote them, and how they were."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.engine.engines import ANA, ROLE, chain, manual_engine, node, run_async

from handrail.engine.audit.verification import verify
from handrail.engine.engine import Engine
from handrail.kernel.stop.budgets import BudgetState
from handrail.store.notifications import AnswerLinkRow, WebhookRow
from handrail.store.rows import NoteRow, iso
from handrail.store.urls import open_maintenance_store
from handrail.testing import row_factories as a
from handrail.testing.clock import ManualClock
from handrail.views.audit import Finding

pytest_plugins = ["tests.fixtures_postgres"]
pytestmark = pytest.mark.requirement("L16")

ASKS = {**chain(node("a"), node("ok", "approval")), "name": "asks"}


async def write_rows(engine: Engine) -> None:
    """Write a row of every kind that is on record."""
    await engine.define(ASKS, by="ana")
    await engine.credentials.add(a.credential("c1", digest="d1"))
    await engine.budgets.put(BudgetState(name="b", per="day", cost_max=5), by="ana")
    idle = await engine.beads.create(title="idle", context={"k": 1}, filed_by="ola", priority=3)
    await engine.beads.patch(idle.id, {"k": 2}, ANA)
    await engine.beads.put_file(idle.id, "log.txt", b"log", by="ola")
    begun = await engine.beads.create(title="begun", workflow_id="asks", filed_by="ola", priority=2)
    now = iso(engine.clock())
    assert begun.execution_id is not None
    note = NoteRow(execution_id=begun.execution_id, at=now, actor="eve", code="late", body="{}")
    await engine.runs.add_note(note)
    await engine.approvals.add_link(
        AnswerLinkRow("l1", "dl", "q1", "shown", "ana", "ceo", "ana", now, now, None)
    )
    await engine.webhooks.add(
        WebhookRow(
            "w1", "https://x.example", "[]", "[]", "s", 0, "ana", now, 0, now, None, None, None, ""
        )
    )
    await engine.memory.remember(
        execution_id=begun.execution_id,
        bead_id=begun.id,
        title="printer jams on page two",
        text="paper tray empty and printer jams",
        resolution="fill the tray",
        by=ROLE,
    )


def findings(url: str) -> list[Finding]:
    with closing(open_maintenance_store(url, read_only=True)) as store:
        return list(verify(store).findings)


@pytest.fixture
def url(tmp_path: Path, clock: ManualClock) -> str:
    url = f"sqlite:///{tmp_path / 'work.db'}"

    async def write() -> None:
        async with manual_engine(url, clock) as engine:
            await write_rows(engine)

    run_async(write())
    return url


def alter(url: str, statement: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as db:
        db.execute("PRAGMA ignore_check_constraints = ON")
        assert db.execute(statement).rowcount > 0


def test_rows_as_they_were_written_are_unaltered(url: str, postgres_url: str, clock: ManualClock):
    assert findings(url) == []

    async def write() -> None:
        async with manual_engine(postgres_url, clock) as engine:
            await write_rows(engine)

    run_async(write())
    assert findings(postgres_url) == []


@pytest.mark.parametrize(
    ("statement", "stream"),
    [
        ("UPDATE workflow_versions SET definition = '{}'", "definition:asks"),
        ("UPDATE workflows SET definition = '{}'", "definition:asks"),
        ("UPDATE credentials SET role = 'admin'", "credential:c1"),
        (
            "UPDATE credentials SET expires_at = NULL, name = 'x'",
            "credential:c1",
        ),
        ("DELETE FROM credentials", "credential:c1"),
        ("UPDATE budgets SET cost = 500", "budget:b"),
        ("UPDATE beads SET title = 'x' WHERE title = 'idle'", "bead:"),
        ("UPDATE beads SET context = '{}' WHERE title = 'idle'", "bead:"),
        ("UPDATE beads SET priority = 9 WHERE title = 'begun'", "bead:"),
        ("DELETE FROM beads WHERE title = 'idle'", "bead:"),
        ("UPDATE bead_files SET content = CAST('LOG' AS BLOB)", "file:"),
        ("UPDATE bead_files SET sha256 = 'x'", "file:"),
        ("UPDATE notes SET body = '[]'", "notes:"),
        ("DELETE FROM notes", "notes:"),
        ("UPDATE answer_links SET name = 'eve'", "link:l1"),
        ("UPDATE webhooks SET url = 'https://eve.example'", "webhook:w1"),
        ("UPDATE memories SET resolution = 'x'", "resolution:"),
    ],
)
def test_an_altered_row_is_named(url: str, statement: str, stream: str):
    alter(url, statement)
    assert [one.stream for one in findings(url) if one.stream.startswith(stream)]


def test_a_bead_under_work_is_compared_with_its_run(url: str):
    alter(url, "UPDATE beads SET context = '[]', status = 'closed' WHERE title = 'begun'")
    assert {"beads.context", "beads.status"} <= {
        one.message.split()[2] for one in findings(url) if one.code == "row_changed"
    }


def test_a_credential_that_was_forged_or_altered_is_nobodys(url: str, clock: ManualClock):
    names = "name, agent, works_as, created_by, created_at, expires_at, revoked_at"
    alter(
        url,
        f"INSERT INTO credentials (id, kind, digest, role, {names}) "
        f"SELECT 'forged', 'token', 'd2', 'admin', {names} FROM credentials",
    )

    async def look(digest: str) -> bool:
        async with manual_engine(url, clock) as engine:
            return await engine.credentials.get(digest) is not None

    assert run_async(look("d1"))
    assert not run_async(look("d2"))
    assert "credential:forged" in {one.stream for one in findings(url)}
    alter(url, "UPDATE credentials SET role = 'admin' WHERE id = 'c1'")
    assert not run_async(look("d1"))


def test_the_trail_says_who_made_a_token_and_stored_a_definition(url: str, clock: ManualClock):
    async def trail() -> list[tuple[str, str, str]]:
        async with manual_engine(url, clock) as engine:
            assert await engine.credentials.revoke("c1", by="root")
            page = await engine.audit.trail(people=True, limit=100)
            assert all(one["type"] != "definition_stored" for _, one in await engine.feed.read())
            return [(one["type"], one["actor"], one.get("about", "")) for one in page.items]

    told = run_async(trail())
    assert ("definition_stored", "ana", "asks, version 1") in told
    assert ("budget_set", "ana", "") in told
    assert ("token_revoked", "root") in {one[:2] for one in told}
    assert "token_created" in {one[0] for one in told}
