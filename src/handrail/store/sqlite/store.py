"""The store on SQLite."""

from handrail.store.sqlite.connection import SqliteDatabase
from handrail.store.store import Store


class SqliteStore(Store):
    def __init__(self, path: str, *, read_only: bool = False) -> None:
        super().__init__(SqliteDatabase(path, read_only=read_only))
