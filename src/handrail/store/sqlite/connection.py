"""A SQLite database: one connection, one writer at a time, one fsync per commit.

Rules
1. A commit first tries all of its writes at once, one statement per table. If a guard or a
   constraint fails, it rolls back and repeats write by write, to find the losers. The first
   attempt has no savepoint: SQLite would copy every page that it changes.
2. Another process may write to the same file. `data_version` shows this; then the database reads
   the end of the chain again. The guard finds runs that the other process changed.
3. One connection serves all threads, under one lock: a reader never sees half a commit.
"""

import os
import sqlite3
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from operator import attrgetter
from threading import RLock
from typing import Any

import msgspec
from msgspec.structs import astuple

from handrail.store.columns import Row
from handrail.store.database import (
    STREAM_TABLES,
    Database,
    LockTopic,
    MaintenanceDatabase,
    Rows,
    Transaction,
)
from handrail.store.queries import Queries, Query
from handrail.store.rows import (
    EMPTY_HEAD,
    CommitRow,
    LoadedRun,
    RunRow,
    StreamWrite,
    commit_hash,
    total_spending,
)
from handrail.store.sqlite.database import (
    DATABASE_ERRORS,
    IN_MEMORY_PATH,
    connect,
    lock_engines,
    store_error,
)

QUERIES = Queries("sqlite")


class _GuardFailedError(Exception):
    """The guard of one of the writes failed."""


REJECTED_WRITE_ERRORS = (_GuardFailedError, sqlite3.IntegrityError, UnicodeError, OverflowError)
"""Errors of a single write (also violated constraints and values that no column can hold), which
must not fail the other writes."""


