"""A PostgreSQL database: one connection that commits, and a few for everything else.

Results are always read in binary: times come as texts (`binary_values.py`). The texts of queries
never vary, so that each is prepared once per connection.
"""

import secrets
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from queue import LifoQueue
from typing import Any

from msgspec.structs import astuple
from psycopg import Cursor

from handrail.store.columns import Row
from handrail.store.database import Database, LockTopic, MaintenanceDatabase, Rows, Transaction
from handrail.store.postgres import commit as writing
from handrail.store.postgres.binary_values import array_columns, text_array
from handrail.store.postgres.commit import QUERIES, append_entries
from handrail.store.postgres.connection import (
    ConnectionLostError,
    ConnectionWatchdog,
    ReconnectingConnection,
)
from handrail.store.postgres.database import PostgresConnection, prepare_schema
from handrail.store.postgres.primary import PrimaryFinder
from handrail.store.queries import Query
from handrail.store.rows import (
    AcknowledgedDataLostError,
    CommitOutcomeUnknownError,
    CommitRow,
    LoadedRun,
    RunRow,
    StreamWrite,
)

POOL_CONNECTIONS = 2
"""Connections besides the one that commits."""
LOCK_TOPICS: dict[LockTopic, int] = {
    "outages": 0x48524155,
    "files": 0x48524156,
    "definitions": 0x48524157,
    "notes": 0x48524158,
}
"""The first numbers of advisory locks; the second is made from a key."""
SET_SCANS_SQL = b"SET LOCAL enable_seqscan = %b; SET LOCAL enable_hashjoin = %b"
"""Allows table scans for sums over whole tables; the connection's settings disable them."""


class PostgresDatabase(Database):
    inline = False
    queries = QUERIES
    uses_watchdog = True
    """Whether a watchdog breaks connections that the server does not answer."""

    def __init__(
        self, url: str, *, read_only: bool = False, primary_finder: PrimaryFinder | None = None
    ) -> None:
        """`primary_finder`: that of another database, to share its discoveries."""
        self._url = url
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
        """Identifies this database's reservations."""
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

    def open_reader(self) -> Database:
        return PostgresDatabase(self._url, primary_finder=self._primary_finder)

    def open_maintenance(self) -> MaintenanceDatabase | None:
        from handrail.store.postgres.backup import PostgresMaintenanceDatabase  # few need it

        return PostgresMaintenanceDatabase(self._url, read_only=True)

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
        row = PostgresTransaction(db).fetch_one("commit_hash", n=last.n)
        if row is None or row[0] != last.hash:
            raise AcknowledgedDataLostError(
                f"{self.display_name}: commit {last.n} was acknowledged at {last.at}, and is "
                "missing now: a standby took over that commits did not wait for; "
                "start again to go on with the rest"
            )

    @contextmanager
    def _borrow_connection(self) -> Generator[PostgresConnection]:
        connection = self._idle_connections.get()
        try:
            with connection.use() as db:
                yield db
        finally:
            self._idle_connections.put(connection)

    @contextmanager
    def _borrow_for_write(self) -> Generator[PostgresConnection]:
        try:
            with self._borrow_connection() as db:
                yield db
        except ConnectionLostError as error:
            raise CommitOutcomeUnknownError(
                f"{error}; the write may or may not have been stored"
            ) from error

    # Statements

    def fetch_scanning(self, query: str, /, **filters: object) -> Rows:
        return self.read(QUERIES.select_filters(query, filters), filters, scan=True)

    def read(self, query: Query, values: Mapping[str, object], *, scan: bool = False) -> Rows:
        """Read; retry once if the connection breaks, as at a restart of the server."""
        try:
            return self._read_once(query, values, scan=scan)
        except ConnectionLostError:
            return self._read_once(query, values, scan=scan)

    def _read_once(self, query: Query, values: Mapping[str, object], *, scan: bool) -> Rows:
        with self._borrow_connection() as db:
            if not scan:
                return _execute(db, query, values).fetchall()
            with db.transaction():
                db.execute(SET_SCANS_SQL % (b"on", b"on"), prepare=False)
                rows = _execute(db, query, values).fetchall()
                db.execute(SET_SCANS_SQL % (b"off", b"off"), prepare=False)
                return rows

    def execute(self, query: str, /, **values: object) -> int:
        with self._borrow_for_write() as db:
            return _execute(db, QUERIES[query], values).rowcount

    def write_rows(self, query: str, rows: Iterable[Row | Sequence[object]], /) -> int:
        with self._borrow_for_write() as db:
            return PostgresTransaction(db).write_rows(query, rows)

    def text_search(self, words: Sequence[str]) -> str:
        return " | ".join(f"'{word}'" for word in words)  # quotes disable operators

    @contextmanager
    def transaction(self) -> Generator["PostgresTransaction"]:
        with self._borrow_for_write() as db, db.transaction():
            yield PostgresTransaction(db)

    # Deciding

    def commit(self, writes: Sequence[StreamWrite], at: str) -> tuple[CommitRow | None, list[bool]]:
        commit, won = writing.commit(self._writer, writes, at)
        if commit is not None:
            self._last_commit = commit, self._primary_finder.newest_timeline
        return commit, won

    def load_runs(self, ids: Sequence[str]) -> dict[str, LoadedRun]:
        rows = self.fetch_all("executions_by_id", ids=ids) if ids else []
        return {row[0]: LoadedRun(row=RunRow(*row[:-1]), tail=row[-1] or []) for row in rows}

    def reserve_dispatches(self, role: str, limit: int) -> Rows:
        values = {"role": role, "limit": limit, "reserved_by": self._reservation_id}
        with self._borrow_for_write() as db:
            return _execute(db, QUERIES["reserve_dispatches"], values).fetchall()


class PostgresTransaction(Transaction):
    def __init__(self, db: PostgresConnection) -> None:
        self._db = db

    def fetch_all(self, query: str, /, **values: object) -> Rows:
        return _execute(self._db, QUERIES[query], values).fetchall()

    def execute(self, query: str, /, **values: object) -> int:
        return _execute(self._db, QUERIES[query], values).rowcount

    def write_rows(self, query: str, rows: Iterable[Row | Sequence[object]], /) -> int:
        values = [astuple(row) if isinstance(row, Row) else row for row in rows]
        if not values:
            return 0
        compiled = QUERIES[query]
        columns = array_columns(compiled.array_types, values)
        return self._db.execute(compiled.encoded, columns, binary=True).rowcount

    def lock(self, topic: LockTopic, key: str = "") -> None:
        self.fetch_one("lock_topic", topic=LOCK_TOPICS[topic], key=key)

    def append(self, writes: Sequence[StreamWrite], at: str) -> bool:
        return append_entries(self._db, writes, at)


def _execute(
    db: PostgresConnection, query: Query, values: Mapping[str, Any]
) -> Cursor[tuple[Any, ...]]:
    arguments = [_argument(values[name]) for name in query.parameters]
    return db.execute(query.encoded, arguments, binary=True)


def _argument(value: Any) -> Any:  # noqa: ANN401 - of any column
    return text_array(value) if type(value) in (list, tuple) else value
