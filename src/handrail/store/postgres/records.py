"""The caretaker's store on PostgreSQL: one moment of a live database, its sizes, its copies.

A backup is a zip file with one member a table, as COPY writes it, all of one transaction, and a
manifest. A restore replaces all tables in one transaction, and looks at what it has restored before
it commits; engines wait meanwhile.
"""

import json
import re
import zipfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import psycopg
from msgspec.structs import astuple

from handrail.store.files import new_file
from handrail.store.port import LockState, StoreError, Stream, Transition, Write
from handrail.store.postgres.opening import PACKAGE, TOLD, Database, schema_version, told
from handrail.store.postgres.store import PostgresStore, row_of
from handrail.store.postgres.values import columns, texts
from handrail.store.postgres.writing import SQL, append
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
from handrail.store.statements import script

TABLES: list[str] = re.findall(r"(?m)^CREATE TABLE (\w+)", script(PACKAGE, "schema.sql"))
"""In an order in which they can be filled."""
REPLACED = [name for name in TABLES if name not in (*LIVE_TABLES, "handrail_schema")]
ENGINES_ORDER = (
    *("workflow_executions", "commit_locks", "streams", "channels", "dispatches"),
    *("workflow_transitions", "approvals", "beads", "messages", "idempotency_keys"),
    *("channel_members", "channel_log", "journal", "chain", "commits"),
)
"""In which a commit touches them: who locks in the same order waits for nobody who waits for it."""
PRUNE = (
    *("prune_transitions", "prune_approvals", "prune_notes", "prune_bodies", "prune_beads"),
    "prune_uses",
)
FORMAT = 1
MANIFEST = "manifest.json"
CHUNK = 1 << 20
COLUMNS = b"""
SELECT a.attname, a.attidentity <> '' FROM pg_attribute a
WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
SCANS = b"SET LOCAL enable_seqscan = %b; SET LOCAL enable_hashjoin = %b"


class PostgresRecords(PostgresStore):
    watched = False

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        super().__init__(url, read_only=read_only)
        self._pinned: Database | None = None
        """The connection that everything goes through for a while."""

    @contextmanager
    def _use(self) -> Generator[Database]:
        if self._pinned is None:
            with super()._use() as db:
                yield db
            return
        try:
            yield self._pinned
        except TOLD as error:
            raise told(error, self.where) from error

    @contextmanager
    def _pin(self, db: Database) -> Generator[None]:
        self._pinned = db
        try:
            yield
        finally:
            self._pinned = None

    @contextmanager
    def reading(self) -> Generator[None]:
        if self._pinned is not None:  # it is of one moment already
            yield
            return
        with super()._use() as db:
            _run(db, b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            _run(db, b"SET LOCAL idle_in_transaction_session_timeout = 0")
            # Before the first look: a restore would empty what was not looked at yet.
            _run(db, b"LOCK TABLE " + _names(TABLES) + b" IN ACCESS SHARE MODE")
            with self._pin(db):
                yield
            _run(db, b"ROLLBACK")

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
        """These look at whole tables, which is not what the settings of a connection are for."""
        found: list[Irregular] = []
        with self.reading(), self._use() as db:
            _run(db, SCANS % (b"on", b"on"))
            for name, statement in SQL.items():
                if name.startswith(f"{kind}_"):
                    values = (now,) if b"$1" in statement else ()
                    rows = db.execute(statement, values).fetchmany(IRREGULAR_MAX)
                    code = name.removeprefix(f"{kind}_")
                    found += [Irregular(code=code, subject=str(s), detail=str(d)) for s, d in rows]
            _run(db, SCANS % (b"off", b"off"))
        return found

    def finished(self, before: str, after: str, limit: int) -> list[str]:
        return [run_id for (run_id,) in self._all("finished", before, after, limit)]

    def prune(self, care: Write, runs: Sequence[Pruned], at: str) -> None:
        rows = sorted(astuple(run) for run in runs)
        ids = texts([run.id for run in runs])
        with self._writing() as db, db.transaction():
            db.execute(SQL["settle_memories"], (ids,))
            done = db.execute(SQL["prune_executions"], columns("tbn", rows))
            if done.rowcount != len(runs):
                which = f"run {runs[0].id}" if len(runs) == 1 else f"one of {len(runs)} runs"
                said = f"{which} has changed since it was written to the archive"
                raise StoreError(f"{self.where}: {said}; archive it again")
            for name in PRUNE:
                db.execute(SQL[name], (ids,))
            if not append(db, care, at):
                raise StoreError(f"{self.where}: somebody else archives at this moment; try again")

    def sizes(self) -> Sizes:
        with self.reading(), self._use() as db:
            tables = [
                TableSize(
                    name=name,
                    rows=_one(db, b"SELECT count(*) FROM " + name.encode()),
                    bytes=_one(db, b"SELECT pg_total_relation_size($1::regclass)", name),
                )
                for name in sorted(TABLES)
            ]
            whole = _one(db, b"SELECT pg_database_size(current_database())")
        return Sizes(tables=tables, bytes=whole, log_bytes=None, free_bytes=None)

    def is_empty(self) -> bool:
        row = self._one("anything")
        return row is None or not row[0]

    # Backup

    def backup(self, file: Path) -> None:
        with new_file(file) as part, self.reading(), self._use() as db, _packing(part) as packed:
            packed.writestr(MANIFEST, json.dumps(self._manifest(db), indent=1))
            for name in TABLES:
                _copy_out(db, packed, name)

    def _manifest(self, db: Database) -> dict[str, Any]:
        found = {name: db.execute(COLUMNS, (name,)).fetchall() for name in TABLES}
        numbered = {name: [c for c, own in rows if own] for name, rows in found.items()}
        return {
            "handrail": "backup",
            "format": FORMAT,
            "schema": schema_version(),
            "alive": self.last_alive(),
            "columns": {name: [c for c, _ in rows] for name, rows in found.items()},
            "numbers": {
                name: _one(db, b"SELECT last_value FROM " + _sequence(name, one[0]))
                for name, one in numbered.items()
                if one
            },
            "numbered": {name: one[0] for name, one in numbered.items() if one},
        }

    # Restore

    def restore(self, file: Path, now: str, check: Callable[[Records], None]) -> None:
        manifest = read_manifest(file)
        with super()._use() as db, db.transaction():
            _run(db, b"SET LOCAL idle_in_transaction_session_timeout = 0")
            others = [name for name in REPLACED if name not in ENGINES_ORDER]
            _run(db, b"LOCK TABLE " + _names([*ENGINES_ORDER, *others]))
            _run(db, b"TRUNCATE " + _names(REPLACED))
            with zipfile.ZipFile(file) as packed:
                for name in REPLACED:
                    _copy_in(db, packed, file, name, manifest["columns"][name])
            for name, last in manifest["numbers"].items():
                sequence = _sequence(name, manifest["numbered"][name])
                text = b"SELECT setval('%b', greatest(last_value, $1)) FROM %b"
                db.execute(text % (sequence, sequence), (last,))
            with self._pin(db):
                alive = manifest["alive"]
                if alive is not None and alive < now:
                    db.execute(SQL["add_outage"], (alive, now))
                check(self)


def _run(db: Database, text: bytes) -> None:
    db.execute(text, prepare=False)


def _one(db: Database, text: bytes, *values: object) -> Any:  # noqa: ANN401 - whatever was asked
    row = db.execute(text, values, prepare=False).fetchone()
    assert row is not None
    return row[0]


def _names(tables: Sequence[str]) -> bytes:
    return ", ".join(tables).encode()


def _sequence(table: str, column: str) -> bytes:
    return f"{table}_{column}_seq".encode()


def _packing(file: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1)


def _copy_out(db: Database, packed: zipfile.ZipFile, table: str) -> None:
    text = f"COPY {table} TO STDOUT".encode()
    with packed.open(table, "w", force_zip64=True) as member, db.cursor().copy(text) as copy:
        for data in copy:
            member.write(data)


def _copy_in(
    db: Database, packed: zipfile.ZipFile, file: Path, table: str, names: Sequence[str]
) -> None:
    text = f"COPY {table} ({', '.join(names)}) FROM STDIN".encode()
    try:
        with packed.open(table) as member, db.cursor().copy(text) as copy:
            while data := member.read(CHUNK):
                copy.write(data)
    except (zipfile.BadZipFile, OSError, EOFError, KeyError, psycopg.DataError) as error:
        why = " ".join(str(error).split())
        raise BrokenBackup(f"{file} is damaged ({table}: {why}); name another backup") from error


def read_manifest(file: Path) -> dict[str, Any]:
    """What the backup says about itself; raises if it is none that can be restored here."""
    if not file.is_file():
        raise BrokenBackup(f"{file}: there is no such file; name a backup")
    try:
        with zipfile.ZipFile(file) as packed:
            manifest = json.loads(packed.read(MANIFEST))
        if manifest["handrail"] != "backup":
            raise KeyError("handrail")
        version, form = int(manifest["schema"]), int(manifest["format"])
    except (zipfile.BadZipFile, OSError, KeyError, ValueError, TypeError) as error:
        raise BrokenBackup(f"{file} is no backup of Handrail on PostgreSQL; name one") from error
    if version > schema_version() or form > FORMAT:
        raise BrokenBackup(f"{file} was written by a newer Handrail; upgrade Handrail")
    if version < schema_version():
        how = "restore it with that one into an empty database, and open that with this one"
        raise BrokenBackup(f"{file} was written by an older Handrail (schema {version}); {how}")
    return manifest
