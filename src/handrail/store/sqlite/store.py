"""The port on SQLite: one connection, one writer at a time, one fsync a commit.

Rules
1. A commit first tries all of its writes at once, a statement a table. Only if a guard or a
   constraint says no, it is rolled back and made again write by write, to find the losers. The
   first try has no savepoint: for one, SQLite would copy every page that it changes.
2. Another process may write to the same file. `data_version` says when it did; then what is known
   of the end of the chain is read again. What it changed in a run is found by the guard.
3. One connection serves all threads, under one lock: a reader never sees half a commit.
"""

import os
import sqlite3
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

from msgspec.structs import astuple

from handrail.store.chain import START, commit_hash
from handrail.store.channels import ChannelRow, ChannelStore
from handrail.store.port import (
    NOTES_MAX,
    AgentRow,
    ApprovalRow,
    BeadRow,
    Commit,
    DefinitionRow,
    DispatchRow,
    Execution,
    KeyRow,
    Loaded,
    LockState,
    Message,
    Note,
    Recorded,
    Stream,
    TransitionShown,
    Write,
)
from handrail.store.row import row_of
from handrail.store.sqlite.opening import MEMORY, PACKAGE, TOLD, connect, lock_engines, told
from handrail.store.statements import chosen, statements

Rows = list[tuple[Any, ...]]
SQL = {
    name: text
    for file in (
        "queries.sql",
        "office.sql",
        "channels.sql",
        "memory.sql",
        "reviews.sql",
        "healing.sql",
    )
    for name, text in statements(PACKAGE, file).items()
}
COMMITS_A_PAGE = 500


class _LostError(Exception):
    """A guard said no to one of the writes."""


LOST = (_LostError, sqlite3.IntegrityError, UnicodeError, OverflowError)
"""Also what a constraint forbids or no column can hold: the others are not to suffer from it."""


