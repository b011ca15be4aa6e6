"""The engine's store on SQLite: one connection, one writer at a time, one fsync per commit.

Rules
1. A commit first tries all of its writes at once, one statement per table. If a guard or a
   constraint fails, it rolls back and repeats write by write, to find the losers. The first
   attempt has no savepoint: SQLite would copy every page that it changes.
2. Another process may write to the same file. `data_version` shows this; then the store reads the
   end of the chain again. The guard finds runs that the other process changed.
3. One connection serves all threads, under one lock: a reader never sees half a commit.
"""

import os
import sqlite3
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

from msgspec.structs import astuple

from handrail.store.channels import ChannelRow, ChannelStore
from handrail.store.engine_store import (
    NOTES_MAX,
    AgentRow,
    ApprovalRow,
    BeadRow,
    CommitRow,
    DefinitionRow,
    DispatchRow,
    IdempotencyKeyRow,
    LoadedRun,
    LockRow,
    MessageRow,
    NoteRow,
    RunRow,
    StoredEntry,
    StreamRow,
    StreamWrite,
    TransitionItem,
)
from handrail.store.hash_chain import EMPTY_HEAD, commit_hash
from handrail.store.row import row_of
from handrail.store.sqlite.database import (
    DATABASE_ERRORS,
    IN_MEMORY_PATH,
    PACKAGE,
    connect,
    lock_engines,
    store_error,
)
from handrail.store.statements import load_statements, select_filters

Rows = list[tuple[Any, ...]]
SQL = {
    name: text
    for file in (
        "queries.sql",
        "office.sql",
        "channels.sql",
        "memory.sql",
        "reviews.sql",
        "healing.sql",
    )
    for name, text in load_statements(PACKAGE, file).items()
}
PAGE_COMMITS = 500


class _GuardFailedError(Exception):
    """The guard of one of the writes failed."""


REJECTED_WRITE_ERRORS = (_GuardFailedError, sqlite3.IntegrityError, UnicodeError, OverflowError)
"""Errors of a single write (also violated constraints and values that no column can hold), which
must not fail the other writes."""


