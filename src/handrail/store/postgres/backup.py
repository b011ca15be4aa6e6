"""A PostgreSQL database for maintenance: snapshots of a live database, sizes, backup and restore.

A backup is a zip file with a manifest and one member per table, as COPY writes it, all from one
transaction. A restore replaces all tables in one transaction, and checks the restored data before
it commits; engines wait meanwhile.
"""

import json
import re
import zipfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from handrail.store.atomic_files import write_new_file
from handrail.store.database import (
    LIVE_TABLES,
    BrokenBackupError,
    DatabaseSizes,
    MaintenanceDatabase,
    TableSize,
)
from handrail.store.migrations import (
    NEWEST_SCHEMA_VERSION,
    check_schema_version,
    read_migrations,
)
from handrail.store.postgres.database import (
    DATABASE_ERRORS,
    PostgresConnection,
    store_error,
)
from handrail.store.postgres.pool import PostgresDatabase
from handrail.store.rows import StoreError

TABLES: list[str] = re.findall(r"(?m)^CREATE TABLE (\w+)", "".join(read_migrations("postgres")))
"""Tables in an order in which they can be filled."""
RESTORED_TABLES = [name for name in TABLES if name not in (*LIVE_TABLES, "handrail_schema")]
COMMIT_LOCK_ORDER = (
    *("workflow_executions", "commit_locks", "streams", "channels", "dispatches"),
    *("workflow_transitions", "approvals", "beads", "messages", "idempotency_keys"),
    *("channel_members", "channel_log", "journal", "chain", "commits"),
)
"""Tables in the order in which a commit uses them: locking in the same order avoids deadlocks."""
BACKUP_FORMAT = 1
MANIFEST_NAME = "manifest.json"
COPY_CHUNK_BYTES = 1 << 20
LIST_COLUMNS_SQL = b"""
SELECT a.attname, a.attidentity <> '' FROM pg_attribute a
WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


class PostgresMaintenanceDatabase(PostgresDatabase, MaintenanceDatabase):
    uses_watchdog = False

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        super().__init__(url, read_only=read_only)
        self._pinned: PostgresConnection | None = None
        """The connection for all statements during a snapshot."""

    @contextmanager
    def _borrow_connection(self) -> Generator[PostgresConnection]:
        if self._pinned is None:
            with super()._borrow_connection() as db:
                yield db
            return
        try:
            yield self._pinned
        except DATABASE_ERRORS as error:
            raise store_error(error, self.display_name) from error

    @contextmanager
    def _pin(self, db: PostgresConnection) -> Generator[None]:
        self._pinned = db
        try:
            yield
        finally:
            self._pinned = None

    @contextmanager
    def snapshot(self) -> Generator[None]:
        if self._pinned is not None:  # already inside a snapshot
            yield
            return
        with super()._borrow_connection() as db:
            _execute_unprepared(db, b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            _execute_unprepared(db, b"SET LOCAL idle_in_transaction_session_timeout = 0")
            # Lock before the first read: a restore would empty tables not read yet.
            _execute_unprepared(db, b"LOCK TABLE " + _join_names(TABLES) + b" IN ACCESS SHARE MODE")
            with self._pin(db):
                yield
            _execute_unprepared(db, b"ROLLBACK")

    def measure_sizes(self) -> DatabaseSizes:
        with self.snapshot(), self._borrow_connection() as db:
            tables = [
                TableSize(
                    name=name,
                    rows=_fetch_value(db, b"SELECT count(*) FROM " + name.encode()),
                    bytes=_fetch_value(db, b"SELECT pg_total_relation_size($1::regclass)", name),
                )
                for name in sorted(TABLES)
            ]
            database_bytes = _fetch_value(db, b"SELECT pg_database_size(current_database())")
        return DatabaseSizes(tables=tables, bytes=database_bytes, log_bytes=None, free_bytes=None)

    # Backup

    def backup(self, file: Path) -> None:
        with (
            write_new_file(file) as part_file,
            self.snapshot(),
            self._borrow_connection() as db,
            _open_zip(part_file) as archive,
        ):
            archive.writestr(MANIFEST_NAME, json.dumps(self._make_manifest(db), indent=1))
            for name in TABLES:
                _copy_out(db, archive, name)

    def _make_manifest(self, db: PostgresConnection) -> dict[str, Any]:
        columns_by_table = {
            name: db.execute(LIST_COLUMNS_SQL, (name,)).fetchall() for name in TABLES
        }
        alive = self.fetch_one("last_alive")
        identities = {
            name: [column for column, is_identity in rows if is_identity]
            for name, rows in columns_by_table.items()
        }
        return {
            "handrail": "backup",
            "format": BACKUP_FORMAT,
            "schema": NEWEST_SCHEMA_VERSION,
            "alive": alive[0] if alive is not None else None,
            "columns": {
                name: [column for column, _ in rows] for name, rows in columns_by_table.items()
            },
            "numbers": {
                name: _fetch_value(
                    db, b"SELECT last_value FROM " + _sequence_name(name, identity_columns[0])
                )
                for name, identity_columns in identities.items()
                if identity_columns
            },
            "numbered": {
                name: identity_columns[0]
                for name, identity_columns in identities.items()
                if identity_columns
            },
        }

    # Restore

    def restore(
        self, file: Path, prepare: Callable[[MaintenanceDatabase, str | None], None]
    ) -> None:
        manifest = read_manifest(file)
        with super()._borrow_connection() as db, db.transaction():
            _execute_unprepared(db, b"SET LOCAL idle_in_transaction_session_timeout = 0")
            other_tables = [name for name in RESTORED_TABLES if name not in COMMIT_LOCK_ORDER]
            _execute_unprepared(
                db, b"LOCK TABLE " + _join_names([*COMMIT_LOCK_ORDER, *other_tables])
            )
            _execute_unprepared(db, b"TRUNCATE " + _join_names(RESTORED_TABLES))
            with zipfile.ZipFile(file) as archive:
                for name in RESTORED_TABLES:
                    _copy_in(db, archive, file, name, manifest["columns"][name])
            for name, last_value in manifest["numbers"].items():
                sequence = _sequence_name(name, manifest["numbered"][name])
                text = b"SELECT setval('%b', greatest(last_value, $1)) FROM %b"
                db.execute(text % (sequence, sequence), (last_value,))
            with self._pin(db):
                prepare(self, manifest["alive"])


def _execute_unprepared(db: PostgresConnection, text: bytes) -> None:
    db.execute(text, prepare=False)


def _fetch_value(db: PostgresConnection, text: bytes, *values: object) -> Any:  # noqa: ANN401 - whatever was asked
    row = db.execute(text, values, prepare=False).fetchone()
    assert row is not None
    return row[0]


def _join_names(tables: Sequence[str]) -> bytes:
    return ", ".join(tables).encode()


def _sequence_name(table: str, column: str) -> bytes:
    return f"{table}_{column}_seq".encode()


def _open_zip(file: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1)


def _copy_out(db: PostgresConnection, packed: zipfile.ZipFile, table: str) -> None:
    text = f"COPY {table} TO STDOUT".encode()
    with packed.open(table, "w", force_zip64=True) as member, db.cursor().copy(text) as copy:
        for data in copy:
            member.write(data)


def _copy_in(
    db: PostgresConnection, packed: zipfile.ZipFile, file: Path, table: str, names: Sequence[str]
) -> None:
    text = f"COPY {table} ({', '.join(names)}) FROM STDIN".encode()
    try:
        with packed.open(table) as member, db.cursor().copy(text) as copy:
            while data := member.read(COPY_CHUNK_BYTES):
                copy.write(data)
    except (zipfile.BadZipFile, OSError, EOFError, KeyError, psycopg.DataError) as error:
        reason = " ".join(str(error).split())
        raise BrokenBackupError(
            f"{file} is damaged ({table}: {reason}); name another backup"
        ) from error


def read_manifest(file: Path) -> dict[str, Any]:
    """Return the backup's manifest; raise if the backup cannot be restored here."""
    if not file.is_file():
        raise BrokenBackupError(f"{file}: there is no such file; name a backup")
    try:
        with zipfile.ZipFile(file) as archive:
            manifest = json.loads(archive.read(MANIFEST_NAME))
        if manifest["handrail"] != "backup":
            raise KeyError("handrail")
        version, backup_format = int(manifest["schema"]), int(manifest["format"])
    except (zipfile.BadZipFile, OSError, KeyError, ValueError, TypeError) as error:
        raise BrokenBackupError(
            f"{file} is not a backup of Handrail on PostgreSQL; name a backup"
        ) from error
    try:
        check_schema_version(str(file), version)
    except StoreError as error:
        raise BrokenBackupError(str(error)) from error
    if backup_format > BACKUP_FORMAT:
        raise BrokenBackupError(f"{file} was written by a newer Handrail; upgrade Handrail")
    if version < NEWEST_SCHEMA_VERSION:
        raise BrokenBackupError(
            f"{file} was written by an older Handrail (schema {version}); "
            "restore it with that one into an empty database, and open that with this one"
        )
    return manifest
