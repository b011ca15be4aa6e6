"""The port on PostgreSQL: one connection that commits, others that read and write small things.

What is special here: several engines share the database. The guard on each subject decides between
them (`writing.py`), `reserve` hands out each dispatch to one of them, and the one row of `chain`
makes the order of commits the order of their numbers.
"""

import secrets
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from queue import LifoQueue
from typing import Any

from msgspec.structs import astuple

from handrail.store.channels import ChannelStore
from handrail.store.port import (
    NOTES_MAX,
    AgentRow,
    ApprovalRow,
    BeadRow,
    Commit,
    DefinitionRow,
    DispatchRow,
    Execution,
    Forgotten,
    KeyRow,
    Loaded,
    LockState,
    Message,
    Note,
    Recorded,
    Stream,
    TransitionShown,
    Unsure,
    Write,
)
from handrail.store.postgres import writing
from handrail.store.postgres.link import Link, LostError, Watch
from handrail.store.postgres.opening import Database, prepare
from handrail.store.postgres.servers import Servers
from handrail.store.postgres.values import columns, texts
from handrail.store.postgres.writing import SQL, Rows
from handrail.store.row import row_of
from handrail.store.statements import chosen

OTHERS = 2
"""Connections beside the one that commits."""
FORGOTTEN_AT_ONCE = 10_000
"""Keys: a statement is to be done long before anybody thinks that the server stands still."""
COMMITS_A_PAGE = 500
ENTRIES_A_PAGE = 5_000