class SqliteEngineStore(ChannelStore):
    inline = True

    def __init__(self, path: str, *, read_only: bool = False) -> None:
        self.path = path
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

    def find_dead_engines(self) -> list[str] | None:
        if self.path == IN_MEMORY_PATH:
            return list(self.list_engines())
        self._engines_lock_fd, dead = lock_engines(self.path, lambda: list(self.list_engines()))
        return dead

    def has_changed(self) -> bool:
        with self._lock:
            previous_version, self._seen_version = self._seen_version, self._data_version()
            return previous_version != self._seen_version

    def check_commit_settled(self) -> None:
        """Do nothing: a commit in this process ends before the next call."""

    # The transaction

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with self._lock:
            db = self._db
            try:
                db.execute("BEGIN IMMEDIATE")
                yield db
                db.execute("COMMIT")
            except BaseException as error:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                self._chain_version = -1  # the cached end of the chain may be wrong
                if isinstance(error, DATABASE_ERRORS):
                    raise store_error(error, self.path) from error
                raise

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
        last = db.execute(SQL["last_commit"]).fetchone()
        self._last_commit_n, self._head = (last[0], last[1]) if last else (0, EMPTY_HEAD)
        self._last_entry_id = db.execute(SQL["last_entry"]).fetchone()[0]
        self._chain_version = version

    def commit(self, writes: Sequence[StreamWrite], at: str) -> tuple[CommitRow | None, list[bool]]:
        return self._commit(writes, at)

    def _commit(
        self,
        writes: Sequence[StreamWrite],
        at: str,
        also_write: Callable[[sqlite3.Connection, list[bool]], None] | None = None,
    ) -> tuple[CommitRow | None, list[bool]]:
        """`also_write` writes more in the same transaction, or raises to roll back all of it."""
        with self._transaction() as db:
            self._refresh_chain_end(db)
            won = self._write_all(db, writes)
            if also_write is not None:
                also_write(db, won)
            winners = [write for write, is_winner in zip(writes, won, strict=True) if is_winner]
            if not winners:
                return None, won
            first, n = self._last_entry_id + 1, self._last_commit_n + 1
            head = commit_hash(self._head, [write.entry.hash for write in winners])
            last = first + len(winners) - 1
            db.execute(SQL["insert_commit"], (n, n, first, last, len(winners), at, head))
            version, self._chain_version = (
                self._chain_version,
                -1,
            )  # valid until another process writes
        self._last_commit_n, self._last_entry_id, self._head = n, last, head
        self._chain_version = version
        return CommitRow(n=n, hash=head, at=at, entries=len(winners)), won

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
        insert_entry = SQL["insert_entry"]
        for number, write in enumerate(writes, first_entry_id):
            entry = write.entry
            entries.append(
                (number, batch, entry.stream, entry.seq, entry.count, entry.body, entry.hash)
            )
        executemany(insert_entry, entries)
        for name, rows in _dependent_rows(writes).items():
            if rows:
                executemany(SQL[name], rows)

    def _write_stream_rows(self, db: sqlite3.Connection, writes: Sequence[StreamWrite]) -> None:
        rows: dict[str, Rows] = {}
        for write in writes:
            name, row = _stream_row_statement(write)
            rows.setdefault(name, []).append(row)
        for name, values in rows.items():
            if db.executemany(SQL[name], values).rowcount != len(values):
                raise _GuardFailedError(name)

    # Reads for decisions

    def _fetch_all(self, name: str, *values: object) -> Rows:
        with self._lock:
            try:
                return self._db.execute(SQL[name], values).fetchall()
            except DATABASE_ERRORS as error:
                raise store_error(error, self.path) from error

    def _fetch_one(self, name: str, *values: object) -> tuple[Any, ...] | None:
        rows = self._fetch_all(name, *values)
        return rows[0] if rows else None

    def _fetch_filtered(self, name: str, filters: Mapping[str, object]) -> Rows:
        """Read with the filters that are not None."""
        text, values = select_filters(SQL[name], filters, "?")
        with self._lock:
            try:
                return self._db.execute(text, values).fetchall()
            except DATABASE_ERRORS as error:
                raise store_error(error, self.path) from error

    def _execute(self, name: str, *values: object) -> int:
        with self._transaction() as db:
            return db.execute(SQL[name], values).rowcount

    def load_runs(self, ids: Sequence[str]) -> dict[str, LoadedRun]:
        loaded: dict[str, LoadedRun] = {}
        for run_id in ids:
            row = self._fetch_one("execution", run_id)
            if row is not None:
                run = row_of(RunRow, row)
                has_tail = run.state_seq < run.seq
                tail = self._fetch_all("tail", run_id, run.state_seq, run.seq) if has_tail else []
                loaded[run_id] = LoadedRun(row=run, tail=[body for (body,) in tail])
        return loaded

    def load_locks(self, repositories: Sequence[str]) -> dict[str, LockRow]:
        rows = ((name, self._fetch_one("lock", name)) for name in repositories)
        return {name: row_of(LockRow, row) for name, row in rows if row is not None}

    def load_stream(self, name: str) -> StreamRow | None:
        row = self._fetch_one("stream", name)
        return row_of(StreamRow, row) if row is not None else None

    def list_due_runs(self, now: str, limit: int) -> list[str]:
        return [run_id for (run_id,) in self._fetch_all("due", now, limit)]

    def list_due_locks(self, now: str, limit: int) -> list[str]:
        return [name for (name,) in self._fetch_all("locks_due", now, limit)]

    def postpone_runs(self, dues: Sequence[tuple[str, bytes, str]]) -> None:
        with self._transaction() as db:
            db.executemany(SQL["postpone"], [(due, run_id, head) for run_id, head, due in dues])

    def reserve_dispatches(self, role: str, limit: int) -> list[DispatchRow]:
        return [row_of(DispatchRow, row) for row in self._fetch_all("on_offer", role, limit)]

    def list_messages(self, limit: int) -> list[MessageRow]:
        return [row_of(MessageRow, row) for row in self._fetch_all("messages", limit)]

    def delete_message(self, message_id: str) -> None:
        self._execute("delete_message", message_id)

    def get_idempotency_key(self, key: str, actor: str) -> IdempotencyKeyRow | None:
        row = self._fetch_one("key", key, actor)
        return row_of(IdempotencyKeyRow, row) if row is not None else None

    def delete_idempotency_keys(self, before: str) -> int:
        return self._execute("forget_keys", before)

    # Agents and engines

    def put_agent(self, agent: AgentRow) -> None:
        self._execute("put_agent", *astuple(agent))

    def remove_agent(self, agent_id: str) -> None:
        self._execute("remove_agent", agent_id)

    def list_agents(self) -> list[AgentRow]:
        rows = self._fetch_all("agents")
        return [row_of(AgentRow, (*row[:3], bool(row[3]), *row[4:])) for row in rows]

    def heartbeat_session(self, session: str, at: str) -> bool:
        return self._execute("beat", at, session) > 0

    def heartbeat_engine(self, engine: str, at: str) -> None:
        with self._transaction() as db:
            db.execute(SQL["beat_engine"], (engine, at))
            db.execute(SQL["beat_functions"], (at, engine))

    def list_engines(self) -> dict[str, str]:
        return dict(self._fetch_all("engines"))

    def delete_engine(self, engine: str) -> None:
        with self._transaction() as db:
            db.execute(SQL["forget_engine"], (engine,))
            db.execute(SQL["forget_functions"], (engine,))

    def list_orphaned_dispatches(self, silent_since: str, limit: int) -> list[DispatchRow]:
        return [row_of(DispatchRow, row) for row in self._fetch_all("orphans", silent_since, limit)]

    def list_unmatched_dispatches(
        self, silent_since: str, offered_before: str, limit: int
    ) -> list[DispatchRow]:
        rows = self._fetch_all("unmanned", offered_before, silent_since, limit)
        return [row_of(DispatchRow, row) for row in rows]

    def add_outage(self, started_at: str, ended_at: str) -> None:
        self._execute("add_outage", started_at, ended_at, started_at)

    def list_outages(self, since: str) -> list[tuple[str, str]]:
        return [
            (started_at, ended_at) for started_at, ended_at in self._fetch_all("outages", since)
        ]

    def get_last_alive(self) -> str | None:
        row = self._fetch_one("last_alive")
        return row[0] if row else None

    # Definitions, beads, notes

    def put_definition(self, row: DefinitionRow, owner: str | None = None) -> bool:
        with self._transaction() as db:
            names = (row.workflow_id, row.name, owner)
            if owner is not None and db.execute(SQL["foreign_definition"], names).fetchone():
                return False
            workflow_values = (row.workflow_id, row.name, row.kind, row.version, row.definition)
            db.execute(SQL["put_workflow"], (*workflow_values, row.created_at, row.created_at))
            return db.execute(SQL["put_version"], astuple(row)).rowcount > 0

    def find_foreign_definition(self, workflow_id: str, name: str, owner: str) -> str | None:
        row = self._fetch_one("foreign_definition", workflow_id, name, owner)
        return row[0] if row is not None else None

    def get_definition(self, workflow_id: str, version: int | None = None) -> DefinitionRow | None:
        if version is None:
            row = self._fetch_one("newest_version", workflow_id)
        else:
            row = self._fetch_one("version", workflow_id, version)
        return row_of(DefinitionRow, row) if row is not None else None

    def list_definitions(self) -> list[DefinitionRow]:
        return [row_of(DefinitionRow, row) for row in self._fetch_all("definitions")]

    def insert_bead(self, bead: BeadRow) -> bool:
        return self._execute("insert_bead", *astuple(bead)) > 0

    def get_bead(self, bead_id: str) -> BeadRow | None:
        row = self._fetch_one("bead", bead_id)
        return row_of(BeadRow, row) if row is not None else None

    def get_active_run_id(self, bead_id: str) -> str | None:
        row = self._fetch_one("active_run", bead_id)
        return row[0] if row is not None else None

    def add_note(self, note: NoteRow) -> None:
        with self._transaction() as db:
            counted = db.execute(SQL["count_note"], (note.execution_id,)).fetchone()
            if counted is not None and counted[0] <= NOTES_MAX:
                db.execute(SQL["insert_note"], astuple(note))

    def list_notes(self, execution_id: str) -> tuple[list[NoteRow], int]:
        rows = self._fetch_all("notes", execution_id)
        return [row_of(NoteRow, row[:-1]) for row in rows], rows[0][-1] if rows else 0

    # Reading

    def read_journal(
        self, stream: str, after_seq: int = 0, limit: int = 10_000
    ) -> list[StoredEntry]:
        return [
            row_of(StoredEntry, row) for row in self._fetch_all("journal", stream, after_seq, limit)
        ]

    def read_feed(self, after_n: int, limit: int) -> list[StoredEntry]:
        feed_entries: list[StoredEntry] = []
        for _, entries in self.iter_commits(after_n, limit):
            feed_entries += entries
            if len(feed_entries) >= limit:
                break
        return feed_entries

    def get_last_commit(self) -> CommitRow | None:
        row = self._fetch_one("last_commit")
        return row_of(CommitRow, row) if row is not None else None

    def list_transitions(self, execution_id: str) -> list[TransitionItem]:
        return [row_of(TransitionItem, row) for row in self._fetch_all("transitions", execution_id)]

    def list_approvals(
        self, *, execution_id: str | None = None, status: str | None = None, limit: int = 1_000
    ) -> list[ApprovalRow]:
        if execution_id is not None:
            rows = self._fetch_all("approvals_of", execution_id, status, limit)
        else:
            rows = self._fetch_all("approvals", status, limit)
        return [row_of(ApprovalRow, row) for row in rows]

    def list_dispatches(self, execution_id: str) -> list[DispatchRow]:
        return [row_of(DispatchRow, row) for row in self._fetch_all("dispatches", execution_id)]

    def list_runs_by_id(
        self,
        *,
        bead_id: str | None = None,
        status: str | None = None,
        after: str = "",
        limit: int = 1_000,
    ) -> list[RunRow]:
        rows = self._fetch_all("executions", after, bead_id, status, limit)
        return [row_of(RunRow, row) for row in rows]

    def iter_commits(
        self, after_n: int, limit: int
    ) -> Iterator[tuple[CommitRow, list[StoredEntry]]]:
        left = limit
        while left > 0:
            rows = self._fetch_all("commits", after_n, min(left, PAGE_COMMITS))
            for n, head, at, entries, batch, first, last in rows:
                entry_rows = self._fetch_all("entries", n, first, last, batch)
                commit = CommitRow(n=n, hash=head, at=at, entries=entries)
                yield commit, [row_of(StoredEntry, row) for row in entry_rows]
                after_n = n
            left -= len(rows)
            if len(rows) < PAGE_COMMITS:
                return