class SqliteStore(ChannelStore):
    inline = True

    def __init__(self, path: str, *, read_only: bool = False) -> None:
        self.path = path
        self._db = connect(path, read_only=read_only)
        self._lock = RLock()
        self._engines: int | None = None
        self._version = -1
        self._seen = -1
        self._n = self._entries = 0
        self._head = START

    def close(self) -> None:
        with self._lock:
            self._db.close()
            if self._engines is not None:
                os.close(self._engines)
                self._engines = None

    def left_behind(self) -> list[str] | None:
        if self.path == MEMORY:
            return list(self.engines())
        self._engines, dead = lock_engines(self.path, lambda: list(self.engines()))
        return dead

    def changed(self) -> bool:
        with self._lock:
            seen, self._seen = self._seen, self._data_version()
            return seen != self._seen

    def at_rest(self) -> None:
        """A commit in this process ends before anything else is asked."""

    # The transaction

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        with self._lock:
            db = self._db
            try:
                db.execute("BEGIN IMMEDIATE")
                yield db
                db.execute("COMMIT")
            except BaseException as error:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                self._version = -1  # what was counted on may not be so
                if isinstance(error, TOLD):
                    raise told(error, self.path) from error
                raise

    def _data_version(self) -> int:
        try:
            return self._db.execute("PRAGMA data_version").fetchone()[0]
        except TOLD as error:
            raise told(error, self.path) from error

    def _look_again(self, db: sqlite3.Connection) -> None:
        """The end of the chain, if another process may have moved it."""
        version = self._data_version()
        if version == self._version:
            return
        last = db.execute(SQL["last_commit"]).fetchone()
        self._n, self._head = (last[0], last[1]) if last else (0, START)
        self._entries = db.execute(SQL["last_entry"]).fetchone()[0]
        self._version = version

    def commit(self, writes: Sequence[Write], at: str) -> tuple[Commit | None, list[bool]]:
        return self._commit(writes, at)

    def _commit(
        self,
        writes: Sequence[Write],
        at: str,
        beside: Callable[[sqlite3.Connection, list[bool]], None] | None = None,
    ) -> tuple[Commit | None, list[bool]]:
        """`beside` writes more into the same transaction, or raises to have none of it."""
        with self._writing() as db:
            self._look_again(db)
            won = self._write_all(db, writes)
            if beside is not None:
                beside(db, won)
            winners = [write for write, one in zip(writes, won, strict=True) if one]
            if not winners:
                return None, won
            first, n = self._entries + 1, self._n + 1
            head = commit_hash(self._head, [write.entry.hash for write in winners])
            last = first + len(winners) - 1
            db.execute(SQL["insert_commit"], (n, n, first, last, len(winners), at, head))
            version, self._version = self._version, -1  # until the end is known to be another
        self._n, self._entries, self._head = n, last, head
        self._version = version
        return Commit(n=n, hash=head, at=at, entries=len(winners)), won

    def _write_all(self, db: sqlite3.Connection, writes: Sequence[Write]) -> list[bool]:
        """At once, as nearly always nobody loses and every stream has one write; else one by one,
        to see who loses and to let one follow the other."""
        if len({write.entry.stream for write in writes}) == len(writes):
            try:
                self._write(db, writes, self._entries + 1)
            except LOST:
                db.execute("ROLLBACK")
                db.execute("BEGIN IMMEDIATE")
                self._look_again(db)  # another process may have been faster
            else:
                return [True] * len(writes)
        won: list[bool] = []
        for write in writes:
            db.execute("SAVEPOINT one")
            try:
                self._write(db, (write,), self._entries + 1 + sum(won))
                won.append(True)
            except LOST:
                db.execute("ROLLBACK TO one")
                won.append(False)
            db.execute("RELEASE one")
        return won

    def _write(self, db: sqlite3.Connection, writes: Sequence[Write], first: int) -> None:
        many = db.executemany
        self._write_subjects(db, writes)
        batch = self._n + 1
        entries: Rows = []
        bodies = SQL["insert_entry"]
        for number, write in enumerate(writes, first):
            e = write.entry
            entries.append((number, batch, e.stream, e.seq, e.count, e.body, e.hash))
        many(bodies, entries)
        for name, rows in _others(writes).items():
            if rows:
                many(SQL[name], rows)

    def _write_subjects(self, db: sqlite3.Connection, writes: Sequence[Write]) -> None:
        rows: dict[str, Rows] = {}
        for write in writes:
            name, row = _subject(write)
            rows.setdefault(name, []).append(row)
        for name, values in rows.items():
            if db.executemany(SQL[name], values).rowcount != len(values):
                raise _LostError(name)

    # What is read for deciding

    def _all(self, name: str, *values: object) -> Rows:
        with self._lock:
            try:
                return self._db.execute(SQL[name], values).fetchall()
            except TOLD as error:
                raise told(error, self.path) from error

    def _one(self, name: str, *values: object) -> tuple[Any, ...] | None:
        rows = self._all(name, *values)
        return rows[0] if rows else None

    def _list(self, name: str, wanted: Mapping[str, object]) -> Rows:
        """Without the filters that nobody asks for."""
        text, values = chosen(SQL[name], wanted, "?")
        with self._lock:
            try:
                return self._db.execute(text, values).fetchall()
            except TOLD as error:
                raise told(error, self.path) from error

    def _change(self, name: str, *values: object) -> int:
        with self._writing() as db:
            return db.execute(SQL[name], values).rowcount

    def load(self, ids: Sequence[str]) -> dict[str, Loaded]:
        found: dict[str, Loaded] = {}
        for run_id in ids:
            row = self._one("execution", run_id)
            if row is not None:
                run = row_of(Execution, row)
                behind = run.state_seq < run.seq
                tail = self._all("tail", run_id, run.state_seq, run.seq) if behind else []
                found[run_id] = Loaded(subject=run, tail=[body for (body,) in tail])
        return found

    def load_locks(self, repositories: Sequence[str]) -> dict[str, LockState]:
        rows = ((name, self._one("lock", name)) for name in repositories)
        return {name: row_of(LockState, row) for name, row in rows if row is not None}

    def load_stream(self, name: str) -> Stream | None:
        row = self._one("stream", name)
        return row_of(Stream, row) if row is not None else None

    def due(self, now: str, limit: int) -> list[str]:
        return [run_id for (run_id,) in self._all("due", now, limit)]

    def locks_due(self, now: str, limit: int) -> list[str]:
        return [name for (name,) in self._all("locks_due", now, limit)]

    def postpone(self, dues: Sequence[tuple[str, bytes, str]]) -> None:
        with self._writing() as db:
            db.executemany(SQL["postpone"], [(due, run_id, head) for run_id, head, due in dues])

    def reserve(self, role: str, limit: int) -> list[DispatchRow]:
        return [row_of(DispatchRow, row) for row in self._all("on_offer", role, limit)]

    def messages(self, limit: int) -> list[Message]:
        return [row_of(Message, row) for row in self._all("messages", limit)]

    def consume(self, message_id: str) -> None:
        self._change("delete_message", message_id)

    def key(self, key: str, actor: str) -> KeyRow | None:
        row = self._one("key", key, actor)
        return row_of(KeyRow, row) if row is not None else None

    def forget_keys(self, before: str) -> int:
        return self._change("forget_keys", before)

    # Agents and engines

    def put_agent(self, agent: AgentRow) -> None:
        self._change("put_agent", *astuple(agent))

    def remove_agent(self, agent_id: str) -> None:
        self._change("remove_agent", agent_id)

    def agents(self) -> list[AgentRow]:
        rows = self._all("agents")
        return [row_of(AgentRow, (*row[:3], bool(row[3]), *row[4:])) for row in rows]

    def beat(self, session: str, at: str) -> bool:
        return self._change("beat", at, session) > 0

    def beat_engine(self, engine: str, at: str) -> None:
        with self._writing() as db:
            db.execute(SQL["beat_engine"], (engine, at))
            db.execute(SQL["beat_functions"], (at, engine))

    def engines(self) -> dict[str, str]:
        return dict(self._all("engines"))

    def forget_engine(self, engine: str) -> None:
        with self._writing() as db:
            db.execute(SQL["forget_engine"], (engine,))
            db.execute(SQL["forget_functions"], (engine,))

    def orphans(self, silent_since: str, limit: int) -> list[DispatchRow]:
        return [row_of(DispatchRow, row) for row in self._all("orphans", silent_since, limit)]

    def unmanned(self, silent_since: str, offered_before: str, limit: int) -> list[DispatchRow]:
        rows = self._all("unmanned", offered_before, silent_since, limit)
        return [row_of(DispatchRow, row) for row in rows]

    def add_outage(self, started_at: str, ended_at: str) -> None:
        self._change("add_outage", started_at, ended_at, started_at)

    def outages(self, since: str) -> list[tuple[str, str]]:
        return [(began, ended) for began, ended in self._all("outages", since)]

    def last_alive(self) -> str | None:
        row = self._one("last_alive")
        return row[0] if row else None

    # Definitions, beads, notes

    def put_definition(self, row: DefinitionRow, owner: str | None = None) -> bool:
        with self._writing() as db:
            names = (row.workflow_id, row.name, owner)
            if owner is not None and db.execute(SQL["foreign_definition"], names).fetchone():
                return False
            current = (row.workflow_id, row.name, row.kind, row.version, row.definition)
            db.execute(SQL["put_workflow"], (*current, row.created_at, row.created_at))
            return db.execute(SQL["put_version"], astuple(row)).rowcount > 0

    def foreign_definition(self, workflow_id: str, name: str, owner: str) -> str | None:
        row = self._one("foreign_definition", workflow_id, name, owner)
        return row[0] if row is not None else None

    def definition(self, workflow_id: str, version: int | None = None) -> DefinitionRow | None:
        if version is None:
            row = self._one("newest_version", workflow_id)
        else:
            row = self._one("version", workflow_id, version)
        return row_of(DefinitionRow, row) if row is not None else None

    def definitions(self) -> list[DefinitionRow]:
        return [row_of(DefinitionRow, row) for row in self._all("definitions")]

    def put_bead(self, bead: BeadRow) -> bool:
        return self._change("insert_bead", *astuple(bead)) > 0

    def bead(self, bead_id: str) -> BeadRow | None:
        row = self._one("bead", bead_id)
        return row_of(BeadRow, row) if row is not None else None

    def active_run(self, bead_id: str) -> str | None:
        row = self._one("active_run", bead_id)
        return row[0] if row is not None else None

    def add_note(self, note: Note) -> None:
        with self._writing() as db:
            counted = db.execute(SQL["count_note"], (note.execution_id,)).fetchone()
            if counted is not None and counted[0] <= NOTES_MAX:
                db.execute(SQL["insert_note"], astuple(note))

    def notes(self, execution_id: str) -> tuple[list[Note], int]:
        rows = self._all("notes", execution_id)
        return [row_of(Note, row[:-1]) for row in rows], rows[0][-1] if rows else 0

    # Reading

    def journal(self, stream: str, after_seq: int = 0, limit: int = 10_000) -> list[Recorded]:
        return [row_of(Recorded, row) for row in self._all("journal", stream, after_seq, limit)]

    def feed(self, after_n: int, limit: int) -> list[Recorded]:
        found: list[Recorded] = []
        for _, entries in self.commits(after_n, limit):
            found += entries
            if len(found) >= limit:
                break
        return found

    def head(self) -> Commit | None:
        row = self._one("last_commit")
        return row_of(Commit, row) if row is not None else None

    def transitions(self, execution_id: str) -> list[TransitionShown]:
        return [row_of(TransitionShown, row) for row in self._all("transitions", execution_id)]

    def approvals(
        self, *, execution_id: str | None = None, status: str | None = None, limit: int = 1_000
    ) -> list[ApprovalRow]:
        if execution_id is not None:
            rows = self._all("approvals_of", execution_id, status, limit)
        else:
            rows = self._all("approvals", status, limit)
        return [row_of(ApprovalRow, row) for row in rows]

    def dispatches(self, execution_id: str) -> list[DispatchRow]:
        return [row_of(DispatchRow, row) for row in self._all("dispatches", execution_id)]

    def executions(
        self,
        *,
        bead_id: str | None = None,
        status: str | None = None,
        after: str = "",
        limit: int = 1_000,
    ) -> list[Execution]:
        rows = self._all("executions", after, bead_id, status, limit)
        return [row_of(Execution, row) for row in rows]

    def commits(self, after_n: int, limit: int) -> Iterator[tuple[Commit, list[Recorded]]]:
        left = limit
        while left > 0:
            rows = self._all("commits", after_n, min(left, COMMITS_A_PAGE))
            for n, head, at, entries, batch, first, last in rows:
                found = self._all("entries", n, first, last, batch)
                commit = Commit(n=n, hash=head, at=at, entries=entries)
                yield commit, [row_of(Recorded, row) for row in found]
                after_n = n
            left -= len(rows)
            if len(rows) < COMMITS_A_PAGE:
                return


