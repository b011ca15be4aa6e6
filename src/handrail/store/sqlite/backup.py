"""A SQLite database for maintenance: snapshots of a live file, sizes, backup and restore.

A backup is a copy of all pages as of one read transaction; engines go on writing meanwhile. A
restore first copies the backup, migrates the copy and checks it; only then it writes all pages to
the live file in one transaction. Open connections on the file see them like any other commit.
"""

import os
import sqlite3
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from handrail.store.atomic_files import fsync_folder, write_new_file
from handrail.store.database import (
    LIVE_TABLES,
    BrokenBackupError,
    DatabaseSizes,
    MaintenanceDatabase,
    Rows,
    TableSize,
)
from handrail.store.migrations import check_schema_version
from handrail.store.queries import Query
from handrail.store.rows import StoreError
from handrail.store.sqlite.connection import QUERIES, SqliteDatabase
from handrail.store.sqlite.database import (
    APPLICATION_ID,
    DATABASE_ERRORS,
    IN_MEMORY_PATH,
    store_error,
)

LIST_TABLES_SQL = r"""
SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'
AND name NOT LIKE 'memory\_words\_%' ESCAPE '\' ORDER BY 1
"""
TABLE_BYTES_SQL = r"""
SELECT iif(m.tbl_name LIKE 'memory\_words\_%' ESCAPE '\', 'memory_words', m.tbl_name),
  sum(s.pgsize)
FROM dbstat s JOIN sqlite_master m ON m.name = s.name GROUP BY 1
"""
"""Sizes by table; the internal tables of the full-text index count as the table that is queried."""


class SqliteMaintenanceDatabase(SqliteDatabase, MaintenanceDatabase):
    def read(self, query: Query, values: Mapping[str, object]) -> Rows:
        """Read rows, including values tampered into bytes that are not text: these come back with
        characters that no text has."""
        try:
            return super().read(query, values)
        except StoreError as error:
            if "decode to UTF-8" not in str(error):
                raise
        with self._lock:
            self._db.text_factory = _decode_any_bytes
            try:
                return super().read(query, values)
            finally:
                self._db.text_factory = str

    @contextmanager
    def snapshot(self) -> Generator[None]:
        with self._lock:
            try:
                self._db.execute("BEGIN")
                self._db.execute(QUERIES["last_commit"].text).fetchone()  # fixes the moment
            except DATABASE_ERRORS as error:
                raise store_error(error, self.path) from error
            try:
                yield
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def measure_sizes(self) -> DatabaseSizes:
        with self._lock:
            try:
                return self._measure_sizes()
            except DATABASE_ERRORS as error:
                raise store_error(error, self.path) from error

    def _measure_sizes(self) -> DatabaseSizes:
        db = self._db
        try:
            table_bytes = dict(db.execute(TABLE_BYTES_SQL).fetchall())
        except sqlite3.OperationalError:
            table_bytes = {}  # this SQLite was built without `dbstat`
        names = [name for (name,) in db.execute(LIST_TABLES_SQL)]
        counts = {name: f'SELECT count(*) FROM "{name}"' for name in names}  # noqa: S608 - our own
        rows = {name: db.execute(query).fetchone()[0] for name, query in counts.items()}
        (page,), (pages,), (free,) = (
            db.execute(f"PRAGMA {pragma}").fetchone()
            for pragma in ("page_size", "page_count", "freelist_count")
        )
        log = Path(f"{self.path}-wal")
        return DatabaseSizes(
            tables=[TableSize(name=n, rows=rows[n], bytes=table_bytes.get(n)) for n in names],
            bytes=page * pages,
            log_bytes=log.stat().st_size if self.path != IN_MEMORY_PATH and log.exists() else 0,
            free_bytes=page * free,
        )

    def backup(self, file: Path) -> None:
        with write_new_file(file) as part_file:
            self._copy_to(part_file)

    def _copy_to(self, part_file: Path) -> None:
        """Copy the database to one file, without a log beside it."""
        try:
            with closing(sqlite3.connect(part_file)) as copy, self._lock:
                self._db.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")
        except DATABASE_ERRORS as error:
            raise store_error(error, str(part_file)) from error

    def restore(
        self, file: Path, prepare: Callable[[MaintenanceDatabase, str | None], None]
    ) -> None:
        assert self.path != IN_MEMORY_PATH, "a database in memory cannot be restored"
        _check_backup(file)
        folder = Path(self.path).absolute().parent
        part_file = folder / f".{Path(self.path).name}.restore-{os.getpid()}"
        try:
            with (
                closing(_connect_immutable(file)) as backup,
                closing(sqlite3.connect(part_file)) as copy,
            ):
                backup.backup(copy)
            self._restore_from(part_file, prepare)
        except sqlite3.Error as error:
            raise BrokenBackupError(
                f"{store_error(error, str(file))}; nothing was restored"
            ) from error
        finally:
            for suffix in ("", "-wal", "-shm", "-journal"):
                Path(f"{part_file}{suffix}").unlink(missing_ok=True)

    def _restore_from(
        self, part_file: Path, prepare: Callable[[MaintenanceDatabase, str | None], None]
    ) -> None:
        with closing(SqliteMaintenanceDatabase(str(part_file))) as copy:  # opening migrates it
            alive = copy.fetch_one("last_alive")
            prepare(copy, alive[0] if alive is not None else None)
            with self._lock:
                for table in LIVE_TABLES:
                    copy._copy_live_table(table, self._db)
                try:
                    copy._db.backup(self._db)
                    self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")
                except DATABASE_ERRORS as error:
                    raise store_error(error, self.path) from error
                self._chain_version = -1
        fsync_folder(Path(self.path).absolute().parent)

    def _copy_live_table(self, table: str, live_db: sqlite3.Connection) -> None:
        """Copy the live rows of agents or engines, so that they stay."""
        rows = live_db.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - our own
        with self.transaction() as transaction:
            db = transaction.db
            db.execute(f"DELETE FROM {table}")  # noqa: S608
            if rows:
                placeholders = ", ".join("?" * len(rows[0]))
                db.executemany(f"INSERT INTO {table} VALUES ({placeholders})", rows)  # noqa: S608


def _decode_any_bytes(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _connect_immutable(file: Path) -> sqlite3.Connection:
    """Connect without changing anything, not even by a file beside the database."""
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro&immutable=1", uri=True)


def _check_backup(file: Path) -> None:
    if not file.is_file():
        raise BrokenBackupError(f"{file}: there is no such file; name a backup")
    log = Path(f"{file}-wal")
    if log.exists() and log.stat().st_size:
        raise BrokenBackupError(
            f"{file} has a log beside it, so it is a database in use; "
            "copy it with `handrail db backup`"
        )
    try:
        with closing(_connect_immutable(file)) as db:
            (application,) = db.execute("PRAGMA application_id").fetchone()
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if application != APPLICATION_ID:
                raise BrokenBackupError(
                    f"{file} is not a backup of a Handrail database; name a backup"
                )
            check_schema_version(str(file), version)
            (state,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if state != "ok":
                raise BrokenBackupError(f"{file} is damaged ({state}); name another backup")
    except sqlite3.Error as error:
        raise BrokenBackupError(
            f"{file} is not a backup of a Handrail database ({error}); name a backup"
        ) from error
    except StoreError as error:
        raise BrokenBackupError(str(error)) from error