def _stream_row_statement(write: StreamWrite) -> tuple[str, tuple[Any, ...]]:
    """Return the statement that writes the stream's row, and its values."""
    stream_row, expected = write.row, write.expected_head
    if isinstance(stream_row, RunRow):
        if not expected:
            return "insert_execution", astuple(stream_row)
        if write.position_only:
            return "move_execution", (
                *(
                    stream_row.current_node_id,
                    stream_row.seq,
                    stream_row.head,
                    stream_row.updated_at,
                ),
                *(stream_row.id, expected),
            )
        row = (
            *(
                stream_row.workflow_id,
                stream_row.workflow_version,
                stream_row.current_node_id,
                stream_row.status,
                stream_row.priority,
                stream_row.seq,
            ),
            *(
                stream_row.head,
                stream_row.next_due,
                stream_row.updated_at,
                stream_row.state,
                stream_row.state,
                stream_row.state_seq,
            ),
        )
        if stream_row.ended_at is None:
            return "update_execution", (*row, stream_row.id, expected)
        end_values = (stream_row.terminal_status, stream_row.stop_rule, stream_row.ended_at)
        return "end_execution", (*row, *end_values, stream_row.id, expected)
    if isinstance(stream_row, LockRow):
        values = astuple(stream_row)
        return (
            ("update_lock", (*values[1:], stream_row.repository, expected))
            if expected
            else (
                "insert_lock",
                values,
            )
        )
    if isinstance(stream_row, ChannelRow):
        values = astuple(stream_row)
        return (
            ("update_channel", (*values[1:], stream_row.id, expected))
            if expected
            else ("insert_channel", values)
        )
    if expected:
        return "update_stream", (stream_row.seq, stream_row.head, stream_row.name, expected)
    return "insert_stream", astuple(stream_row)


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
            rows_by_statement.setdefault("put_bead", []).append(astuple(write.bead))
        if write.approvals or write.messages or write.keys or write.consumed_message_ids:
            rows_by_statement.setdefault("put_approval", []).extend(map(astuple, write.approvals))
            rows_by_statement.setdefault("insert_message", []).extend(map(astuple, write.messages))
            rows_by_statement.setdefault("insert_key", []).extend(map(astuple, write.keys))
            rows_by_statement.setdefault("delete_message", []).extend(
                (message_id,) for message_id in write.consumed_message_ids
            )
        if write.channel is not None:
            rows_by_statement.setdefault("delete_member", []).extend(write.channel.removed_members)
            rows_by_statement.setdefault("put_member", []).extend(
                map(astuple, write.channel.members)
            )
            rows_by_statement.setdefault("insert_log", []).extend(map(astuple, write.channel.log))
    # Members that lost the turn go before the member that holds it.
    rows_by_statement.get("put_member", []).sort(key=lambda row: row[2] in ("ACTIVE", "WAITING"))
    return {
        "delete_dispatch": closed,
        "put_dispatch": dispatches,
        "insert_transition": transitions,
        **rows_by_statement,
    }