def _subject(write: Write) -> tuple[str, tuple[Any, ...]]:
    """Which statement writes the subject, and its values."""
    s, expected = write.subject, write.expected
    if isinstance(s, Execution):
        if not expected:
            return "insert_execution", astuple(s)
        if write.light:
            return "move_execution", (
                *(s.current_node_id, s.seq, s.head, s.updated_at),
                *(s.id, expected),
            )
        row = (
            *(s.workflow_id, s.workflow_version, s.current_node_id, s.status, s.priority, s.seq),
            *(s.head, s.next_due, s.updated_at, s.state, s.state, s.state_seq),
        )
        if s.ended_at is None:
            return "update_execution", (*row, s.id, expected)
        end = (s.terminal_status, s.stop_rule, s.ended_at)
        return "end_execution", (*row, *end, s.id, expected)
    if isinstance(s, LockState):
        values = astuple(s)
        return (
            ("update_lock", (*values[1:], s.repository, expected))
            if expected
            else (
                "insert_lock",
                values,
            )
        )
    if isinstance(s, ChannelRow):
        values = astuple(s)
        return (
            ("update_channel", (*values[1:], s.id, expected))
            if expected
            else ("insert_channel", values)
        )
    if expected:
        return "update_stream", (s.seq, s.head, s.name, expected)
    return "insert_stream", astuple(s)


