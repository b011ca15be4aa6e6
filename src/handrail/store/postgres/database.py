"""Connects to a database: checks its owner and version before any write, then creates or migrates.

No error message shows a password: libpq's message about an unreadable URL is not repeated, because
it may quote the password.
"""

from typing import Any, LiteralString

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from handrail.store.migrations import (
    NEWEST_SCHEMA_VERSION,
    check_columns,
    check_schema_version,
    outdated_schema_error,
    read_migrations,
)
from handrail.store.postgres.binary_values import register_adapters
from handrail.store.rows import StoreError

PostgresConnection = psycopg.Connection[tuple[Any, ...]]

MIGRATION_LOCK_ID = 0x48524149
"""The advisory lock for creating or migrating the tables."""
SERVER_VERSION_MIN = 14
CONNECTION_DEFAULTS = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "application_name": "handrail",
}
"""Defaults that the URL may override: a vanished server is noticed within about ten seconds."""
SESSION_SETTINGS_SQL: LiteralString = """
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET jit = off;
SET lock_timeout = '30s';
SET idle_in_transaction_session_timeout = '30s';
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') IN ('off', 'local');
"""
"""Every statement has its index: statistics from when a table was empty must not mislead the
planner. An engine that hangs must not block the others for long. Acknowledged data is on disk, and
on the disk of a standby that commits wait for."""
SERVER_FACTS_SQL: LiteralString = """
SELECT current_setting('server_version_num')::int / 10000, current_setting('server_encoding'),
  current_setting('fsync'), current_setting('full_page_writes'),
  to_regclass('handrail_schema')::text,
  (SELECT string_agg(tablename, ', ' ORDER BY tablename) FROM pg_tables
   WHERE schemaname = current_schema() AND tablename = ANY($1)), current_schema()
"""
KNOWN_TABLES = [
    "agents",
    "approvals",
    "beads",
    "chain",
    "commits",
    "dispatches",
    "journal",
    "workflows",
]
"""Table names that show whether another program uses the database."""


def connect(parameters: dict[str, Any], *, read_only: bool = False) -> PostgresConnection:
    """Open a connection that is ready for statements, without checking the tables."""
    db = psycopg.Connection[tuple[Any, ...]].connect(
        make_conninfo(**{**CONNECTION_DEFAULTS, **parameters}),
        client_encoding="UTF8",
        autocommit=True,
        prepare_threshold=0,
        cursor_factory=psycopg.RawCursor,
    )
    try:
        db.execute(SESSION_SETTINGS_SQL, prepare=False)
        if read_only:
            db.execute("SET default_transaction_read_only = on", prepare=False)
        register_adapters(db)
    except psycopg.Error:
        db.close()
        raise
    return db


