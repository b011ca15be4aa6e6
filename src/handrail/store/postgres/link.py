"""A connection that is made again when it was lost, for one user at a time.

Rules
1. What was sent over a lost connection may still be done by the server, after whoever looks has
   seen that it was not. So a new connection is used only when the one before has ended there.
2. Where commits wait for a standby, one that broke off meanwhile can be seen though the standby
   does not have it; so can everything after a crash. A new connection is used only when all that
   was written before it is confirmed: nobody is answered by what could be lost yet.
3. A server that says nothing for ANSWER_SECONDS is taken for lost. It may stand still with its
   connections open; and a commit may wait for a standby that is away.
4. When one connection has found a server that took over, those to the old one are given up.
"""

import os
import select
import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from threading import Event, Lock, Thread
from time import monotonic, sleep

import psycopg
from psycopg.errors import Diagnostic
from psycopg.pq import TransactionStatus

from handrail.store.port import StoreError
from handrail.store.postgres.opening import TOLD, Database, told
from handrail.store.postgres.servers import Servers

PAUSES = (0.0, 0.1, 0.3, 1.0)
"""Seconds before each try to connect again."""
PLANS_LAST = 4096
"""Uses. A plan that was made for an empty table is a bad one for a full one; so all are made again
after 1, 2, 4, 8 uses, and so on up to this, and then always after so many."""
ANSWER_SECONDS = 45
"""Longer than the server waits for a lock."""
WATCH_SECONDS = 1
END_MILLISECONDS = 5_000
ENDED = ("57P01", "57P02", "57P03", "57P05", "25P03", "25P04")
"""States after which the server closes the connection."""
READ_ONLY = "25006"
"""This server does not take writes, any more or yet: the next try looks for one that does."""
BEFORE = """
SELECT wait_event FROM pg_stat_activity
WHERE pid = $1 AND extract(epoch FROM backend_start)::text = $2
"""
END = "SELECT pg_terminate_backend($1, $2)"
CONFIRM = """
SELECT pid, extract(epoch FROM backend_start)::text, pg_logical_emit_message(true, 'handrail', '')
FROM pg_stat_activity WHERE pid = pg_backend_pid()
"""
"""A write of nothing: when it is committed, so is everything before it, wherever it has to be."""
STANDBY_WAIT, STANDBY_CODE = "SyncRep", "SyncRepWaitForLSN"


class LostError(StoreError):
    """The connection broke while it was used."""


def _plain(db: Database) -> None:
    """A connection that needs no preparation."""


