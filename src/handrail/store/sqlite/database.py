"""Opens the database file: checks it before any write, then creates or migrates the tables."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from handrail.store.migrations import (
    NEWEST_SCHEMA_VERSION,
    check_columns,
    check_schema_version,
    outdated_schema_error,
    read_migrations,
)
from handrail.store.rows import StoreError

APPLICATION_ID = 0x48524149
BUSY_SECONDS = 5.0
IN_MEMORY_PATH = ":memory:"


def _make_private(path: str) -> None:
    """Create a new file for its owner alone: it holds the texts of agents and people."""
    with suppress(OSError):  # it exists, or cannot be created: SQLite reports that
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def connect(path: str, *, read_only: bool = False) -> sqlite3.Connection:
    """Connect to a database, migrated to this version; every error is one line."""
    if path != IN_MEMORY_PATH:
        _check_path(Path(path), read_only=read_only)
        if not read_only:
            _make_private(path)
    try:
        mode = "ro" if read_only else "rwc"
        db = sqlite3.connect(
            (
                IN_MEMORY_PATH
                if path == IN_MEMORY_PATH
                else f"{Path(path).absolute().as_uri()}?mode={mode}"
            ),
            uri=path != IN_MEMORY_PATH,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    try:
        _prepare_schema(db, path, read_only=read_only)
    except BaseException as error:
        db.close()
        if isinstance(error, sqlite3.Error):
            raise store_error(error, path) from error
        raise
    return db


def _check_path(path: Path, *, read_only: bool) -> None:
    if path.is_dir():
        raise StoreError(f"{path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise StoreError(f"{path}: there is no folder {path.parent}; make it first")
    if read_only and not path.exists():
        raise StoreError(f"{path}: there is no such database; `handrail serve` makes one")


def _prepare_schema(db: sqlite3.Connection, path: str, *, read_only: bool) -> None:
    """Check the file's owner and version, and only then apply settings that write to it."""
    version = _read_schema_version(db, path)
    if read_only:
        if version < NEWEST_SCHEMA_VERSION:
            raise outdated_schema_error(path, version)
        _check_columns(db, path)
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        _migrate(db, _read_schema_version(db, path))  # again: another process may have been first
        _check_columns(db, path)
        db.execute("DELETE FROM engines WHERE false")  # fails if the file is not writable
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    if path != IN_MEMORY_PATH and _enable_wal(db) != "wal":
        raise StoreError(f"{path}: its file system cannot keep a write-ahead log; move the file")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA cache_size = -65536")
    db.execute("PRAGMA wal_autocheckpoint = 4000")
    db.execute("PRAGMA temp_store = MEMORY")


def _enable_wal(db: sqlite3.Connection) -> str:
    """Switch to WAL mode. Retry, because SQLite does not wait here while another process creates
    the file."""
    deadline = monotonic() + BUSY_SECONDS
    while True:
        try:
            return db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or monotonic() > deadline:
                raise
            sleep(0.01)


def _read_schema_version(db: sqlite3.Connection, path: str) -> int:
    """Return the version of the schema; 0 for an empty file."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (tables or application or version):
        raise StoreError(f"{path} is a database of another program; name another file")
    check_schema_version(path, version)
    return version


def _check_columns(db: sqlite3.Connection, path: str) -> None:
    columns = db.execute(
        "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c"
        " WHERE t.type = 'table'"
    )
    check_columns(path, set(columns))


def _migrate(db: sqlite3.Connection, version: int) -> None:
    if version == 0:
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    for script in read_migrations("sqlite", version):
        _run_script(db, script)
    if version < NEWEST_SCHEMA_VERSION:
        db.execute(f"PRAGMA user_version = {NEWEST_SCHEMA_VERSION}")


def _run_script(db: sqlite3.Connection, text: str) -> None:
    """Run statement by statement, inside the transaction (`executescript` would commit it)."""
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""


DATABASE_ERRORS = (sqlite3.Error, UnicodeError, OverflowError)
"""Errors of a statement: the latter two for values that no column can hold."""


def store_error(error: Exception, path: str) -> StoreError:
    """Build the error: what is wrong, where, and what to do next."""
    text = str(error)
    for part, hint in ERROR_HINTS.items():
        if part in text:
            return StoreError(f"{path}: {text}; {hint}")
    return StoreError(f"{path}: {text}")


ERROR_HINTS = {
    "is full": "make room on the disk; nothing was written",
    "readonly": "make the file and its folder writable; nothing was written",
    "disk I/O error": "look at the disk; nothing was written",
    "malformed": "restore a backup with `handrail db restore FILE`",
    "not a database": "name a Handrail database, or a file that does not exist yet",
    "unable to open": "check that the folder exists and may be written",
    "is locked": f"another process has been writing for {BUSY_SECONDS:g} s; try again",
}


def lock_engines(
    path: str, list_known_engines: Callable[[], list[str]]
) -> tuple[int, list[str] | None]:
    """Mark this process as an engine of the file, as long as the descriptor is open.

    Every engine holds a shared lock, and registers after it has the lock. An engine that first gets
    the exclusive lock is alone, and all engines registered then are dead. The system drops the
    locks of a process that dies, however it dies.
    """
    import fcntl

    name = f"{path}-engines"
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(
            f"{name}: {error.strerror}; make the file and its folder writable"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        dead = list_known_engines()
    except BlockingIOError:
        dead = None
    except BaseException:
        os.close(descriptor)  # otherwise no process could get the lock again
        raise
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor, dead
