"""Which server: a database may be on one, or on several of which one takes writes.

When a primary dies and a standby takes over, the timeline of the database goes up by one. An old
primary that comes back by itself takes writes too, on its old timeline: whoever went there would
read what is over, and write what will be thrown away. So the servers of a URL are all looked at,
the one with the newest timeline is taken, and none is that is older than one that was seen before.
"""

from threading import Lock

import psycopg

from handrail.store.port import StoreError
from handrail.store.postgres.opening import Database, address, connect, told

SECOND_LOOK_SECONDS = "2"
"""How long a server may take to answer once another one has been found."""
TIMELINE = "SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int"
UNKNOWN = 0


class Servers:
    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self.where, self._servers = address(url)
        self.read_only = read_only
        self.newest = UNKNOWN
        """The newest timeline that was seen."""
        self._lock = Lock()

    def connect(self) -> tuple[Database, int]:
        """A connection to the server that takes writes, and its timeline. Who only reads is content
        with a standby, which may be a little behind, if there is no other."""
        if not self.read_only:
            return self._primary()
        if len(self._servers) > 1:
            try:
                return self._primary()
            except StoreError:
                pass  # whatever it is, it is told if the next try fails too
        return self._found("any")

    def _primary(self) -> tuple[Database, int]:
        db, timeline = self._found("read-write")
        with self._lock:
            if timeline < self.newest:
                db.close()
                raise self._outdated(timeline)
            self.newest = timeline
        return db, timeline

    def _found(self, target: str) -> tuple[Database, int]:
        """Of the servers that are so, the one with the newest timeline."""
        found: Database | None = None
        newest = UNKNOWN
        failed: list[psycopg.Error] = []
        for server in self._servers:
            hurry = {"connect_timeout": SECOND_LOOK_SECONDS} if found is not None else {}
            wanted = {"target_session_attrs": target, **server, **hurry}
            try:
                db = connect(wanted, read_only=self.read_only)
            except psycopg.Error as error:
                failed.append(error)
                continue
            timeline = _timeline(db)
            if found is None or timeline > newest:
                db, found, newest = found, db, timeline
            if db is not None:
                db.close()
        if found is None:
            raise told(failed[0], self.where, *failed[1:]) from failed[0]
        return found, newest

    def _outdated(self, timeline: int) -> StoreError:
        seen = f"timeline {timeline}, and {self.newest} was seen"
        hint = "stop it and make it a standby; if it is meant, start Handrail again"
        return StoreError(f"{self.where}: only an old primary takes writes ({seen}); {hint}")


def _timeline(db: Database) -> int:
    """Unknown where the server does not tell, as some that are run by others."""
    try:
        row = db.execute(TIMELINE, prepare=False).fetchone()
    except psycopg.Error:
        return UNKNOWN
    assert row is not None
    return row[0]
