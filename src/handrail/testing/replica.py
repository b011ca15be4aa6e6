"""A PostgreSQL server that can follow another, take over from it, and follow again: for failovers.

    with Replica(tcp=True) as first, Replica(tcp=True) as second:
        first.start()
        second.follow(first)
        first.require_standby(True)  # from now on a commit waits for the standby's disk
        ...
        first.kill()
        second.require_standby(False)  # as a failover manager does: one server must be enough
        second.promote()
        first.follow(second, rewind=True)

The standby's data is a base backup of the primary, or the old primary's own data, rewound to where
the two diverged. All servers have the same password.
"""

import shutil
from collections.abc import Sequence
from urllib.parse import quote

from handrail.testing.postgres import ROLE, START_SECONDS, PostgresError, PostgresServer, wait_until

STREAMING_STANDBYS_SQL = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
SYNCHRONOUS_STANDBYS_SQL = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"


class Replica(PostgresServer):
    """One of two or more servers; starts as an independent server."""

    def __enter__(self) -> "Replica":
        """Do not start yet: `start` starts a primary, `follow` a standby."""
        return self

    def url_with(self, other: "Replica", database: str) -> str:
        """Return a URL of the database on both servers, for the one that takes writes."""
        assert self._tcp, "with a port of its own"
        assert other._tcp, "with a port of its own"
        hosts = f"127.0.0.1:{self._port},127.0.0.1:{other._port}"
        return f"postgresql://{ROLE}:{self._password}@{hosts}/{quote(database, safe='')}"

    def follow(self, primary: "Replica", *, rewind: bool = False) -> None:
        """Become the primary's standby, and stream from it. `rewind` keeps the local data."""
        assert not self.running, "stop it first"
        workspace = self._enter_workspace()
        data, primary_dsn = (
            self.folder / "data",
            f"host={primary._socket_folder} port={primary._port} user={ROLE}",
        )
        log = self.folder / "follow.log"
        primary.set_setting(
            "wal_keep_size", "256MB"
        )  # a rewind needs the log back to where they diverged
        if rewind:
            source = f"--source-server={primary_dsn} dbname={ROLE}"
            workspace.run(log, "pg_rewind", "-R", "-D", str(data), source)
        else:
            shutil.rmtree(data, ignore_errors=True)
            options = ("-R", "-X", "stream", "-c", "fast", "--no-sync")
            workspace.run(log, "pg_basebackup", "-D", str(data), "-d", primary_dsn, *options)
        self._password = primary._password
        self.start()
        primary.wait_for_rows(STREAMING_STANDBYS_SQL, [(1,)])

    def promote(self) -> None:
        """Take writes from now on."""
        self.query(f"SELECT pg_promote(true, {START_SECONDS})")

    def require_standby(self, required: bool) -> None:
        """Set whether a commit waits until a standby has it on disk."""
        self.set_setting("synchronous_standby_names", "*" if required else "")
        if required:
            self.wait_for_rows(SYNCHRONOUS_STANDBYS_SQL, [(1,)])

    def stop_streaming(self) -> None:
        """Stop a standby from receiving data from the primary."""
        self.set_setting("primary_conninfo", "")
        self.wait_for_rows("SELECT count(*) FROM pg_stat_wal_receiver", [(0,)])

    def set_setting(self, name: str, value: str) -> None:
        """Change a setting in the file beside the data; return when it is in force."""
        self.query(f"ALTER SYSTEM SET {name} = '{value}'")
        self.query("SELECT pg_reload_conf()")
        self.wait_for_rows(f"SHOW {name}", [(value,)])

    def query(self, statement: str) -> list[tuple[object, ...]]:
        import psycopg

        with psycopg.connect(self._socket_url(ROLE), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def wait_for_rows(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        if not wait_until(START_SECONDS, lambda: self.query(statement) == rows):
            raise PostgresError(
                f"{statement} is {self.query(statement)}, not {rows}:\n{self.log_tail()}"
            )
