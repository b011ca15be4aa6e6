"""The engine's store on PostgreSQL: one connection commits, others read and do small writes.

Several engines share the database. The guard on each stream row decides between them (`commit.py`),
`reserve_dispatches` gives each dispatch to one of them, and the single row of `chain` makes the
order of commits the order of their numbers.
"""

import secrets
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from queue import LifoQueue
from typing import Any

from msgspec.structs import astuple

from handrail.store.channels import ChannelStore
from handrail.store.engine_store import (
    NOTES_MAX,
    AcknowledgedDataLostError,
    AgentRow,
    ApprovalRow,
    BeadRow,
    CommitOutcomeUnknownError,
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
from handrail.store.postgres import commit as writing
from handrail.store.postgres.binary_values import array_columns, text_array
from handrail.store.postgres.commit import SQL, Rows
from handrail.store.postgres.connection import (
    ConnectionLostError,
    ConnectionWatchdog,
    ReconnectingConnection,
)
from handrail.store.postgres.database import PostgresConnection, prepare_schema
from handrail.store.postgres.primary import PrimaryFinder
from handrail.store.row import row_of
from handrail.store.statements import select_filters

POOL_CONNECTIONS = 2
"""Connections besides the one that commits."""
DELETE_BATCH_KEYS = 10_000
"""Keys per statement: a statement must end long before the watchdog takes the server for lost."""
PAGE_COMMITS = 500
PAGE_ENTRIES = 5_000


class PostgresEngineStore(ChannelStore):
    inline = False
    uses_watchdog = True
    """Whether a watchdog breaks connections that the server does not answer."""

    def __init__(
        self, url: str, *, read_only: bool = False, primary_finder: PrimaryFinder | None = None
    ) -> None:
        """`primary_finder`: that of another store, to share its discoveries."""
        self._primary_finder = primary_finder = primary_finder or PrimaryFinder(
            url, read_only=read_only
        )
        self.display_name = primary_finder.display_name
        first = primary_finder.connect()
        try:
            self.warnings = prepare_schema(first[0], self.display_name, read_only=read_only)
        except BaseException:
            first[0].close()
            raise
        self._reservation_id = secrets.randbits(63)
        """Identifies this store's reservations."""
        self._last_commit: tuple[CommitRow, int] | None = None
        """The last commit acknowledged here, and its timeline."""
        self._writer = ReconnectingConnection(primary_finder, prepare=self._prepare_writer)
        self._connections = [self._writer]
        self._idle_connections: LifoQueue[ReconnectingConnection] = LifoQueue()
        for connected in (None,) * (POOL_CONNECTIONS - 1) + (first,):
            connection = ReconnectingConnection(primary_finder, connected)
            self._connections.append(connection)
            self._idle_connections.put(connection)
        self._watchdog = ConnectionWatchdog(self._connections) if self.uses_watchdog else None

    def close(self) -> None:
        if self._watchdog is not None:
            self._watchdog.close()
        for connection in self._connections:
            connection.close()

    def find_dead_engines(self) -> list[str] | None:
        """Return None: another engine may have lost its connection and be back in a moment."""
        return None

    def has_changed(self) -> bool:
        """Return True: a check would cost as much as reading."""
        return True

    def check_commit_settled(self) -> None:
        with self._writer.use():
            pass  # the previous connection has ended

    # The connections

    def _prepare_writer(self, db: PostgresConnection) -> None:
        """Prepare the connection that commits, and check that no acknowledged commit is missing: a
        standby that took over may lack it."""
        writing.prepare_connection(db)
        if (
            self._last_commit is None
            or self._last_commit[1] == self._primary_finder.newest_timeline
        ):
            return
        last, _ = self._last_commit
        row = db.execute(SQL["commit_hash"], (last.n,), binary=True).fetchone()
        if row is None or row[0] != last.hash:
            problem = f"commit {last.n} was acknowledged at {last.at}, and is not there any more"
            reason = "a standby took over that commits did not wait for"
            raise AcknowledgedDataLostError(
                f"{self.display_name}: {problem}: {reason}; start again to go on with the rest"
            )

    @contextmanager
    def _borrow_connection(self) -> Generator[PostgresConnection]:
        connection = self._idle_connections.get()
        try:
            with connection.use() as db:
                yield db
        finally:
            self._idle_connections.put(connection)

    def _fetch_all(self, name: str, *values: object) -> Rows:
        """Read; retry once if the connection breaks, as at a restart of the server."""
        try:
            with self._borrow_connection() as db:
                return db.execute(SQL[name], values, binary=True).fetchall()
        except ConnectionLostError:
            with self._borrow_connection() as db:
                return db.execute(SQL[name], values, binary=True).fetchall()

    def _fetch_filtered(self, name: str, filters: Mapping[str, object]) -> Rows:
        """Read with the filters that are not None."""
        text, values = select_filters(SQL[name].decode(), filters, "$")
        try:
            with self._borrow_connection() as db:
                return db.execute(text.encode(), values, binary=True).fetchall()
        except ConnectionLostError:
            with self._borrow_connection() as db:
                return db.execute(text.encode(), values, binary=True).fetchall()

    def _fetch_one(self, name: str, *values: object) -> tuple[Any, ...] | None:
        rows = self._fetch_all(name, *values)
        return rows[0] if rows else None

    @contextmanager
    def _borrow_for_write(self) -> Generator[PostgresConnection]:
        try:
            with self._borrow_connection() as db:
                yield db
        except ConnectionLostError as error:
            raise CommitOutcomeUnknownError(f"{error}; it may be written or not") from error

    def _execute(self, name: str, *values: object) -> int:
        with self._borrow_for_write() as db:
            return db.execute(SQL[name], values, binary=True).rowcount

    # Deciding

    def commit(self, writes: Sequence[StreamWrite], at: str) -> tuple[CommitRow | None, list[bool]]:
        commit, won = writing.commit(self._writer, writes, at)
        if commit is not None:
            self._last_commit = commit, self._primary_finder.newest_timeline
        return commit, won

    def load_runs(self, ids: Sequence[str]) -> dict[str, LoadedRun]:
        if not ids:
            return {}
        rows = self._fetch_all("executions_by_id", text_array(list(ids)))
        return {row[0]: LoadedRun(row=row_of(RunRow, row[:-1]), tail=row[-1] or []) for row in rows}

    def load_locks(self, repositories: Sequence[str]) -> dict[str, LockRow]:
        rows = (
            self._fetch_all("locks_by_repository", text_array(list(repositories)))
            if repositories
            else []
        )
        return {row[0]: row_of(LockRow, row) for row in rows}

    def load_stream(self, name: str) -> StreamRow | None:
        row = self._fetch_one("stream", name)
        return row_of(StreamRow, row) if row is not None else None

    def list_due_runs(self, now: str, limit: int) -> list[str]:
        return [run_id for (run_id,) in self._fetch_all("due", now, limit)]

    def list_due_locks(self, now: str, limit: int) -> list[str]:
        return [name for (name,) in self._fetch_all("locks_due", now, limit)]

    def postpone_runs(self, dues: Sequence[tuple[str, bytes, str]]) -> None:
        if dues:
            self._execute("postpone", *array_columns("tbt", dues))

    def reserve_dispatches(self, role: str, limit: int) -> list[DispatchRow]:
        with self._borrow_for_write() as db:
            rows = db.execute(
                SQL["reserve"], (role, limit, self._reservation_id), binary=True
            ).fetchall()
        return [row_of(DispatchRow, row) for row in rows]

    def list_messages(self, limit: int) -> list[MessageRow]:
        return [row_of(MessageRow, row) for row in self._fetch_all("messages", limit)]

    def delete_message(self, message_id: str) -> None:
        self._execute("delete_message", message_id)

    def get_idempotency_key(self, key: str, actor: str) -> IdempotencyKeyRow | None:
        row = self._fetch_one("key", key, actor)
        return row_of(IdempotencyKeyRow, row) if row is not None else None

    def delete_idempotency_keys(self, before: str) -> int:
        total = 0
        while deleted := self._execute("forget_keys", before, DELETE_BATCH_KEYS):
            total += deleted
        return total

    # Agents and engines

    def put_agent(self, agent: AgentRow) -> None:
        self._execute("put_agent", *astuple(agent))

    def remove_agent(self, agent_id: str) -> None:
        self._execute("remove_agent", agent_id)

    def list_agents(self) -> list[AgentRow]:
        return [row_of(AgentRow, row) for row in self._fetch_all("agents")]

    def heartbeat_session(self, session: str, at: str) -> bool:
        return self._execute("beat", at, session) > 0

    def heartbeat_engine(self, engine: str, at: str) -> None:
        self._execute("beat_engine", engine, at)

    def list_engines(self) -> dict[str, str]:
        return dict(self._fetch_all("engines"))

    def delete_engine(self, engine: str) -> None:
        self._execute("forget_engine", engine)

    def list_orphaned_dispatches(self, silent_since: str, limit: int) -> list[DispatchRow]:
        return [row_of(DispatchRow, row) for row in self._fetch_all("orphans", silent_since, limit)]

    def list_unmatched_dispatches(
        self, silent_since: str, offered_before: str, limit: int
    ) -> list[DispatchRow]:
        rows = self._fetch_all("unmanned", offered_before, silent_since, limit)
        return [row_of(DispatchRow, row) for row in rows]

    def add_outage(self, started_at: str, ended_at: str) -> None:
        with self._borrow_for_write() as db, db.transaction():
            db.execute(SQL["lock_outages"])
            db.execute(SQL["add_outage"], (started_at, ended_at))

    def list_outages(self, since: str) -> list[tuple[str, str]]:
        return [
            (started_at, ended_at) for started_at, ended_at in self._fetch_all("outages", since)
        ]

    def get_last_alive(self) -> str | None:
        row = self._fetch_one("last_alive")
        return row[0] if row else None

    # Definitions, beads, notes

    def put_definition(self, row: DefinitionRow, owner: str | None = None) -> bool:
        with self._borrow_for_write() as db, db.transaction():
            db.execute(SQL["lock_definitions"])
            names = (row.workflow_id, row.name, owner)
            if owner is not None and db.execute(SQL["foreign_definition"], names).fetchone():
                return False
            return db.execute(SQL["put_definition"], astuple(row), binary=True).rowcount > 0

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
        self._execute("add_note", *astuple(note), NOTES_MAX)

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
        pages = self._commit_page(after_n, limit, limit)
        return [entry for _, entries in pages for entry in entries]

    def get_last_commit(self) -> CommitRow | None:
        row = self._fetch_one("last_commit")
        return row_of(CommitRow, row) if row is not None else None

    def list_transitions(self, execution_id: str) -> list[TransitionItem]:
        return [row_of(TransitionItem, row) for row in self._fetch_all("transitions", execution_id)]

    def list_approvals(
        self, *, execution_id: str | None = None, status: str | None = None, limit: int = 1_000
    ) -> list[ApprovalRow]:
        rows = self._fetch_all("approvals", execution_id, status, limit)
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
            page = self._commit_page(after_n, min(left, PAGE_COMMITS), PAGE_ENTRIES)
            yield from page
            if not page:
                return
            left -= len(page)
            after_n = page[-1][0].n

    def _commit_page(
        self, after_n: int, commits: int, entries: int
    ) -> list[tuple[CommitRow, list[StoredEntry]]]:
        """Return up to `commits` commits; fewer once they have `entries` entries."""
        rows = self._fetch_all("commits", after_n, commits, entries)
        return [
            (
                row_of(CommitRow, commit),
                [row_of(StoredEntry, (commit[0], *row[4:])) for row in group if row[4] is not None],
            )
            for commit, group in groupby(rows, key=lambda row: row[:4])
        ]
