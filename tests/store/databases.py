"""The database of a store as its own class, for the tests that reach into it."""

from handrail.store.postgres.pool import PostgresDatabase
from handrail.store.sqlite.connection import SqliteDatabase
from handrail.store.store import Store


def sqlite_database(store: Store) -> SqliteDatabase:
    assert isinstance(store.database, SqliteDatabase)
    return store.database


def postgres_database(store: Store) -> PostgresDatabase:
    assert isinstance(store.database, PostgresDatabase)
    return store.database
