"""A connection that is made again when it was lost, for one user at a time."""

import select
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Lock
from time import sleep

import psycopg
from psycopg.pq import TransactionStatus

from handrail.store.port import StoreError
from handrail.store.postgres.opening import TOLD, Database, told

PAUSES = (0.0, 0.1, 0.3, 1.0)
"""Seconds before each try to connect again."""
PLANS_LAST = 4096
"""Uses. A plan that was made for an empty table is a bad one for a full one; so all are made again
after 1, 2, 4, 8 uses, and so on up to this, and then always after so many."""
ENDED = ("57P01", "57P02", "57P03", "57P05", "25P03")
"""States after which the server closes the connection."""


class LostError(StoreError):
    """The connection broke while it was used."""


class Link:
    def __init__(self, where: str, connect: Callable[[], Database], first: Database | None) -> None:
        self._where = where
        self._connect = connect
        self._db = first
        self._lock = Lock()
        self._closed = False
        self._uses = 0

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
            try:
                yield db
            except TOLD as error:
                state = error.sqlstate if isinstance(error, psycopg.Error) else None
                if db.closed or state in ENDED:
                    db.close()
                    said = f"{told(error, self._where)}; the connection was lost"
                    raise LostError(said) from error
                raise told(error, self._where) from error
            finally:
                if not db.closed and db.info.transaction_status != TransactionStatus.IDLE:
                    db.close()  # the server rolls back

    def _ready(self) -> Database:
        if self._closed:
            raise StoreError(f"{self._where}: the store is closed")
        if self._db is None or self._db.closed or _ended(self._db):
            self._db = self._connected()
            self._uses = 0
        self._uses += 1
        if self._uses & (self._uses - 1) == 0 or self._uses % PLANS_LAST == 0:
            self._db.pgconn.exec_(b"DISCARD PLANS")
        return self._db

    def _connected(self) -> Database:
        if self._db is not None:
            self._db.close()
        for left, pause in reversed(list(enumerate(reversed(PAUSES)))):
            sleep(pause)
            try:
                return self._connect()
            except StoreError:
                if not left:
                    raise
        raise AssertionError("returned or raised")


def _ended(db: Database) -> bool:
    """Whether the server has said something to an idle connection: that it is over."""
    poll = select.poll()
    poll.register(db.fileno(), select.POLLIN)
    return bool(poll.poll(0))
