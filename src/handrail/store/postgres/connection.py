"""A connection that reconnects when it is lost, for one user at a time.

Rules
1. The server may still execute a statement of a lost connection after a reader has seen no effect
   of it. So a new connection is used only when the previous one has ended on the server.
2. Where commits wait for a standby, an interrupted commit is visible before the standby has it; so
   is everything after a crash. A new connection is used only when all earlier writes are
   confirmed: no answer rests on data that may still be lost.
3. A server that does not answer for ANSWER_SECONDS counts as lost. It may hang with its connections
   open; and a commit may wait for a standby that is away.
4. When one connection has found a server that took over, those to the old server are dropped.
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

from handrail.store.postgres.database import DATABASE_ERRORS, PostgresConnection, store_error
from handrail.store.postgres.primary import PrimaryFinder
from handrail.store.rows import StoreError

RECONNECT_PAUSES_SECONDS = (0.0, 0.1, 0.3, 1.0)
"""Pauses before each attempt to reconnect."""
PLAN_USES_MAX = 4096
"""A plan made for an empty table is bad for a full one; so all plans are discarded after 1, 2, 4, 8
uses and so on up to this number, and then after every so many uses."""
ANSWER_SECONDS = 45
"""Longer than the server waits for a lock."""
WATCH_SECONDS = 1
TERMINATE_MILLISECONDS = 5_000
CONNECTION_ENDED_STATES = ("57P01", "57P02", "57P03", "57P05", "25P03", "25P04")
"""States after which the server closes the connection."""
READ_ONLY_STATE = "25006"
"""The server takes no writes, any more or yet: the next attempt looks for a server that does."""
FIND_BACKEND_SQL = """
SELECT wait_event FROM pg_stat_activity
WHERE pid = $1 AND extract(epoch FROM backend_start)::text = $2
"""
TERMINATE_BACKEND_SQL = "SELECT pg_terminate_backend($1::integer, $2)"
CONFIRM_WRITES_SQL = """
SELECT pid, extract(epoch FROM backend_start)::text, pg_logical_emit_message(true, 'handrail', '')
FROM pg_stat_activity WHERE pid = pg_backend_pid()
"""
"""An empty write: once committed, every earlier write is committed too, on all required servers."""
STANDBY_WAIT_EVENT, STANDBY_WAIT_FUNCTION = "SyncRep", "SyncRepWaitForLSN"


class ConnectionLostError(StoreError):
    """The connection broke during use."""


def _prepare_nothing(db: PostgresConnection) -> None:
    """Prepare nothing: the default for connections without statements of their own."""


class ReconnectingConnection:
    def __init__(
        self,
        primary_finder: PrimaryFinder,
        first: tuple[PostgresConnection, int] | None = None,
        *,
        prepare: Callable[[PostgresConnection], None] = _prepare_nothing,
    ) -> None:
        self._primary_finder, self._prepare = primary_finder, prepare
        self._db: PostgresConnection | None = None
        self._previous_backend: tuple[int, str] | None = None
        """The server process of the last connection, and its start time."""
        self._lock = Lock()
        self._closed = False
        self._watch_lock = Lock()
        self._busy_since: float | None = None
        if first is not None:
            self._adopt(*first)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._db is not None:
                self._db.close()

    @contextmanager
    def use(self) -> Generator[PostgresConnection]:
        """Yield the connection. Errors are raised as StoreError; afterwards the connection is idle
        or closed."""
        with self._lock:
            db = self._live_database()
            with self._translate_errors(db):
                if not self._is_confirmed:
                    self._confirm(db)
                self._discard_old_plans(db)
                yield db

    @contextmanager
    def _translate_errors(self, db: PostgresConnection) -> Generator[None]:
        display_name = self._primary_finder.display_name
        self._start_watch(db)
        try:
            yield
        except DATABASE_ERRORS as error:
            state = error.sqlstate if isinstance(error, psycopg.Error) else None
            if db.closed or state in CONNECTION_ENDED_STATES:
                db.close()
                reason = (
                    self._silence_message()
                    if self._overdue
                    else str(store_error(error, display_name))
                )
                raise ConnectionLostError(f"{reason}; the connection was lost") from error
            if state == READ_ONLY_STATE:
                db.close()
            raise store_error(error, display_name) from error
        else:
            if self._standby_wait_cancelled:
                db.close()
                reason = "the wait for the standby was cancelled on the server"
                raise ConnectionLostError(f"{display_name}: {reason}; the connection was given up")
        finally:
            self._stop_watch()
            idle = db.closed or db.info.transaction_status == TransactionStatus.IDLE
            if not idle or not self._is_confirmed:
                db.close()  # the server rolls back

    def _live_database(self) -> PostgresConnection:
        if self._closed:
            raise StoreError(f"{self._primary_finder.display_name}: the store is closed")
        db = self._db
        if (
            db is None
            or db.closed
            or self._timeline < self._primary_finder.newest_timeline
            or _has_server_closed(db)
        ):
            if db is not None:
                db.close()
            db = self._adopt(*self._reconnect())
        return db

    def _adopt(self, db: PostgresConnection, timeline: int) -> PostgresConnection:
        self._db, self._timeline = db, timeline
        self._is_confirmed = self._standby_wait_cancelled = False
        self._uses = 0
        db.add_notice_handler(self._on_notice)
        return db

    def _reconnect(self) -> tuple[PostgresConnection, int]:
        for left, pause in reversed(list(enumerate(reversed(RECONNECT_PAUSES_SECONDS)))):
            sleep(pause)
            try:
                return self._primary_finder.connect()
            except StoreError:
                if not left:
                    raise
        raise AssertionError("returned or raised")

    def _confirm(self, db: PostgresConnection) -> None:
        """Apply rules 1 and 2, then prepare the connection for its purpose."""
        if not self._primary_finder.read_only:
            self._terminate_previous_backend(db)
            row = db.execute(CONFIRM_WRITES_SQL, prepare=False).fetchone()
            assert row is not None
            self._previous_backend = row[0], row[1]
        self._prepare(db)
        self._is_confirmed = True

    def _terminate_previous_backend(self, db: PostgresConnection) -> None:
        """Terminate the server process of the last connection. A process that waits for a standby
        has committed: terminating it would make data visible that may still be lost."""
        if self._previous_backend is None:
            return
        row = db.execute(FIND_BACKEND_SQL, self._previous_backend, prepare=False).fetchone()
        if row is None:
            return
        pid, _ = self._previous_backend
        if row[0] == STANDBY_WAIT_EVENT:
            problem = "a commit waits for a standby that is away"
            raise StoreError(
                f"{self._primary_finder.display_name}: {problem}; "
                "start the standby, or take it out of synchronous_standby_names"
            )
        if db.execute(
            TERMINATE_BACKEND_SQL, (pid, TERMINATE_MILLISECONDS), prepare=False
        ).fetchone() != (True,):
            problem = f"the server's process {pid} does not end"
            raise StoreError(
                f"{self._primary_finder.display_name}: {problem}; end it on the server"
            )

    def _silence_message(self) -> str:
        return (
            f"{self._primary_finder.display_name}: no answer for {ANSWER_SECONDS} s; "
            "it stands still, or waits for a standby that is away"
        )

    def _on_notice(self, notice: Diagnostic) -> None:
        """Notice a cancelled wait for the standby: the server reports such a commit as done, with a
        warning."""
        if notice.source_function == STANDBY_WAIT_FUNCTION:
            self._standby_wait_cancelled = True

    def _discard_old_plans(self, db: PostgresConnection) -> None:
        self._uses += 1
        if self._uses & (self._uses - 1) == 0 or self._uses % PLAN_USES_MAX == 0:
            db.pgconn.exec_(b"DISCARD PLANS")

    # The watchdog

    def _start_watch(self, db: PostgresConnection) -> None:
        with self._watch_lock:
            self._busy_since, self._overdue = monotonic(), False
            self._socket_fd = os.dup(
                db.fileno()
            )  # our duplicate: it refers to this connection until we close it

    def _stop_watch(self) -> None:
        with self._watch_lock:
            self._busy_since = None
            os.close(self._socket_fd)

    def break_if_overdue(self) -> None:
        """Shut down an overdue connection, so that its waiting user gets an error. Called by the
        watchdog on its own thread."""
        with self._watch_lock:
            if self._busy_since is None or monotonic() - self._busy_since < ANSWER_SECONDS:
                return
            self._overdue = True
            sock = socket.socket(fileno=self._socket_fd)
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:  # the server was faster
                pass
            finally:
                sock.detach()


class ConnectionWatchdog:
    """Breaks connections that the server does not answer."""

    def __init__(self, connections: Sequence[ReconnectingConnection]) -> None:
        self._connections = connections
        self._stopped = Event()
        Thread(target=self._run, name="handrail-watch", daemon=True).start()

    def close(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(WATCH_SECONDS):
            for connection in self._connections:
                connection.break_if_overdue()


def _has_server_closed(db: PostgresConnection) -> bool:
    """Return whether the server closed an idle connection: only then has it sent something."""
    poll = select.poll()
    poll.register(db.fileno(), select.POLLIN)
    return bool(poll.poll(0))
