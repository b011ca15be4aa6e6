"""The schemas: every statement prepares, both stores have the same tables and guards.

A schema is described by what the database says about it, not by the text that made it, so that
comments and line breaks do not count.
"""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from handrail import store
from handrail.store import (
    beads,
    budgets,
    bugs,
    credentials,
    database,
    maintenance,
    notifications,
    rows,
    runs,
    stats,
    ticket_memory,
)
from handrail.store.columns import Row, columns_of
from handrail.store.migrations import read_migrations
from handrail.store.queries import Dialect, Queries, Query

pytest_plugins = ["tests.fixtures_postgres"]

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

ALWAYS = ("limit", "after", "id", "execution_id")
"""What a list is never asked without, somewhere."""

STORE = Path(store.__file__).parent
ROWS = {
    "workflow_executions": rows.RunRow,
    "commit_locks": rows.LockRow,
    "streams": rows.StreamRow,
    "workflow_transitions": rows.TransitionRow,
    "approvals": rows.ApprovalRow,
    "dispatches": rows.DispatchRow,
    "beads": rows.BeadRow,
    "messages": rows.MessageRow,
    "idempotency_keys": rows.IdempotencyKeyRow,
    "journal": rows.JournalEntry,
    "workflow_versions": rows.DefinitionRow,
    "agents": rows.AgentRow,
    "notes": rows.NoteRow,
    "channels": rows.ChannelRow,
    "channel_members": rows.ChannelMemberRow,
    "channel_log": rows.ChannelLogRow,
    "commits": rows.CommitRow,
    "bead_files": beads.FileRow,
    "credentials": credentials.CredentialRow,
    "run_figures": stats.RunStatsRow,
    "node_figures": stats.NodeStatsRow,
    "memories": ticket_memory.MemoryRow,
    "answer_links": notifications.AnswerLinkRow,
    "webhooks": notifications.WebhookRow,
    "webhook_deliveries": notifications.DeliveryRow,
    "reminders": notifications.ReminderRow,
    "bugs": bugs.BugRow,
    "budgets": budgets.BudgetRow,
    "budget_spending": budgets.SpendingRow,
}
"""The row of each table."""
NOT_A_TABLE = {
    *(rows.StoredEntry, rows.RunListColumns, beads.BeadItem, runs.RunListRow),
    *(stats.EndedRun, stats.DefinitionStats, stats.NodeDispatchStats, stats.OpenWorkCount),
    *(ticket_memory.MemoryChange, maintenance.Irregularity, maintenance.PrunedRun),
    database.TableSize,
}
RESERVED = {"project"}
UNREAD = {
    "beads": RESERVED,
    "agents": RESERVED,
    "channels": RESERVED,
    "credentials": RESERVED,
    "workflow_executions": {"notes"},
    "workflow_transitions": {"id"},
    "journal": {"id", "batch"},
    "commits": {"batch", "first_id", "last_id"},
    "messages": {"n"},
    "notes": {"id"},
    "memories": {"n", "verdict"},
}
"""Columns that a row has no field for."""
READ_ONLY = {"memories.standing", "bugs.bead_status"}
"""Fields that are computed by the statement."""
NEVER_NULL = {"workflow_executions.state", "bead_files.content"}
"""Lists leave them out."""
ARCHIVED = "journal.body"
"""NULL once its run is archived; it is written with a text."""
POSTGRES_TYPES = {"timestamp with time zone": "timestamptz", "integer": "bigint"}
SQLITE_TYPES = {
    "text": "TEXT",
    "bigint": "INTEGER",
    "bytea": "BLOB",
    "boolean": "INTEGER",
    "double precision": "REAL",
}

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
    for script in read_migrations("sqlite"):
        db.executescript(script)


def run_in_postgres(db: psycopg.Connection) -> None:
    for script in read_migrations("postgres"):
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


def every_statement(dialect: Dialect) -> dict[str, Query]:
    """Each query as it stands; of a list with filters, also with each filter alone."""
    queries = Queries(dialect)
    found = {name: queries[name] for name in queries.sources}
    for name in sorted(lists_with_filters()):
        filters = queries[name].parameters
        for n, alone in enumerate(filters):
            given = {one: "x" if one == alone or one in ALWAYS else None for one in filters}
            found[f"{name}_{n}"] = queries.select_filters(name, given)
    return found


