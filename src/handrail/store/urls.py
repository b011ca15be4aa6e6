"""Opens the store of a database URL."""

from pathlib import Path
from urllib.parse import unquote

from handrail.store.maintenance import MaintenanceStore
from handrail.store.rows import StoreError
from handrail.store.store import Store

SQLITE_PREFIX, POSTGRES_PREFIXES = "sqlite://", ("postgresql://", "postgres://")


def open_store(url: str, *, read_only: bool = False) -> Store:
    """Open `sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite://` in memory or
    `postgresql://…`."""
    if url.startswith(SQLITE_PREFIX):
        from handrail.store.sqlite.connection import SqliteDatabase

        return Store(SqliteDatabase(sqlite_path(url), read_only=read_only))
    if url.startswith(POSTGRES_PREFIXES):
        from handrail.store.postgres.pool import PostgresDatabase

        return Store(PostgresDatabase(url, read_only=read_only))
    raise _unknown_scheme_error(url)


def sqlite_path(url: str) -> str:
    """Return the file of a sqlite:// URL."""
    path = unquote(url.removeprefix(SQLITE_PREFIX))
    if path in ("", "/:memory:"):
        return ":memory:"
    if not path.startswith("/"):
        raise StoreError(f"'{url}' does not name a file; write sqlite:///FILE with three slashes")
    if "\0" in path:
        raise StoreError("the address of a database holds a NUL character; name a file")
    return str(Path(path[1:]))


def open_maintenance_store(url: str, *, read_only: bool = False) -> MaintenanceStore:
    """Open a store for maintenance, beside those of the engines."""
    if url.startswith(SQLITE_PREFIX):
        from handrail.store.sqlite.backup import SqliteMaintenanceDatabase

        return MaintenanceStore(SqliteMaintenanceDatabase(sqlite_path(url), read_only=read_only))
    if url.startswith(POSTGRES_PREFIXES):
        from handrail.store.postgres.backup import PostgresMaintenanceDatabase

        return MaintenanceStore(PostgresMaintenanceDatabase(url, read_only=read_only))
    raise _unknown_scheme_error(url)


def _unknown_scheme_error(url: str) -> StoreError:
    examples = "sqlite:///FILE or postgresql://USER@HOST/DATABASE"
    scheme = url.split(":", 1)[0][:40]
    return StoreError(f"'{scheme}' is not a database that Handrail supports; use {examples}")