def _others(writes: Sequence[Write]) -> dict[str, Rows]:
    """The rows beside subject and entry, by statement. What is over goes before what is new."""
    closed: Rows = []
    dispatches: Rows = []
    transitions: Rows = []
    rare: dict[str, Rows] = {}
    for write in writes:
        if write.closed:
            closed += [(write.entry.stream, fence) for fence in write.closed]
        if write.dispatches:
            dispatches += [astuple(one) for one in write.dispatches]
        if write.transitions:
            transitions += [astuple(one) for one in write.transitions]
        if write.bead is not None:
            rare.setdefault("put_bead", []).append(astuple(write.bead))
        if write.approvals or write.messages or write.keys or write.consumed:
            rare.setdefault("put_approval", []).extend(map(astuple, write.approvals))
            rare.setdefault("insert_message", []).extend(map(astuple, write.messages))
            rare.setdefault("insert_key", []).extend(map(astuple, write.keys))
            rare.setdefault("delete_message", []).extend((one,) for one in write.consumed)
        if write.channel is not None:
            rare.setdefault("delete_member", []).extend(write.channel.left)
            rare.setdefault("put_member", []).extend(map(astuple, write.channel.members))
            rare.setdefault("insert_log", []).extend(map(astuple, write.channel.log))
    # Who has the turn no more goes before who has it now.
    rare.get("put_member", []).sort(key=lambda row: row[2] in ("ACTIVE", "WAITING"))
    return {
        "delete_dispatch": closed,
        "put_dispatch": dispatches,
        "insert_transition": transitions,
        **rare,
    }
