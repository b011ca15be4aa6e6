"""From a database's address to its store."""

from pathlib import Path
from urllib.parse import unquote

from handrail.store.office import Office
from handrail.store.port import StoreError
from handrail.store.records import Records

SQLITE, POSTGRES = "sqlite://", ("postgresql://", "postgres://")


def open_store(url: str, *, read_only: bool = False) -> Office:
    """`sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite://` in memory, `postgresql://…`."""
    if url.startswith(SQLITE):
        from handrail.store.sqlite.office import SqliteOffice

        return SqliteOffice(sqlite_path(url), read_only=read_only)
    if url.startswith(POSTGRES):
        from handrail.store.postgres.office import PostgresOffice

        return PostgresOffice(url, read_only=read_only)
    raise _unknown(url)


def sqlite_path(url: str) -> str:
    """The file that a sqlite:// address means."""
    path = unquote(url.removeprefix(SQLITE))
    if path in ("", "/:memory:"):
        return ":memory:"
    if not path.startswith("/"):
        raise StoreError(f"'{url}' names no file; write sqlite:///FILE with three slashes")
    if "\0" in path:
        raise StoreError("the address of a database holds a NUL character; name a file")
    return str(Path(path[1:]))


def open_records(url: str, *, read_only: bool = False) -> Records:
    """A store for a caretaker, beside those of the engines."""
    if url.startswith(POSTGRES):
        from handrail.store.postgres.records import PostgresRecords

        return PostgresRecords(url, read_only=read_only)
    if url.startswith(SQLITE):
        from handrail.store.sqlite.records import SqliteRecords

        return SqliteRecords(sqlite_path(url), read_only=read_only)
    raise _unknown(url)


def _unknown(url: str) -> StoreError:
    known = "sqlite:///FILE or postgresql://USER@HOST/DATABASE"
    scheme = url.split(":", 1)[0][:40]
    return StoreError(f"'{scheme}' is no kind of database that Handrail knows; use {known}")