class SqliteDatabase(Database):
    inline = True
    queries = QUERIES

    def __init__(self, path: str, *, read_only: bool = False) -> None:
        self.path = self.display_name = path
        self._db = connect(path, read_only=read_only)
        self._lock = RLock()
        self._engines_lock_fd: int | None = None
        self._chain_version = -1
        self._seen_version = -1
        self._last_commit_n = self._last_entry_id = 0
        self._head = EMPTY_HEAD

    def close(self) -> None:
        with self._lock:
            self._db.close()
            if self._engines_lock_fd is not None:
                os.close(self._engines_lock_fd)
                self._engines_lock_fd = None

    def open_reader(self) -> Database:
        return self if self.path == IN_MEMORY_PATH else SqliteDatabase(self.path, read_only=True)

    def open_maintenance(self) -> MaintenanceDatabase | None:
        from handrail.store.sqlite.backup import SqliteMaintenanceDatabase  # few need it

        if self.path == IN_MEMORY_PATH:
            return None
        return SqliteMaintenanceDatabase(self.path, read_only=True)

    def find_dead_engines(self) -> list[str] | None:
        if self.path == IN_MEMORY_PATH:
            return self._list_engines()
        self._engines_lock_fd, dead = lock_engines(self.path, self._list_engines)
        return dead

    def _list_engines(self) -> list[str]:
        return [engine for engine, _ in self.fetch_all("engines")]

    def has_changed(self) -> bool:
        with self._lock:
            previous_version, self._seen_version = self._seen_version, self._data_version()
            return previous_version != self._seen_version

    def check_commit_settled(self) -> None:
        """Do nothing: a commit in this process ends before the next call."""

    # Statements

    def read(self, query: Query, values: Mapping[str, object]) -> Rows:
        with self._lock:
            try:
                return self._db.execute(query.text, _arguments(query, values)).fetchall()
            except DATABASE_ERRORS as error:
                raise store_error(error, self.path) from error

    def execute(self, query: str, /, **values: object) -> int:
        with self.transaction() as transaction:
            return transaction.execute(query, **values)

    def write_rows(self, query: str, rows: Iterable[Row | Sequence[object]], /) -> int:
        with self.transaction() as transaction:
            return transaction.write_rows(query, rows)

    def text_search(self, words: Sequence[str]) -> str:
        return " OR ".join(f'"{word}"' for word in words)  # quotes disable operators

    @contextmanager
    def transaction(self) -> Generator["SqliteTransaction"]:
        with self._lock:
            db = self._db
            try:
                db.execute("BEGIN IMMEDIATE")
                yield SqliteTransaction(self, db)
                db.execute("COMMIT")
            except BaseException as error:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                self._chain_version = -1  # the cached end of the chain may be wrong
                if isinstance(error, DATABASE_ERRORS):
                    raise store_error(error, self.path) from error
                raise

    # Reads for decisions

    def load_runs(self, ids: Sequence[str]) -> dict[str, LoadedRun]:
        loaded: dict[str, LoadedRun] = {}
        for run_id in ids:
            row = self.fetch_one("execution", id=run_id)
            if row is not None:
                run = RunRow(*row)
                tail = self._load_tail(run) if run.state_seq < run.seq else []
                loaded[run_id] = LoadedRun(row=run, tail=tail)
        return loaded

    def _load_tail(self, run: RunRow) -> list[str]:
        rows = self.fetch_all("tail", stream=run.id, after=run.state_seq, upto=run.seq)
        return [body for (body,) in rows]

    def reserve_dispatches(self, role: str, limit: int) -> Rows:
        return self.fetch_all("offered_dispatches", role=role, limit=limit)

    # The commit

    def commit(self, writes: Sequence[StreamWrite], at: str) -> tuple[CommitRow | None, list[bool]]:
        with self.transaction() as transaction:
            db = transaction.db
            self._refresh_chain_end(db)
            won = self._write_all(db, writes)
            winners = [write for write, is_winner in zip(writes, won, strict=True) if is_winner]
            if not winners:
                return None, won
            commit, last = self._insert_commit(db, winners, at)
            version, self._chain_version = self._chain_version, -1  # valid again once committed
        self._last_commit_n, self._last_entry_id, self._head = commit.n, last, commit.hash
        self._chain_version = version
        return commit, won

    def append(self, db: sqlite3.Connection, writes: Sequence[StreamWrite], at: str) -> bool:
        """Write entries in the caller's transaction, which the caller rolls back on False."""
        self._refresh_chain_end(db)
        try:
            self._write(db, writes, self._last_entry_id + 1)
        except REJECTED_WRITE_ERRORS:
            return False
        self._insert_commit(db, writes, at)
        self._chain_version = -1
        return True

    def _insert_commit(
        self, db: sqlite3.Connection, winners: Sequence[StreamWrite], at: str
    ) -> tuple[CommitRow, int]:
        """Return the commit, and the id of its last entry."""
        first, n = self._last_entry_id + 1, self._last_commit_n + 1
        head = commit_hash(self._head, [write.entry.hash for write in winners])
        last = first + len(winners) - 1
        db.execute(QUERIES["insert_commit"].text, ((n, first, last, len(winners), at, head)))
        return CommitRow(n=n, hash=head, at=at, entries=len(winners)), last

    def _data_version(self) -> int:
        try:
            return self._db.execute("PRAGMA data_version").fetchone()[0]
        except DATABASE_ERRORS as error:
            raise store_error(error, self.path) from error

    def _refresh_chain_end(self, db: sqlite3.Connection) -> None:
        """Read the end of the chain again if another process may have moved it."""
        version = self._data_version()
        if version == self._chain_version:
            return
        last = db.execute(QUERIES["last_commit"].text).fetchone()
        self._last_commit_n, self._head = (last[0], last[1]) if last else (0, EMPTY_HEAD)
        self._last_entry_id = db.execute(QUERIES["last_entry"].text).fetchone()[0]
        self._chain_version = version

    def _write_all(self, db: sqlite3.Connection, writes: Sequence[StreamWrite]) -> list[bool]:
        """Write all at once, as nearly always all win and every stream has one write; else one by
        one, to find the losers and to allow several writes of one stream."""
        if len({write.entry.stream for write in writes}) == len(writes):
            try:
                self._write(db, writes, self._last_entry_id + 1)
            except REJECTED_WRITE_ERRORS:
                db.execute("ROLLBACK")
                db.execute("BEGIN IMMEDIATE")
                self._refresh_chain_end(db)  # another process may have committed meanwhile
            else:
                return [True] * len(writes)
        won: list[bool] = []
        for write in writes:
            db.execute("SAVEPOINT one")
            try:
                self._write(db, (write,), self._last_entry_id + 1 + sum(won))
                won.append(True)
            except REJECTED_WRITE_ERRORS:
                db.execute("ROLLBACK TO one")
                won.append(False)
            db.execute("RELEASE one")
        return won

    def _write(
        self, db: sqlite3.Connection, writes: Sequence[StreamWrite], first_entry_id: int
    ) -> None:
        executemany = db.executemany
        self._write_stream_rows(db, writes)
        batch = self._last_commit_n + 1
        entries: Rows = []
        for number, write in enumerate(writes, first_entry_id):
            entry = write.entry
            entries.append(
                (number, batch, entry.stream, entry.seq, entry.count, entry.body, entry.hash)
            )
        executemany(QUERIES["insert_entries"].text, entries)
        for name, rows in _dependent_rows(writes).items():
            if rows:
                executemany(QUERIES[name].text, rows)

    def _write_stream_rows(self, db: sqlite3.Connection, writes: Sequence[StreamWrite]) -> None:
        rows: dict[str, Rows] = {}
        for write in writes:
            name, row = _stream_row_statement(write)
            rows.setdefault(name, []).append(row)
        for name, values in rows.items():
            if db.executemany(QUERIES[name].text, values).rowcount != len(values):
                raise _GuardFailedError(name)


