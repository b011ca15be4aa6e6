"""A PostgreSQL that can follow another one, take over from it, and follow again: for failovers.

    with Replica(tcp=True) as first, Replica(tcp=True) as second:
        first.start()
        second.follow(first)
        first.wait_for_standby(True)  # from now on a commit waits for the other one's disk
        ...
        first.kill()
        second.wait_for_standby(False)  # as a failover manager does: one must be enough now
        second.promote()
        first.follow(second, rewind=True)

The standby's data is a base backup of the primary, or the old primary's own data, rewound to where
the two went separate ways. All of them have one password.
"""

import shutil
from collections.abc import Sequence
from urllib.parse import quote

from handrail.testing.postgres import ROLE, START_SECONDS, PostgresError, PostgresServer, within

STREAMING = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
SYNCHRONOUS = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"


class Replica(PostgresServer):
    """One of two or more; begins as a server of its own."""

    def __enter__(self) -> "Replica":
        """Starts when it is asked to: as a primary by `start`, as a standby by `follow`."""
        return self

    def url_of_both(self, other: "Replica", database: str) -> str:
        """That database here or there: whichever takes writes."""
        assert self._tcp, "with a port of its own"
        assert other._tcp, "with a port of its own"
        hosts = f"127.0.0.1:{self._port},127.0.0.1:{other._port}"
        return f"postgresql://{ROLE}:{self._password}@{hosts}/{quote(database, safe='')}"

    def follow(self, primary: "Replica", *, rewind: bool = False) -> None:
        """Become its standby, and stream from it. `rewind` keeps the data that is here."""
        assert not self.running, "stop it first"
        home = self._moved_in()
        data, where = self.folder / "data", f"host={primary._own} port={primary._port} user={ROLE}"
        log = self.folder / "follow.log"
        primary.set("wal_keep_size", "256MB")  # a rewind needs the log back to where they parted
        if rewind:
            source = f"--source-server={where} dbname={ROLE}"
            home.run(log, "pg_rewind", "-R", "-D", str(data), source)
        else:
            shutil.rmtree(data, ignore_errors=True)
            choices = ("-R", "-X", "stream", "-c", "fast", "--no-sync")
            home.run(log, "pg_basebackup", "-D", str(data), "-d", where, *choices)
        self._password = primary._password
        self.start()
        primary.ask_until(STREAMING, [(1,)])

    def promote(self) -> None:
        """Take writes from now on."""
        self.ask(f"SELECT pg_promote(true, {START_SECONDS})")

    def wait_for_standby(self, wanted: bool) -> None:
        """Whether a commit waits until a standby has it on disk."""
        self.set("synchronous_standby_names", "*" if wanted else "")
        if wanted:
            self.ask_until(SYNCHRONOUS, [(1,)])

    def cut_off(self) -> None:
        """As a standby: hear nothing more from the primary."""
        self.set("primary_conninfo", "")
        self.ask_until("SELECT count(*) FROM pg_stat_wal_receiver", [(0,)])

    def set(self, name: str, value: str) -> None:
        """A setting, in the file that goes along with the data; returns when it is in force."""
        self.ask(f"ALTER SYSTEM SET {name} = '{value}'")
        self.ask("SELECT pg_reload_conf()")
        self.ask_until(f"SHOW {name}", [(value,)])

    def ask(self, query: str) -> list[tuple[object, ...]]:
        import psycopg

        with psycopg.connect(self._socket_url(ROLE), autocommit=True) as connection:
            found = connection.execute(query.encode())
            return found.fetchall() if found.description else []

    def ask_until(self, query: str, answer: Sequence[tuple[object, ...]]) -> None:
        if not within(START_SECONDS, lambda: self.ask(query) == answer):
            raise PostgresError(f"{query} is {self.ask(query)}, not {answer}:\n{self.log_tail()}")