def lists_with_filters() -> set[str]:
    """The queries that the store reads with filters."""
    texts = [file.read_text() for file in STORE.glob("*.py")]
    return {
        name
        for text in texts
        for name in re.findall(r'fetch_(?:filtered|scanning)\(\s*(?:\w+,\s*)?"(\w+)"', text)
    } | {"work_beads", "beads_by_due", "beads_by_priority", "approval_beads"}


def test_every_query_is_used_and_every_query_used_is_there():
    texts = "".join(file.read_text() for file in STORE.rglob("*.py"))
    for dialect in ("sqlite", "postgres"):
        for name in Queries(dialect).sources:
            if not name.startswith(("doctor_", "stray_", "insert_", "update_", "lock_")):
                assert f'"{name}"' in texts, name
    calls = r"(?:fetch_\w+|execute|_update|write_rows)"
    used = set(re.findall(calls + r'\(\s*(?:\w+,\s*)?"([a-z_]+)"', texts))
    both = Queries("sqlite").sources.keys() & Queries("postgres").sources.keys()
    alone = {"execution", "tail", "offered_dispatches", "last_entry"}  # SQLite
    alone |= {"executions_by_id", "reserve_dispatches", "lock_topic", "commit_hash"}  # PostgreSQL
    assert used - both <= alone


def test_every_query_of_one_database_says_why():
    for dialect in ("sqlite", "postgres"):
        text = (STORE / dialect / "dialect.sql").read_text()
        for comment in re.findall(r"(?m)^-- [a-z_]+: (?:.+\n(?:-- .+\n)*)", text):
            assert re.search(r"\([^)]+\)\s*$", comment), comment


@pytest.mark.parametrize("name", every_statement("sqlite"))
def test_every_statement_for_sqlite_prepares(sqlite: sqlite3.Connection, name: str):
    run_in_sqlite(sqlite)
    statement = every_statement("sqlite")[name].text
    values = [None] * len(set(re.findall(r"\?\d+", statement)))
    assert sqlite.execute(f"EXPLAIN {statement}", values).fetchall()


def test_every_statement_for_postgres_prepares(postgres: psycopg.Connection):
    run_in_postgres(postgres)
    for name, query in every_statement("postgres").items():
        postgres.execute(f"PREPARE {name} AS {query.text}".encode())


def row_types(base: type[Row] = Row) -> Iterator[type[Row]]:
    for row_type in base.__subclasses__():
        yield row_type
        yield from row_types(row_type)


def test_rows_have_the_columns_of_their_tables(postgres: psycopg.Connection):
    """Names, types and whether they may be NULL, in both databases; columns that no row has are
    meant."""
    assert {kind for kind in row_types() if kind.__module__.startswith("handrail.store")} == {
        *ROWS.values(),
        *NOT_A_TABLE,
    }
    run_in_postgres(postgres)
    theirs = {row[0]: row[1:3] for row in in_postgres(postgres)["columns"]}
    with closing(sqlite3.connect(":memory:")) as db:
        run_in_sqlite(db)
        for table, row_type in ROWS.items():
            info = f"SELECT name, type, \"notnull\" OR pk FROM pragma_table_info('{table}')"
            ours = {name: rest for name, *rest in db.execute(info)}
            columns = columns_of(row_type)
            unread = ours.keys() - {column.name for column in columns}
            assert unread == UNREAD.get(table, set()), table
            for column in columns:
                where = f"{table}.{column.name}"
                if where in READ_ONLY:
                    continue
                kind, given = theirs[where]
                wanted = column.cast.removeprefix("::") or column.type
                kind = POSTGRES_TYPES.get(kind, kind)
                assert kind == wanted, where
                assert ours[column.name][0] == SQLITE_TYPES[column.type], where
                nullable = where == ARCHIVED or (column.nullable and where not in NEVER_NULL)
                assert (given, bool(ours[column.name][1])) == (not nullable, not nullable), where


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