class Link:
    def __init__(
        self,
        servers: Servers,
        first: tuple[Database, int] | None = None,
        *,
        prepare: Callable[[Database], None] = _plain,
    ) -> None:
        self._servers, self._prepare = servers, prepare
        self._db: Database | None = None
        self._before: tuple[int, str] | None = None
        """The server's process behind the last connection, and when it began."""
        self._lock = Lock()
        self._closed = False
        self._watched = Lock()
        self._since: float | None = None
        if first is not None:
            self._take(*first)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._db is not None:
                self._db.close()

    @contextmanager
    def use(self) -> Generator[Database]:
        """What goes wrong comes out as a StoreError; the connection is idle afterwards, or gone."""
        with self._lock:
            db = self._ready()
            with self._telling(db):
                if not self._settled:
                    self._settle(db)
                self._renew_plans(db)
                yield db

    @contextmanager
    def _telling(self, db: Database) -> Generator[None]:
        where = self._servers.where
        self._begin(db)
        try:
            yield
        except TOLD as error:
            state = error.sqlstate if isinstance(error, psycopg.Error) else None
            if db.closed or state in ENDED:
                db.close()
                said = self._silence() if self._overdue else str(told(error, where))
                raise LostError(f"{said}; the connection was lost") from error
            if state == READ_ONLY:
                db.close()
            raise told(error, where) from error
        else:
            if self._unconfirmed:
                db.close()
                said = "the wait for the standby was broken off by somebody"
                raise LostError(f"{where}: {said}; the connection was given up")
        finally:
            self._end()
            idle = db.closed or db.info.transaction_status == TransactionStatus.IDLE
            if not idle or not self._settled:
                db.close()  # the server rolls back

    def _ready(self) -> Database:
        if self._closed:
            raise StoreError(f"{self._servers.where}: the store is closed")
        db = self._db
        if db is None or db.closed or self._timeline < self._servers.newest or _ended(db):
            if db is not None:
                db.close()
            db = self._take(*self._connected())
        return db

    def _take(self, db: Database, timeline: int) -> Database:
        self._db, self._timeline = db, timeline
        self._settled = self._unconfirmed = False
        self._uses = 0
        db.add_notice_handler(self._hear)
        return db

    def _connected(self) -> tuple[Database, int]:
        for left, pause in reversed(list(enumerate(reversed(PAUSES)))):
            sleep(pause)
            try:
                return self._servers.connect()
            except StoreError:
                if not left:
                    raise
        raise AssertionError("returned or raised")

    def _settle(self, db: Database) -> None:
        """By rules 1 and 2; then whatever the connection is for."""
        if not self._servers.read_only:
            self._end_before(db)
            row = db.execute(CONFIRM, prepare=False).fetchone()
            assert row is not None
            self._before = row[0], row[1]
        self._prepare(db)
        self._settled = True

    def _end_before(self, db: Database) -> None:
        """The process behind the last connection. One that waits for a standby has committed: if it
        were ended, everybody would see what may be lost yet."""
        if self._before is None:
            return
        row = db.execute(BEFORE, self._before, prepare=False).fetchone()
        if row is None:
            return
        pid, _ = self._before
        if row[0] == STANDBY_WAIT:
            said = "a commit waits for a standby that is away"
            hint = "start the standby, or take it out of synchronous_standby_names"
            raise StoreError(f"{self._servers.where}: {said}; {hint}")
        ended = db.execute(END, (pid, END_MILLISECONDS), prepare=False).fetchone()
        if ended != (True,):
            said = f"the server's process {pid} does not end"
            raise StoreError(f"{self._servers.where}: {said}; end it on the server")

    def _silence(self) -> str:
        why = "it stands still, or waits for a standby that is away"
        return f"{self._servers.where}: no answer for {ANSWER_SECONDS} s; {why}"

    def _hear(self, said: Diagnostic) -> None:
        """A commit whose wait for the standby was cancelled is told of as done, with a warning."""
        if said.source_function == STANDBY_CODE:
            self._unconfirmed = True

    def _renew_plans(self, db: Database) -> None:
        self._uses += 1
        if self._uses & (self._uses - 1) == 0 or self._uses % PLANS_LAST == 0:
            db.pgconn.exec_(b"DISCARD PLANS")

    # Being watched

    def _begin(self, db: Database) -> None:
        with self._watched:
            self._since, self._overdue = monotonic(), False
            self._line = os.dup(db.fileno())  # ours: it means this connection until we close it

    def _end(self) -> None:
        with self._watched:
            self._since = None
            os.close(self._line)

    def look(self) -> None:
        """By the watch, on its own thread: the line is shut, and whoever waits for it hears it."""
        with self._watched:
            if self._since is None or monotonic() - self._since < ANSWER_SECONDS:
                return
            self._overdue = True
            line = socket.socket(fileno=self._line)
            try:
                line.shutdown(socket.SHUT_RDWR)
            except OSError:  # the server was faster
                pass
            finally:
                line.detach()


class Watch:
    """Looks whether connections are answered."""

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = links
        self._over = Event()
        Thread(target=self._look, name="handrail-watch", daemon=True).start()

    def close(self) -> None:
        self._over.set()

    def _look(self) -> None:
        while not self._over.wait(WATCH_SECONDS):
            for link in self._links:
                link.look()


def _ended(db: Database) -> bool:
    """Whether the server has said something to an idle connection: that it is over."""
    poll = select.poll()
    poll.register(db.fileno(), select.POLLIN)
    return bool(poll.poll(0))