def parse_url(url: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the database's name for messages, and libpq's parameters for each of its servers."""
    try:
        parameters = conninfo_to_dict(url)
    except psycopg.Error:
        raise StoreError(
            "the database's URL cannot be read; write it as "
            "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        ) from None
    servers = _split_servers(parameters)
    user = f"{parameters['user']}@" if "user" in parameters else ""
    hosts = ",".join(map(_host_and_port, servers))
    return f"postgresql://{user}{hosts}/{parameters.get('dbname', '')}", servers


def _host_and_port(server: dict[str, Any]) -> str:
    port = f":{server['port']}" if "port" in server else ""
    return f"{server.get('host') or server.get('hostaddr') or ''}{port}"


def _split_servers(parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """Split the parameters of a URL with several servers (`HOST:PORT,HOST:PORT`), per server."""
    names = ("host", "hostaddr", "port")
    lists = {name: str(parameters[name]).split(",") for name in names if name in parameters}
    count = max(len(lists.get("host", ())), len(lists.get("hostaddr", ())))
    if count < 2:
        return [parameters]
    if len(lists.get("port", ())) == 1:
        lists["port"] *= count
    if any(len(values) != count for values in lists.values()):
        raise StoreError(
            "the database's URL has a host without a port; write it as "
            "postgresql://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE"
        )
    common = {name: value for name, value in parameters.items() if name not in lists}
    return [
        {**common, **{name: values[i] for name, values in lists.items() if values[i]}}
        for i in range(count)
    ]


def prepare_schema(
    db: PostgresConnection, display_name: str, *, read_only: bool = False
) -> tuple[str, ...]:
    """Create or migrate the tables to this version. Return warnings about the server."""
    try:
        facts = db.execute(SERVER_FACTS_SQL, (KNOWN_TABLES,), prepare=False).fetchone()
        assert facts is not None
        release, encoding, fsync, full_pages, our_table, foreign_tables, schema = facts
        if release < SERVER_VERSION_MIN:
            raise StoreError(
                f"{display_name} is PostgreSQL {release}; {SERVER_VERSION_MIN} or newer is needed"
            )
        if encoding != "UTF8":
            raise StoreError(
                f"{display_name} has the encoding {encoding}; create a database with UTF8"
            )
        if schema is None:
            raise StoreError(
                f"{display_name}: no schema of its search_path exists; create the schema"
            )
        version = _read_schema_version(db, display_name) if our_table else 0
        if not our_table and foreign_tables:
            raise StoreError(
                f"{display_name} has tables of another program ({foreign_tables}); name "
                "another database, or "
                "another schema with ?options=-csearch_path%3DSCHEMA"
            )
        if version < NEWEST_SCHEMA_VERSION:
            if read_only:
                raise outdated_schema_error(display_name, version)
            _migrate(db, display_name)
        _check_columns(db, display_name)
    except psycopg.Error as error:
        raise store_error(error, display_name) from error
    settings = {"fsync": fsync, "full_page_writes": full_pages}
    return tuple(
        f"{display_name} has {name} = off: a crash of its machine may lose or damage what "
        "was committed"
        for name, value in settings.items()
        if value == "off"
    )


def _read_schema_version(db: PostgresConnection, display_name: str) -> int:
    """Return the version of the existing tables."""
    row = db.execute("SELECT max(version) FROM handrail_schema", prepare=False).fetchone()
    version = (row[0] if row else None) or 0
    check_schema_version(display_name, version)
    return version


def _check_columns(db: PostgresConnection, display_name: str) -> None:
    columns = db.execute(
        "SELECT table_name::text, column_name::text FROM information_schema.columns"
        " WHERE table_schema = current_schema()",
        prepare=False,
    )
    check_columns(display_name, set(columns.fetchall()))


def _migrate(db: PostgresConnection, display_name: str) -> None:
    """Migrate under a lock: a concurrent second process finds it done."""
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock($1)", (MIGRATION_LOCK_ID,), prepare=False)
        schema_table = db.execute("SELECT to_regclass('handrail_schema')", prepare=False).fetchone()
        version = _read_schema_version(db, display_name) if schema_table and schema_table[0] else 0
        for script in read_migrations("postgres", version):
            db.execute(script.encode(), prepare=False)
        db.execute("DELETE FROM handrail_schema", prepare=False)
        db.execute(
            "INSERT INTO handrail_schema VALUES ($1)", (NEWEST_SCHEMA_VERSION,), prepare=False
        )


DATABASE_ERRORS = (psycopg.Error, UnicodeError, OverflowError)
"""Errors of a statement: the latter two for values that no column can hold."""


def store_error(error: Exception, display_name: str, *more_errors: Exception) -> StoreError:
    """Build the error: what is wrong, where, and what to do next."""
    text = "; ".join(dict.fromkeys(map(_error_text, (error, *more_errors))))
    for part, hint in ERROR_HINTS.items():
        if part in text:
            return StoreError(f"{display_name}: {text}; {hint}")
    return StoreError(f"{display_name}: {text}")


def _error_text(error: Exception) -> str:
    detail = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return detail or " ".join(str(error).split()) or type(error).__name__


ERROR_HINTS = {
    "refused": "start the server, or correct host and port",
    "No such file": "start the server, or correct the folder of its socket",
    "translate host name": "correct the host",
    "resolve host": "correct the host",
    "timeout expired": "check host and port, and that nothing blocks the way",
    "password authentication": "correct user and password",
    "no password supplied": "put the password into the URL, or into ~/.pgpass",
    "permission denied": "grant this user the right, or use the user who made the tables",
    'role "': "correct the user, or create it with `createuser`",
    'database "': "create it with `createdb`, or correct the name",
    "pg_hba.conf": "allow this user and host in the server's pg_hba.conf",
    "too many": "close other connections, or raise max_connections; nothing was written",
    "starting up": "wait until the server has started",
    "shutting down": "start the server again",
    "read-only": "connect to the server that takes writes",
    "No space left": "make room on the server's disk; nothing was written",
    "could not extend": "make room on the server's disk; nothing was written",
    "deadlock": "nothing was written; try again",
    "could not serialize": "nothing was written; try again",
    "lock timeout": "another engine stands still; nothing was written; try again",
}
