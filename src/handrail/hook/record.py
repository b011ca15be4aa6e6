"""Conversations between two hook calls, in a small SQLite file of their own.

A hook call reads and writes one conversation in one transaction, so calls at the same time, of one
process or of several, are one after the other. A conversation has a version: a process that keeps
it in memory sees that another one has gone on with it.

What the reader remembers of a call is a row of its own, because only the row of this call changes.
Events are kept for runs that are to be written to a Handrail database when they have ended.

The file is its owner's alone. A lock is waited for at most `LOCK_SECONDS`.
"""

import os
import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from handrail.hook.session import ConversationState, NumberedEvent
from handrail.kernel.decision import Value, prepare_types
from handrail.kernel.run.events import Ended, RunEvent
from handrail.kernel.stop.findings import KEYS_KEPT, CallMemory

FILE_NAME = "conversations.db"
SCHEMA_VERSION = 1
LOCK_SECONDS = 1.0
KEPT = timedelta(days=30)
CONVERSATIONS_KEPT = 500
SCHEMA = """
create table conversations (
    key text primary key, version integer not null, changed_at real not null, state blob not null
) without rowid;
create table memories (
    key text not null, call text not null, used integer not null, memory blob not null,
    primary key (key, call)
) without rowid;
create table events (
    key text not null, run_id text not null, number integer not null, event blob not null,
    primary key (key, run_id, number)
) without rowid;
create table ended_runs (
    key text not null, run_id text not null, team text not null, url text not null,
    primary key (key, run_id)
) without rowid;
"""

prepare_types(RunEvent)


class HookRecordError(Exception):
    """The file of conversations cannot be used."""


class UnrecordedRun(Value):
    """A run that waits to be written to a Handrail database."""

    key: str
    run_id: str
    team: str
    url: str


class ConversationRow(Value):
    """A conversation as it is stored."""

    version: int
    state: ConversationState
    memories: tuple[tuple[str, CallMemory], ...] = ()


class ConversationStore:
    """One connection to the file; opened when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._connection: sqlite3.Connection | None = None
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode_state = msgspec.msgpack.Decoder(ConversationState).decode
        self._decode_memory = msgspec.msgpack.Decoder(CallMemory).decode
        self._decode_event = msgspec.msgpack.Decoder(RunEvent).decode

    def again(self) -> "ConversationStore":
        """Return the same store with a connection of its own, for another thread."""
        return ConversationStore(self._path.parent)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """Give the connection; any trouble of the file is a HookRecordError."""
        try:
            if self._connection is None:
                self._connection = self._open()
            yield self._connection
        except (sqlite3.Error, OSError, msgspec.MsgspecError, UnicodeError) as error:
            self.close()
            message = f"{self._path}: {error}"
            raise HookRecordError(f"{message}; make it usable, or move it away") from error

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """Give the connection in a transaction."""
        with self.reading() as connection:
            connection.execute("begin immediate")
            try:
                yield connection
                connection.execute("commit")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("rollback")
                raise

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(
            self._path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("pragma synchronous = normal")
            (version,) = connection.execute("pragma user_version").fetchone()
            if version == 0:
                connection.execute("pragma journal_mode = wal")
                create_tables(connection)
            elif version != SCHEMA_VERSION:
                raise sqlite3.DatabaseError(f"schema version {version} is not {SCHEMA_VERSION}")
        except BaseException:
            connection.close()
            raise
        return connection

    def version(self, connection: sqlite3.Connection, key: str) -> int:
        """Return the version of a conversation; 0 if there is none."""
        row = connection.execute(
            "select version from conversations where key = ?", (key,)
        ).fetchone()
        return 0 if row is None else row[0]

    def load(self, connection: sqlite3.Connection, key: str) -> ConversationRow | None:
        row = connection.execute(
            "select version, state from conversations where key = ?", (key,)
        ).fetchone()
        if row is None:
            return None
        memories = connection.execute(
            "select call, memory from memories where key = ? order by used desc limit ?",
            (key, KEYS_KEPT),
        ).fetchall()
        return ConversationRow(
            version=row[0],
            state=self._decode_state(row[1]),
            memories=tuple((call, self._decode_memory(raw)) for call, raw in reversed(memories)),
        )

    def save(
        self,
        connection: sqlite3.Connection,
        key: str,
        version: int,
        state: ConversationState,
        memories: Iterable[tuple[str, CallMemory]],
        now: datetime,
    ) -> None:
        """Write a conversation as the version after the one that was read."""
        if version == 0:
            _prune(connection, now)
        connection.execute(
            "insert into conversations values (?, ?, ?, ?) on conflict (key) do update"
            " set version = excluded.version, changed_at = excluded.changed_at,"
            " state = excluded.state",
            (key, version + 1, now.timestamp(), self._encode(state)),
        )
        connection.executemany(
            "insert or replace into memories values (?, ?, ?, ?)",
            [(key, call, version + 1, self._encode(memory)) for call, memory in memories],
        )
        if version % KEYS_KEPT == 0:
            connection.execute(
                "delete from memories where key = ? and call in (select call from memories"
                " where key = ? order by used desc limit -1 offset ?)",
                (key, key, KEYS_KEPT),
            )

    def add_events(
        self,
        connection: sqlite3.Connection,
        key: str,
        events: Sequence[NumberedEvent],
        team: str,
        url: str,
    ) -> bool:
        """Keep events for the record at `url`; return whether a run has ended."""
        connection.executemany(
            "insert or replace into events values (?, ?, ?, ?)",
            [(key, row.run_id, row.number, self._encode(row.event)) for row in events],
        )
        ended = [row.run_id for row in events if isinstance(row.event, Ended)]
        connection.executemany(
            "insert or replace into ended_runs values (?, ?, ?, ?)",
            [(key, run_id, team, url) for run_id in ended],
        )
        return bool(ended)

    def ended_runs(self) -> list[UnrecordedRun]:
        """Return the runs that wait to be recorded."""
        with self.reading() as connection:
            rows = connection.execute("select key, run_id, team, url from ended_runs").fetchall()
        return [UnrecordedRun(key=row[0], run_id=row[1], team=row[2], url=row[3]) for row in rows]

    def events(self, run: UnrecordedRun) -> list[RunEvent]:
        with self.reading() as connection:
            rows = connection.execute(
                "select event from events where key = ? and run_id = ? order by number",
                (run.key, run.run_id),
            ).fetchall()
            return [self._decode_event(raw) for (raw,) in rows]

    def forget_run(self, run: UnrecordedRun) -> None:
        """Delete the events of a run that is recorded."""
        with self.writing() as connection:
            for table in ("ended_runs", "events"):
                connection.execute(
                    f"delete from {table} where key = ? and run_id = ?",  # noqa: S608 - a name of ours
                    (run.key, run.run_id),
                )


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables, unless another process has done so meanwhile."""
    connection.execute("begin immediate")
    (version,) = connection.execute("pragma user_version").fetchone()
    if version == 0:
        for statement in SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"pragma user_version = {SCHEMA_VERSION}")
    connection.execute("commit")


def _prune(connection: sqlite3.Connection, now: datetime) -> None:
    """Forget conversations that were quiet too long, and the oldest beyond a number."""
    expired = connection.execute(
        "select key from conversations where changed_at < ? union"
        " select key from (select key from conversations order by changed_at desc"
        " limit -1 offset ?)",
        ((now - KEPT).timestamp(), CONVERSATIONS_KEPT - 1),
    ).fetchall()
    for table in ("conversations", "memories", "events", "ended_runs"):
        connection.executemany(f"delete from {table} where key = ?", expired)  # noqa: S608 - a name of ours
