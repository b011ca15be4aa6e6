"""Which server: a database may be on one, or on several of which one takes writes.

When a primary dies and a standby takes over, the timeline of the database goes up by one. An old
primary that comes back by itself takes writes too, on its old timeline: whoever went there would
read what is over, and write what will be thrown away. So the servers of a URL are all looked at,
the one with the newest timeline is taken, and none is that is older than one that was seen before.
"""

from threading import Lock

import psycopg

from handrail.store.engine_store import StoreError
from handrail.store.postgres.database import PostgresConnection, connect, parse_url, store_error

NEXT_SERVER_TIMEOUT_SECONDS = "2"
"""How long a server may take to answer once another one has been found."""
TIMELINE_SQL = "SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int"
UNKNOWN_TIMELINE = 0


class PrimaryFinder:
    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self.display_name, self._servers = parse_url(url)
        self.read_only = read_only
        self.newest_timeline = UNKNOWN_TIMELINE
        """The newest timeline that was seen."""
        self._lock = Lock()

    def connect(self) -> tuple[PostgresConnection, int]:
        """A connection to the server that takes writes, and its timeline. Who only reads is content
        with a standby, which may be a little behind, if there is no other."""
        if not self.read_only:
            return self._connect_primary()
        if len(self._servers) > 1:
            try:
                return self._connect_primary()
            except StoreError:
                pass  # whatever it is, it is told if the next try fails too
        return self._connect_newest("any")

    def _connect_primary(self) -> tuple[PostgresConnection, int]:
        db, timeline = self._connect_newest("read-write")
        with self._lock:
            if timeline < self.newest_timeline:
                db.close()
                raise self._outdated_error(timeline)
            self.newest_timeline = timeline
        return db, timeline

    def _connect_newest(self, target: str) -> tuple[PostgresConnection, int]:
        """Of the servers that are so, the one with the newest timeline."""
        newest_db: PostgresConnection | None = None
        newest_timeline = UNKNOWN_TIMELINE
        errors: list[psycopg.Error] = []
        for server in self._servers:
            timeout = (
                {"connect_timeout": NEXT_SERVER_TIMEOUT_SECONDS} if newest_db is not None else {}
            )
            parameters = {"target_session_attrs": target, **server, **timeout}
            try:
                db = connect(parameters, read_only=self.read_only)
            except psycopg.Error as error:
                errors.append(error)
                continue
            timeline = _read_timeline(db)
            if newest_db is None or timeline > newest_timeline:
                db, newest_db, newest_timeline = newest_db, db, timeline
            if db is not None:
                db.close()
        if newest_db is None:
            raise store_error(errors[0], self.display_name, *errors[1:]) from errors[0]
        return newest_db, newest_timeline

    def _outdated_error(self, timeline: int) -> StoreError:
        timelines = f"timeline {timeline}, and {self.newest_timeline} was seen"
        hint = "stop it and make it a standby; if it is meant, start Handrail again"
        return StoreError(
            f"{self.display_name}: only an old primary takes writes ({timelines}); {hint}"
        )


def _read_timeline(db: PostgresConnection) -> int:
    """Unknown where the server does not tell, as some that are run by others."""
    try:
        row = db.execute(TIMELINE_SQL, prepare=False).fetchone()
    except psycopg.Error:
        return UNKNOWN_TIMELINE
    assert row is not None
    return row[0]
