"""The caretaker's store on SQLite: one moment of a live file, its sizes, its copies.

A backup is a copy of all pages as of one read transaction; engines go on writing meanwhile. A
restore makes a copy of the backup first, brings it up to date and looks at it; only then all its
pages go into the live file in one transaction. Connections that are open on the file see them as
they would see any other commit.
"""

import os
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

from handrail.store.files import new_file, sync_folder
from handrail.store.port import LockState, StoreError, Stream, Transition, Write
from handrail.store.records import (
    IRREGULAR_MAX,
    LIVE_TABLES,
    BrokenBackup,
    Irregular,
    Pruned,
    Records,
    Sizes,
    TableSize,
)
from handrail.store.sqlite.opening import APPLICATION_ID, MEMORY, TOLD, schema_version, told
from handrail.store.sqlite.store import SQL, Rows, SqliteStore, row_of

TABLES = r"""
SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'
AND name NOT LIKE 'memory\_words\_%' ESCAPE '\' ORDER BY 1
"""
BYTES = r"""
SELECT iif(m.tbl_name LIKE 'memory\_words\_%' ESCAPE '\', 'memory_words', m.tbl_name),
  sum(s.pgsize)
FROM dbstat s JOIN sqlite_master m ON m.name = s.name GROUP BY 1
"""
"""Full-text search keeps its index in tables of its own, which count as the one that is asked."""
PRUNE = (
    *("prune_transitions", "prune_approvals", "prune_notes", "prune_bodies", "prune_bead"),
    "prune_uses",
)


