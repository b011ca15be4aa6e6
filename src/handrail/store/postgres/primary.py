"""Finds the primary: a database is on one server, or on several of which one takes writes.

When a primary dies and a standby takes over, the timeline of the database goes up by one. An old
primary that comes back by itself takes writes too, on its old timeline: its clients would read
outdated data, and their writes would be discarded. So the finder checks all servers of a URL, takes
the one with the newest timeline, and never one with an older timeline than seen before.
"""

from threading import Lock

import psycopg

from handrail.store.postgres.database import PostgresConnection, connect, parse_url, store_error
from handrail.store.rows import StoreError

NEXT_SERVER_TIMEOUT_SECONDS = "2"
"""Time for a server to answer once another server has been found."""
TIMELINE_SQL = "SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int"
UNKNOWN_TIMELINE = 0


class PrimaryFinder:
    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self.display_name, self._servers = parse_url(url)
        self.read_only = read_only
        self.newest_timeline = UNKNOWN_TIMELINE
        """The newest timeline seen."""
        self._lock = Lock()

    def connect(self) -> tuple[PostgresConnection, int]:
        """Connect to the server that takes writes; return its timeline too. A read-only user also
        gets a standby, which may lag a little, if there is no other."""
        if not self.read_only:
            return self._connect_primary()
        if len(self._servers) > 1:
            try:
                return self._connect_primary()
            except StoreError:
                pass  # the next attempt reports the error if it fails too
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
        """Connect to the server with the newest timeline among those that match `target`."""
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
        return StoreError(
            f"{self.display_name}: only an old primary takes writes ("
            f"timeline {timeline}, and {self.newest_timeline} was seen); "
            "stop it and make it a standby; if it is meant, start Handrail again"
        )


def _read_timeline(db: PostgresConnection) -> int:
    """Return the timeline; UNKNOWN_TIMELINE if the server hides it, as some managed ones do."""
    try:
        row = db.execute(TIMELINE_SQL, prepare=False).fetchone()
    except psycopg.Error:
        return UNKNOWN_TIMELINE
    assert row is not None
    return row[0]
