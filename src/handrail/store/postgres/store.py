"""The store on PostgreSQL."""

from handrail.store.postgres.pool import PostgresDatabase
from handrail.store.store import Store


class PostgresStore(Store):
    def __init__(self, url: str, *, read_only: bool = False) -> None:
        super().__init__(PostgresDatabase(url, read_only=read_only))