class SqliteTransaction(Transaction):
    def __init__(self, database: SqliteDatabase, db: sqlite3.Connection) -> None:
        self._database = database
        self.db = db

    def fetch_all(self, query: str, /, **values: object) -> Rows:
        compiled = QUERIES[query]
        return self.db.execute(compiled.text, _arguments(compiled, values)).fetchall()

    def execute(self, query: str, /, **values: object) -> int:
        compiled = QUERIES[query]
        return self.db.execute(compiled.text, _arguments(compiled, values)).rowcount

    def write_rows(self, query: str, rows: Iterable[Row | Sequence[object]], /) -> int:
        values = [astuple(row) if isinstance(row, Row) else row for row in rows]
        return self.db.executemany(QUERIES[query].text, values).rowcount if values else 0

    def lock(self, topic: LockTopic, key: str = "") -> None:
        """Do nothing: SQLite has one writer at a time."""

    def append(self, writes: Sequence[StreamWrite], at: str) -> bool:
        return self._database.append(self.db, writes, at)


def _arguments(query: Query, values: Mapping[str, object]) -> list[object]:
    """Return the values in the order of their numbers; a list is passed as a JSON array."""
    arguments = [values[name] for name in query.parameters]
    return [
        msgspec.json.encode(value).decode() if isinstance(value, list | tuple) else value
        for value in arguments
    ]


@cache
def _row_values(query: str) -> Callable[[Row], tuple[Any, ...]]:
    """Return a function for the values that an update takes from a row: all but the head that it
    expects, which comes last."""
    return attrgetter(*QUERIES[query].parameters[:-1])


def _stream_row_statement(write: StreamWrite) -> tuple[str, tuple[Any, ...]]:
    """Return the statement that writes the stream's row, and its values."""
    row = write.row
    table = STREAM_TABLES[type(row)]
    if not write.expected_head:
        return f"insert_{table}", astuple(row)
    if not isinstance(row, RunRow):
        name = f"update_{table}"
    elif write.position_only:
        name = "move_executions"
    else:
        name = "update_executions" if row.ended_at is None else "end_executions"
    return name, (*_row_values(name)(row), write.expected_head)


def _dependent_rows(writes: Sequence[StreamWrite]) -> dict[str, Rows]:
    """Return the rows besides stream row and entry, by statement. Deletions go first."""
    closed: Rows = []
    dispatches: Rows = []
    transitions: Rows = []
    rows_by_statement: dict[str, Rows] = {}
    for write in writes:
        if write.closed_fences:
            closed += [(write.entry.stream, fence) for fence in write.closed_fences]
        if write.dispatches:
            dispatches += [astuple(dispatch) for dispatch in write.dispatches]
        if write.transitions:
            transitions += [astuple(transition) for transition in write.transitions]
        if write.bead is not None:
            rows_by_statement.setdefault("put_beads", []).append(astuple(write.bead))
        if write.approvals or write.messages or write.keys or write.consumed_message_ids:
            rows_by_statement.setdefault("put_approvals", []).extend(map(astuple, write.approvals))
            rows_by_statement.setdefault("insert_messages", []).extend(map(astuple, write.messages))
            rows_by_statement.setdefault("insert_keys", []).extend(map(astuple, write.keys))
            rows_by_statement.setdefault("delete_messages", []).extend(
                (message_id,) for message_id in write.consumed_message_ids
            )
        if write.channel is not None:
            rows_by_statement.setdefault("delete_members", []).extend(write.channel.removed_members)
            rows_by_statement.setdefault("put_members", []).extend(
                map(astuple, write.channel.members)
            )
            rows_by_statement.setdefault("insert_log", []).extend(map(astuple, write.channel.log))
    # Members that lost the turn go before the member that holds it.
    rows_by_statement.get("put_members", []).sort(key=lambda row: row[2] in ("ACTIVE", "WAITING"))
    return {
        "delete_dispatches": closed,
        "put_dispatches": dispatches,
        "insert_transitions": transitions,
        **rows_by_statement,
        "add_spendings": list(map(astuple, total_spending(writes))),
    }