class PostgresStore(ChannelStore):
    inline = False
    watched = True
    """Whether a statement that is not answered for long is broken off."""

    def __init__(
        self, url: str, *, read_only: bool = False, servers: Servers | None = None
    ) -> None:
        """`servers`: those of another store, whose discoveries are this one's too."""
        self._servers = servers = servers or Servers(url, read_only=read_only)
        self.where = servers.where
        first = servers.connect()
        try:
            self.warnings = prepare(first[0], self.where, read_only=read_only)
        except BaseException:
            first[0].close()
            raise
        self._name = secrets.randbits(63)
        """Whose reservations they are."""
        self._last: tuple[Commit, int] | None = None
        """The last commit that was acknowledged here, and the timeline it was on."""
        self._writer = Link(servers, prepare=self._prepare_writer)
        self._all_links = [self._writer]
        self._free: LifoQueue[Link] = LifoQueue()
        for known in (None,) * (OTHERS - 1) + (first,):
            link = Link(servers, known)
            self._all_links.append(link)
            self._free.put(link)
        self._watch = Watch(self._all_links) if self.watched else None

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        for link in self._all_links:
            link.close()

    def left_behind(self) -> list[str] | None:
        """Another engine may have lost its connection, and be at work again in a moment."""
        return None

    def changed(self) -> bool:
        """To ask would cost as much as to look."""
        return True

    def at_rest(self) -> None:
        with self._writer.use():
            pass  # the connection before this one has ended

    # The connections

    def _prepare_writer(self, db: Database) -> None:
        """A standby that took over may lack what its primary had acknowledged."""
        writing.prepare(db)
        if self._last is None or self._last[1] == self._servers.newest:
            return
        last, _ = self._last
        found = db.execute(SQL["commit_hash"], (last.n,), binary=True).fetchone()
        if found is None or found[0] != last.hash:
            lost = f"commit {last.n} was acknowledged at {last.at}, and is not there any more"
            why = "a standby took over that commits did not wait for"
            raise Forgotten(f"{self.where}: {lost}: {why}; start again to go on with the rest")

    @contextmanager
    def _use(self) -> Generator[Database]:
        link = self._free.get()
        try:
            with link.use() as db:
                yield db
        finally:
            self._free.put(link)

    def _all(self, name: str, *values: object) -> Rows:
        """Read; once more if the connection breaks, as it does when the server is restarted."""
        try:
            with self._use() as db:
                return db.execute(SQL[name], values, binary=True).fetchall()
        except LostError:
            with self._use() as db:
                return db.execute(SQL[name], values, binary=True).fetchall()

    def _list(self, name: str, wanted: Mapping[str, object]) -> Rows:
        """Without the filters that nobody asks for."""
        text, values = chosen(SQL[name].decode(), wanted, "$")
        try:
            with self._use() as db:
                return db.execute(text.encode(), values, binary=True).fetchall()
        except LostError:
            with self._use() as db:
                return db.execute(text.encode(), values, binary=True).fetchall()

    def _one(self, name: str, *values: object) -> tuple[Any, ...] | None:
        rows = self._all(name, *values)
        return rows[0] if rows else None

    @contextmanager
    def _writing(self) -> Generator[Database]:
        try:
            with self._use() as db:
                yield db
        except LostError as error:
            raise Unsure(f"{error}; it may be written or not") from error

    def _change(self, name: str, *values: object) -> int:
        with self._writing() as db:
            return db.execute(SQL[name], values, binary=True).rowcount

    # Deciding

    def commit(self, writes: Sequence[Write], at: str) -> tuple[Commit | None, list[bool]]:
        commit, won = writing.commit(self._writer, writes, at)
        if commit is not None:
            self._last = commit, self._servers.newest
        return commit, won

    def load(self, ids: Sequence[str]) -> dict[str, Loaded]:
        if not ids:
            return {}
        found = self._all("executions_by_id", texts(list(ids)))
        return {
            row[0]: Loaded(subject=row_of(Execution, row[:-1]), tail=row[-1] or []) for row in found
        }

    def load_locks(self, repositories: Sequence[str]) -> dict[str, LockState]:
        found = self._all("locks_by_repository", texts(list(repositories))) if repositories else []
        return {row[0]: row_of(LockState, row) for row in found}

    def load_stream(self, name: str) -> Stream | None:
        row = self._one("stream", name)
        return row_of(Stream, row) if row is not None else None

    def due(self, now: str, limit: int) -> list[str]:
        return [run_id for (run_id,) in self._all("due", now, limit)]

    def locks_due(self, now: str, limit: int) -> list[str]:
        return [name for (name,) in self._all("locks_due", now, limit)]

    def postpone(self, dues: Sequence[tuple[str, bytes, str]]) -> None:
        if dues:
            self._change("postpone", *columns("tbt", dues))

    def reserve(self, role: str, limit: int) -> list[DispatchRow]:
        with self._writing() as db:
            rows = db.execute(SQL["reserve"], (role, limit, self._name), binary=True).fetchall()
        return [row_of(DispatchRow, row) for row in rows]

    def messages(self, limit: int) -> list[Message]:
        return [row_of(Message, row) for row in self._all("messages", limit)]

    def consume(self, message_id: str) -> None:
        self._change("delete_message", message_id)

    def key(self, key: str, actor: str) -> KeyRow | None:
        row = self._one("key", key, actor)
        return row_of(KeyRow, row) if row is not None else None

    def forget_keys(self, before: str) -> int:
        forgotten = 0
        while found := self._change("forget_keys", before, FORGOTTEN_AT_ONCE):
            forgotten += found
        return forgotten

    # Agents and engines

    def put_agent(self, agent: AgentRow) -> None:
        self._change("put_agent", *astuple(agent))

    def remove_agent(self, agent_id: str) -> None:
        self._change("remove_agent", agent_id)

    def agents(self) -> list[AgentRow]:
        return [row_of(AgentRow, row) for row in self._all("agents")]

    def beat(self, session: str, at: str) -> bool:
        return self._change("beat", at, session) > 0

    def beat_engine(self, engine: str, at: str) -> None:
        self._change("beat_engine", engine, at)

    def engines(self) -> dict[str, str]:
        return dict(self._all("engines"))

    def forget_engine(self, engine: str) -> None:
        self._change("forget_engine", engine)

    def orphans(self, silent_since: str, limit: int) -> list[DispatchRow]:
        return [row_of(DispatchRow, row) for row in self._all("orphans", silent_since, limit)]

    def unmanned(self, silent_since: str, offered_before: str, limit: int) -> list[DispatchRow]:
        rows = self._all("unmanned", offered_before, silent_since, limit)
        return [row_of(DispatchRow, row) for row in rows]

    def add_outage(self, started_at: str, ended_at: str) -> None:
        with self._writing() as db, db.transaction():
            db.execute(SQL["lock_outages"])
            db.execute(SQL["add_outage"], (started_at, ended_at))

    def outages(self, since: str) -> list[tuple[str, str]]:
        return [(began, ended) for began, ended in self._all("outages", since)]

    def last_alive(self) -> str | None:
        row = self._one("last_alive")
        return row[0] if row else None

    # Definitions, beads, notes

    def put_definition(self, row: DefinitionRow, owner: str | None = None) -> bool:
        with self._writing() as db, db.transaction():
            db.execute(SQL["lock_definitions"])
            names = (row.workflow_id, row.name, owner)
            if owner is not None and db.execute(SQL["foreign_definition"], names).fetchone():
                return False
            return db.execute(SQL["put_definition"], astuple(row), binary=True).rowcount > 0

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
        self._change("add_note", *astuple(note), NOTES_MAX)

    def notes(self, execution_id: str) -> tuple[list[Note], int]:
        rows = self._all("notes", execution_id)
        return [row_of(Note, row[:-1]) for row in rows], rows[0][-1] if rows else 0

    # Reading

    def journal(self, stream: str, after_seq: int = 0, limit: int = 10_000) -> list[Recorded]:
        return [row_of(Recorded, row) for row in self._all("journal", stream, after_seq, limit)]

    def feed(self, after_n: int, limit: int) -> list[Recorded]:
        pages = self._pages(after_n, limit, limit)
        return [one for _, entries in pages for one in entries]

    def head(self) -> Commit | None:
        row = self._one("last_commit")
        return row_of(Commit, row) if row is not None else None

    def transitions(self, execution_id: str) -> list[TransitionShown]:
        return [row_of(TransitionShown, row) for row in self._all("transitions", execution_id)]

    def approvals(
        self, *, execution_id: str | None = None, status: str | None = None, limit: int = 1_000
    ) -> list[ApprovalRow]:
        rows = self._all("approvals", execution_id, status, limit)
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
            page = self._pages(after_n, min(left, COMMITS_A_PAGE), ENTRIES_A_PAGE)
            yield from page
            if not page:
                return
            left -= len(page)
            after_n = page[-1][0].n

    def _pages(
        self, after_n: int, commits: int, entries: int
    ) -> list[tuple[Commit, list[Recorded]]]:
        """The next so many commits; fewer if they have so many entries."""
        rows = self._all("commits", after_n, commits, entries)
        return [
            (
                row_of(Commit, commit),
                [row_of(Recorded, (commit[0], *row[4:])) for row in group if row[4] is not None],
            )
            for commit, group in groupby(rows, key=lambda row: row[:4])
        ]