class SqliteRecords(SqliteStore):
    def __init__(self, path: str, *, read_only: bool = False) -> None:
        super().__init__(path, read_only=read_only)
        self.where = path

    def _all(self, name: str, *values: object) -> Rows:
        """Also what somebody changed to bytes that are no text: as signs that no text has."""
        try:
            return super()._all(name, *values)
        except StoreError as error:
            if "decode to UTF-8" not in str(error):
                raise
        with self._lock:
            self._db.text_factory = _any_bytes
            try:
                return super()._all(name, *values)
            finally:
                self._db.text_factory = str

    @contextmanager
    def reading(self) -> Generator[None]:
        with self._lock:
            try:
                self._db.execute("BEGIN")
                self._db.execute(SQL["last_commit"]).fetchone()  # the moment is that of this look
            except TOLD as error:
                raise told(error, self.path) from error
            try:
                yield
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def transition_rows(
        self, execution_id: str, after_id: int, limit: int
    ) -> list[tuple[int, Transition]]:
        rows = self._all("transition_rows", execution_id, after_id, limit)
        return [(row[0], row_of(Transition, row[1:])) for row in rows]

    def locks(self) -> list[LockState]:
        return [row_of(LockState, row) for row in self._all("all_locks")]

    def streams(self) -> list[Stream]:
        return [row_of(Stream, row) for row in self._all("all_streams")]

    def irregular(self, kind: Literal["doctor", "stray"], now: str = "") -> list[Irregular]:
        found: list[Irregular] = []
        for name, statement in SQL.items():
            if name.startswith(f"{kind}_"):
                values = (now,) if "?1" in statement else ()
                with self._lock:
                    try:
                        rows = self._db.execute(statement, values).fetchmany(IRREGULAR_MAX)
                    except TOLD as error:
                        raise told(error, self.path) from error
                code = name.removeprefix(f"{kind}_")
                found += [Irregular(code=code, subject=str(s), detail=str(d)) for s, d in rows]
        return found

    def finished(self, before: str, after: str, limit: int) -> list[str]:
        return [run_id for (run_id,) in self._all("finished", before, after, limit)]

    def prune(self, care: Write, runs: Sequence[Pruned], at: str) -> None:
        def remove(db: sqlite3.Connection, won: list[bool]) -> None:
            if won != [True]:
                raise StoreError(f"{self.where}: somebody else archives at this moment; try again")
            for run in runs:
                db.execute(SQL["settle_memory"], (run.id,))
                values = (run.id, run.head, run.notes)
                if db.execute(SQL["prune_execution"], values).rowcount != 1:
                    told = f"run {run.id} has changed since it was written to the archive"
                    raise StoreError(f"{self.where}: {told}; archive it again")
                for name in PRUNE:
                    db.execute(SQL[name], (run.id,))

        self._commit([care], at, remove)

    def sizes(self) -> Sizes:
        with self._lock:
            try:
                return self._sizes()
            except TOLD as error:
                raise told(error, self.path) from error

    def _sizes(self) -> Sizes:
        db = self._db
        try:
            taken = dict(db.execute(BYTES).fetchall())
        except sqlite3.OperationalError:
            taken = {}  # this SQLite was built without `dbstat`
        names = [name for (name,) in db.execute(TABLES)]
        counts = {name: f'SELECT count(*) FROM "{name}"' for name in names}  # noqa: S608 - our own
        rows = {name: db.execute(query).fetchone()[0] for name, query in counts.items()}
        (page,), (pages,), (free,) = (
            db.execute(f"PRAGMA {what}").fetchone()
            for what in ("page_size", "page_count", "freelist_count")
        )
        log = Path(f"{self.path}-wal")
        return Sizes(
            tables=[TableSize(name=n, rows=rows[n], bytes=taken.get(n)) for n in names],
            bytes=page * pages,
            log_bytes=log.stat().st_size if self.path != MEMORY and log.exists() else 0,
            free_bytes=page * free,
        )

    def is_empty(self) -> bool:
        row = self._one("anything")
        return row is None or not row[0]

    def backup(self, file: Path) -> None:
        with new_file(file) as part:
            self._copy_to(part)

    def _copy_to(self, part: Path) -> None:
        """One file, without a log beside it."""
        try:
            with closing(sqlite3.connect(part)) as copy, self._lock:
                self._db.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")
        except TOLD as error:
            raise told(error, str(part)) from error

    def restore(self, file: Path, now: str, check: Callable[[Records], None]) -> None:
        assert self.path != MEMORY, "a database in memory is nobody's to restore"
        _is_ours(file)
        folder = Path(self.path).absolute().parent
        part = folder / f".{Path(self.path).name}.restore-{os.getpid()}"
        try:
            with closing(_connected(file)) as backup, closing(sqlite3.connect(part)) as copy:
                backup.backup(copy)
            self._restore(part, now, check)
        except sqlite3.Error as error:
            raise BrokenBackup(f"{told(error, str(file))}; nothing was restored") from error
        finally:
            for end in ("", "-wal", "-shm", "-journal"):
                Path(f"{part}{end}").unlink(missing_ok=True)

    def _restore(self, part: Path, now: str, check: Callable[[Records], None]) -> None:
        with closing(SqliteRecords(str(part))) as copy:  # brought up to date here
            check(copy)
            last = copy.last_alive()
            if last is not None and last < now:
                copy.add_outage(last, now)
            with self._lock:
                for table in LIVE_TABLES:
                    copy._take_over(table, self._db)
                try:
                    copy._db.backup(self._db)
                    self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")
                except TOLD as error:
                    raise told(error, self.path) from error
                self._version = -1
        sync_folder(Path(self.path).absolute().parent)

    def _take_over(self, table: str, live: sqlite3.Connection) -> None:
        """Who is there stays there."""
        rows = live.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - our own
        with self._writing() as db:
            db.execute(f"DELETE FROM {table}")  # noqa: S608
            if rows:
                signs = ", ".join("?" * len(rows[0]))
                db.executemany(f"INSERT INTO {table} VALUES ({signs})", rows)  # noqa: S608


def _any_bytes(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _connected(file: Path) -> sqlite3.Connection:
    """Not changed in any way, not even by a file beside it."""
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro&immutable=1", uri=True)


def _is_ours(file: Path) -> None:
    if not file.is_file():
        raise BrokenBackup(f"{file}: there is no such file; name a backup")
    log = Path(f"{file}-wal")
    if log.exists() and log.stat().st_size:
        how = "copy it with `handrail db backup`"
        raise BrokenBackup(f"{file} has a log beside it, so it is a database in use; {how}")
    try:
        with closing(_connected(file)) as db:
            (application,) = db.execute("PRAGMA application_id").fetchone()
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if application != APPLICATION_ID:
                raise BrokenBackup(f"{file} is no backup of a Handrail database; name one")
            if version > schema_version():
                raise BrokenBackup(
                    f"{file} was written by a newer Handrail (schema {version}; this one knows "
                    f"{schema_version()}); upgrade Handrail"
                )
            (state,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if state != "ok":
                raise BrokenBackup(f"{file} is damaged ({state}); name another backup")
    except sqlite3.Error as error:
        raise BrokenBackup(f"{file} is no backup of a Handrail database ({error})") from error
