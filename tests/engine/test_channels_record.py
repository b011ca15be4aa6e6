"""Whatever is done to the record of a channel behind the engine's back, `verify` finds it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.command_line import run_command
from tests.engine.engines import ROLE, manual_engine, run_async

from handrail.engine.audit.verification import verify
from handrail.engine.commit.channel_change import CHANNEL_STREAM_PREFIX
from handrail.kernel.channel import events as ev
from handrail.store.urls import open_maintenance_store
from handrail.testing.clock import ManualClock

pytestmark = pytest.mark.requirement("L16", "T12")

ROOM = "reviews"
STREAM = CHANNEL_STREAM_PREFIX + ROOM
SAID = ("please look", "looks good", "thank you")
LATER = "2020-01-01T00:00:00.000000Z"
MEMBERS = {
    "channel_id": "'another'",
    "agent_id": "agent_id || 'x'",
    "state": "CASE state WHEN 'IDLE' THEN 'QUEUED' ELSE 'IDLE' END, turn = NULL",
    "busy": "1 - busy",
    "turn": "turn + 1",
}
LOG = {
    "channel_id": "'another'",
    "seq": "seq + 1000",
    "kind": "CASE kind WHEN 'notice' THEN 'message' ELSE 'notice' END, "
    "number = CASE kind WHEN 'notice' THEN 99 END",
    "number": "number + 100",
    "message_id": "message_id || 'x'",
    "code": "code || 'x'",
    "author": "author || 'x'",
    "human": "1 - human",
    "text": "text || 'x'",
    "recipient": "coalesce(recipient, '') || 'x'",
    "at": f"'{LATER}'",
}
CHANNELS = {
    "id": "'another'",
    "seq": "seq + 1",
    "head": "zeroblob(32)",
    "next_due": f"'{LATER}'",
    "created_at": f"'{LATER}'",
    "updated_at": f"'{LATER}'",
    "closed_at": f"'{LATER}', next_due = NULL",
    "state": "replace(state, 'reviews', 'revenge')",
}
TABLES = {"channels": CHANNELS, "channel_members": MEMBERS, "channel_log": LOG}
KEYS = {"channels": "id", "channel_members": "agent_id", "channel_log": "seq"}
CELLS = [(table, column) for table, columns in TABLES.items() for column in columns]


class Talked:
    """A database in which there was a conversation."""

    def __init__(self, path: Path) -> None:
        self.path, self.url = path, f"sqlite:///{path}"

    def sql(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.path)) as db, db:
            db.execute("PRAGMA foreign_keys = OFF")
            return db.execute(statement, values).fetchall()

    def codes(self) -> set[str]:
        records = open_maintenance_store(self.url)
        try:
            found = verify(records).findings
        finally:
            records.close()
        assert all(ROOM in one.message or one.code != "row_changed" for one in found)
        return {one.code for one in found}


async def _talk(url: str, clock: ManualClock) -> None:
    async with manual_engine(url, clock) as engine:
        for agent in ("ada", "bob"):
            await engine.agents.register(agent, [ROLE])
        await engine.channels.open(ROOM, by="olga")
        for agent in ("ada", "bob"):
            await engine.channels.join(ROOM, agent, by="olga")
        await engine.channels.post(ROOM, SAID[0], by="ana", to="ada")
        await engine.channels.say(ROOM, "ada", SAID[1])
        await engine.channels.command(ROOM, ev.CompleteTurn(agent_id="ada"), by="ada")
        clock.advance(61)
        for agent in ("ada", "bob"):
            await engine.agents.heartbeat(agent)
        await engine.tick()
        await engine.channels.post(ROOM, SAID[2], by="ana")


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("talked") / "work.db"
    run_async(_talk(f"sqlite:///{path}", ManualClock()))
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")  # one file, to copy
    return path.read_bytes()


@pytest.fixture
def talked(conversation: bytes, tmp_path: Path) -> Talked:
    path = tmp_path / "work.db"
    path.write_bytes(conversation)
    return Talked(path)


def test_an_untouched_conversation_is_unaltered(talked: Talked):
    assert talked.codes() == set()
    texts = talked.sql("SELECT text FROM channel_log WHERE kind = 'message' ORDER BY seq")
    assert [text for (text,) in texts] == list(SAID)
    assert talked.sql("SELECT code FROM channel_log WHERE kind = 'notice'") == [("turn_timed_out",)]


def test_every_event_of_a_channel_that_is_changed_or_dropped_is_found(talked: Talked):
    rows = talked.sql("SELECT * FROM journal WHERE stream = ?", STREAM)
    assert len(rows) > 5
    for row in rows:
        entry, body = row[0], str(row[5])
        changed = body.replace('"at":"2026', '"at":"2025', 1)
        assert changed != body
        talked.sql("UPDATE journal SET body = ? WHERE id = ?", changed, entry)
        assert talked.codes(), body
        talked.sql("DELETE FROM journal WHERE id = ?", entry)
        assert talked.codes(), body
        talked.sql("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?)", *row)
    assert talked.codes() == set()


def test_an_inserted_event_of_a_channel_is_found(talked: Talked):
    ((seq, batch),) = talked.sql(
        "SELECT max(seq), max(batch) FROM journal WHERE stream = ?", STREAM
    )
    body = f'[{{"type":"MessagePosted","number":9,"message_id":"x","author":"ana","human":true,"text":"approved","at":"{LATER}","by":"ana"}}]'  # noqa: E501
    talked.sql(
        "INSERT INTO journal (batch, stream, seq, count, body, hash) VALUES (?, ?, ?, 1, ?, ?)",
        batch,
        STREAM,
        int(str(seq)) + 1,
        body,
        bytes(32),
    )
    assert talked.codes()


@pytest.mark.parametrize(("table", "column"), CELLS, ids=[" ".join(cell) for cell in CELLS])
def test_a_changed_row_of_a_channel_is_found(talked: Talked, table: str, column: str):
    key, value = KEYS[table], TABLES[table][column]
    before = talked.sql(f"SELECT * FROM {table}")
    for (row,) in talked.sql(f"SELECT {key} FROM {table}"):
        talked.sql(f"UPDATE OR IGNORE {table} SET {column} = {value} WHERE {key} = ?", row)
        if talked.sql(f"SELECT * FROM {table}") != before:
            assert talked.codes(), f"{table}.{column} of {row}"
            return
    raise AssertionError("nothing was changed")


@pytest.mark.parametrize("table", TABLES)
def test_a_dropped_row_of_a_channel_is_found(talked: Talked, table: str):
    key = KEYS[table]
    talked.sql(f"DELETE FROM {table} WHERE {key} = (SELECT max({key}) FROM {table})")
    assert talked.codes()


def test_a_line_that_nobody_said_is_found_and_named(talked: Talked):
    talked.sql(
        "INSERT INTO channel_log SELECT channel_id, seq + 1000, kind, number + 1, 'x', code, 'ana',"
        " 1, 'approved', NULL, at FROM channel_log WHERE number = 3"
    )
    assert talked.codes() == {"row_extra"}
    called = run_command("verify", "--database", talked.url)
    assert called.code == 1
    assert "channel reviews: channel_log has a line that no event made" in called.out + called.err


def test_a_member_that_nobody_let_in_is_found(talked: Talked):
    talked.sql("INSERT INTO channel_members VALUES ('reviews', 'eve', 'QUEUED', 0, 0, NULL)")
    assert talked.codes() == {"row_extra"}


def test_all_columns_of_channels_are_meant(talked: Talked):
    for table, columns in TABLES.items():
        known = {name for _, name, *_ in talked.sql(f"PRAGMA table_info({table})")}
        # No event speaks of an agent's capacity, or of a project.
        assert known - {"sole", "project"} == set(columns)
