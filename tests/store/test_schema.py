"""The schemas: every statement prepares, both stores have the same tables and guards.

A schema is described by what the database says about it, not by the text that made it, so that
comments and line breaks do not count.
"""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from handrail.store.sqlite.database import PACKAGE as SQLITE
from handrail.store.statements import load_statements, read_migrations, select_filters

pytest_plugins = ["tests.fixtures_postgres"]
POSTGRES = "handrail.store.postgres"

ONLY_POSTGRES = {
    "handrail_schema.version": "SQLite has PRAGMA user_version",
    "chain.one": "SQLite has one writer at a time; PostgreSQL's writers wait for this row",
    "chain.n": "as above",
    "chain.head": "as above",
    "dispatches.reserved_by": "an engine finds again what it reserved and could not use yet",
    "dispatches.reserved_until": "engines that share a database leave each other's offers alone",
}
FTS5 = "FTS5 keeps its index in tables; PostgreSQL has an index of its own kind"
ONLY_SQLITE: dict[str, str] = {
    "memory_words.words": FTS5,
    "memory_words_config.k": FTS5,
    "memory_words_config.v": FTS5,
    "memory_words_content.c0": FTS5,
    "memory_words_content.id": FTS5,
    "memory_words_data.block": FTS5,
    "memory_words_data.id": FTS5,
    "memory_words_docsize.id": FTS5,
    "memory_words_docsize.sz": FTS5,
    "memory_words_idx.pgno": FTS5,
    "memory_words_idx.segid": FTS5,
    "memory_words_idx.term": FTS5,
}

ALWAYS = ("limit", "offset", "workflow_id")
"""What a list is never asked without, somewhere."""

SEED = {
    "workflows": {"id", "name", "definition", "created_at", "updated_at"},
    "workflow_executions": {
        *("id", "bead_id", "workflow_id", "current_node_id", "state", "created_at", "updated_at"),
    },
    "workflow_transitions": {
        *("id", "execution_id", "from_node_id", "to_node_id", "outcome", "timestamp"),
    },
}
"""The columns that the requirements name."""

DESCRIBED = {
    "columns": """
        SELECT c.relname || '.' || a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
          a.attidentity, l.collname, pg_get_expr(d.adbin, d.adrelid)
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        LEFT JOIN pg_collation l ON l.oid = a.attcollation
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0
          AND NOT a.attisdropped
        ORDER BY c.relname, a.attnum""",
    "tables": """
        SELECT relname, relkind, reloptions, relpersistence FROM pg_class
        WHERE relnamespace = 'public'::regnamespace ORDER BY relname""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2""",
    "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
    "functions": """
        SELECT proname, prosrc FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace ORDER BY 1, 2""",
    "triggers": "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
}


def plain(sql: str) -> str:
    """Without comments, and with one space where there was any."""
    return " ".join(re.sub(r"--.*", "", sql).split())


def in_sqlite(db: sqlite3.Connection) -> list[tuple[str, str, str]]:
    rows = db.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name")
    return [(kind, name, plain(sql or "")) for kind, name, sql in rows]


def in_postgres(db: psycopg.Connection) -> dict[str, list[tuple]]:
    return {what: db.execute(query.encode()).fetchall() for what, query in DESCRIBED.items()}


def run_in_sqlite(db: sqlite3.Connection) -> None:
    for script in read_migrations(SQLITE):
        db.executescript(script)


def run_in_postgres(db: psycopg.Connection) -> None:
    for script in read_migrations(POSTGRES):
        db.execute(script.encode())


@pytest.fixture
def sqlite() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as db:
        yield db


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_url) as db:
        yield db


def sqlite_columns() -> dict[str, set[str]]:
    with closing(sqlite3.connect(":memory:")) as db:
        run_in_sqlite(db)
        tables = [name for kind, name, _ in in_sqlite(db) if kind == "table"]
        info = "SELECT name FROM pragma_table_info(?)"
        return {name: {row[0] for row in db.execute(info, (name,))} for name in tables}


def postgres_columns(db: psycopg.Connection) -> dict[str, set[str]]:
    run_in_postgres(db)
    found: dict[str, set[str]] = {}
    for row in in_postgres(db)["columns"]:
        table, _, column = row[0].partition(".")
        found.setdefault(table, set()).add(column)
    return found


def every_statement(package: str, sign: str) -> dict[str, str]:
    """Of a list with filters, the one with all of them and those with one."""
    found = load_statements(package)
    files = ("office.sql", "channels.sql", "memory.sql", "reviews.sql")
    listed = {name: text for file in files for name, text in load_statements(package, file).items()}
    for name, text in listed.items():
        filters = sorted(set(re.findall(r"(?<![:\w]):([a-z]\w*)", text)))
        wanted = [filters, *([one] for one in filters)] if filters else [[]]
        for n, some in enumerate(wanted):
            given = {one: "x" if one in some or one in ALWAYS else None for one in filters}
            found[f"{name}_{n}"] = select_filters(text, given, sign)[0]
    return found


@pytest.mark.parametrize("name", every_statement(SQLITE, "?"))
def test_every_statement_for_sqlite_prepares(sqlite: sqlite3.Connection, name: str):
    run_in_sqlite(sqlite)
    statement = every_statement(SQLITE, "?")[name]
    numbered = re.findall(r"\?\d+", statement)
    values = [None] * (len(set(numbered)) or statement.count("?"))
    assert sqlite.execute(f"EXPLAIN {statement}", values).fetchall()


def test_every_statement_for_postgres_prepares(postgres: psycopg.Connection):
    run_in_postgres(postgres)
    for name, statement in every_statement(POSTGRES, "$").items():
        postgres.execute(f"PREPARE {name} AS {statement}".encode())


@pytest.mark.requirement("L10.1", "L10.2", "L10.3")
def test_the_tables_have_the_columns_that_were_asked_for(postgres: psycopg.Connection):
    for columns in (sqlite_columns(), postgres_columns(postgres)):
        for table, asked in SEED.items():
            assert asked <= columns[table]


def test_both_stores_have_the_same_tables_and_columns(postgres: psycopg.Connection):
    def names(columns: dict[str, set[str]]) -> set[str]:
        return {f"{table}.{name}" for table, found in columns.items() for name in found}

    ours, theirs = names(sqlite_columns()), names(postgres_columns(postgres))
    assert ours - theirs == set(ONLY_SQLITE)
    assert theirs - ours == set(ONLY_POSTGRES)


def test_both_stores_have_the_same_guards(postgres: psycopg.Connection):
    """A unique index is a promise; one that only one store has is a promise half kept."""

    def guards(texts: list[str]) -> set[str]:
        return {
            match[1]
            for text in texts
            if (match := re.search(r"CREATE UNIQUE INDEX (\w+)", text))
            and not match[1].endswith("_pkey")
        }

    with closing(sqlite3.connect(":memory:")) as db:
        run_in_sqlite(db)
        ours = guards([sql for _, _, sql in in_sqlite(db)])
    run_in_postgres(postgres)
    theirs = guards([definition for _, definition in in_postgres(postgres)["indexes"]])
    assert ours == theirs
    assert {"one_active_run_per_bead", "one_dispatch_per_step", "journal_stream"} <= ours
