"""The engine's store protocol: its queries and writes, and the rows that they exchange.

Rules
1. The journal is the truth: one row per commit and stream, with the recorded events, chained by
   hash. Every other row is a projection, written in the same transaction, and can be checked
   against the journal.
2. `commit` writes many decisions in one transaction. Each is guarded by the version that was read
   (`head`, the hash of all earlier events). A decision with an outdated version is a *loser*: none
   of it is written; the others are. When `commit` returns, the winners are on disk. When it raises,
   nothing is written, except that after `CommitOutcomeUnknownError` (the connection broke during
   the commit) either is possible.
3. A store is synchronous. `inline` says whether it is fast enough for calls on the event loop
   (SQLite: a hop to a thread costs more than the write) or needs a thread (PostgreSQL).
4. Times are ISO 8601 texts in UTC with microseconds (`iso`), so that they sort as texts; documents
   are JSON texts; hashes are bytes.

A *stream* has events of its own: a run (its id), a commit lock ("lock:REPOSITORY"), a channel
("channel:ID"), or the maintenance of the database ("care": what was archived, by whom).
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from handrail.store.channels import ChannelRow, ChannelStore, ChannelWrite
from handrail.store.row import Row


class StoreError(Exception):
    """A database failure. The text is one line: what is wrong, where, what to do next."""


class CommitOutcomeUnknownError(StoreError):
    """The connection broke during a commit, which may be on disk or not. Load again to see."""


class AcknowledgedDataLostError(Exception):
    """Acknowledged data is missing: a process that has it in memory must not go on."""


class JournalEntry(Row):
    """The events of one stream in one commit: `count` events, the last with number `seq`."""

    stream: str
    seq: int
    count: int
    body: str
    """The events: a JSON array."""
    hash: bytes


class RunRow(Row):
    """A run. `state` is None where the stored state, as of `state_seq`, is recent enough: a run is
    loaded from its last stored state and the events since."""

    id: str
    bead_id: str
    workflow_id: str
    workflow_version: int
    current_node_id: str | None
    status: str
    terminal_status: str | None
    stop_rule: str | None
    priority: int
    seq: int
    head: bytes
    """The hash of the run's last entry."""
    next_due: str | None
    """Not later than the run's next clock; None once the run has ended."""
    created_at: str
    updated_at: str
    ended_at: str | None
    state: str | None
    state_seq: int


class LockRow(Row):
    """The commit lock of a repository."""

    repository: str
    holder_execution_id: str | None
    holder_step: str | None
    fence: int
    seq: int
    head: bytes
    next_due: str | None
    updated_at: str
    state: str


class StreamRow(Row):
    """A stream that has no table of its own."""

    name: str
    seq: int
    head: bytes


class TransitionRow(Row):
    execution_id: str
    seq: int
    from_node_id: str
    to_node_id: str
    outcome: str
    reason: str
    actor: str
    timestamp: str


class ApprovalRow(Row):
    """An approval. `status` leaves `open` once and for good."""

    id: str
    execution_id: str
    bead_id: str
    node_id: str
    type: str
    status: str
    question: str
    digest: str
    deadline: str
    created_at: str
    decision: str | None
    answer: str | None
    answered_by: str | None
    settled_at: str | None


class DispatchRow(Row):
    """An open dispatch: on offer while `agent` is None, else claimed by that agent's session."""

    execution_id: str
    fence: int
    place: str
    role: str
    priority: int
    offered_at: str
    agent: str | None
    session: str | None
    claimed_at: str | None


class BeadRow(Row):
    """A unit of work. Its context is the run's while a run is active."""

    id: str
    title: str
    description: str
    status: str
    priority: int
    filed_by: str
    context: str
    error: str | None
    workflow_id: str | None
    execution_id: str | None
    created_at: str
    updated_at: str


class MessageRow(Row):
    """A message from one stream to another, delivered later and once. `id` is unique per cause."""

    id: str
    target: str
    body: str
    created_at: str


class IdempotencyKeyRow(Row):
    """An idempotency key with its response, as JSON."""

    key: str
    actor: str
    digest: str
    answer: str
    created_at: str


class StreamWrite(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything that a decision about one stream changes. All of it is written, or nothing."""

    expected_head: bytes
    """The `head` that was read; empty creates a new stream."""
    entry: JournalEntry
    row: RunRow | LockRow | ChannelRow | StreamRow
    position_only: bool = False
    """Of the run's row, only place, seq, head and updated_at change."""
    bead: BeadRow | None = None
    transitions: Sequence[TransitionRow] = ()
    approvals: Sequence[ApprovalRow] = ()
    dispatches: Sequence[DispatchRow] = ()
    """Open dispatches that are new or newly claimed."""
    closed_fences: Sequence[int] = ()
    """Fences of dispatches that are over."""
    messages: Sequence[MessageRow] = ()
    consumed_message_ids: Sequence[str] = ()
    """Ids of the messages that this decision consumes."""
    keys: Sequence[IdempotencyKeyRow] = ()
    channel: ChannelWrite | None = None


class CommitRow(Row):
    """One transaction in the chain over the whole database."""

    n: int
    hash: bytes
    at: str
    entries: int


class LoadedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A stored run, and the bodies of its journal entries since the stored state."""

    row: RunRow
    tail: Sequence[str] = ()


class DefinitionRow(Row):
    """One version of a definition; it never changes."""

    workflow_id: str
    version: int
    name: str
    kind: str
    definition: str
    created_by: str
    created_at: str


class AgentRow(Row):
    """A registered agent. Claims of an earlier `session` are lost. `engine` is set for functions
    that run in an engine's process and end with it."""

    id: str
    roles: str
    """A JSON array."""
    capacity: int
    enabled: bool
    session: str
    engine: str | None
    beat_at: str


class NoteRow(Row):
    """Evidence outside of the events: a late, doubled or foreign result, unchanged (K21)."""

    execution_id: str
    at: str
    actor: str
    code: str
    body: str


class StoredEntry(Row):
    """A journal entry as read, with its position in the order of commits."""

    n: int
    """The number of its commit."""
    id: int
    stream: str
    seq: int
    count: int
    body: str
    """Empty if the run was archived."""
    hash: bytes


class TransitionItem(Row):
    id: int
    from_node_id: str
    to_node_id: str
    outcome: str
    reason: str
    actor: str
    timestamp: str


_last_iso: tuple[datetime | None, str] = (None, "")

NOTES_MAX = 100
"""Notes kept per run; further notes are only counted."""


class EngineStore(ChannelStore, Protocol):
    """A database. Every method is one transaction."""

    inline: bool

    def close(self) -> None: ...

    def find_dead_engines(self) -> list[str] | None:
        """Return the engines still on record if no other engine works on this database: they are
        dead. None if others may be at work. Called once, when an engine opens."""
        ...

    def has_changed(self) -> bool:
        """Return whether another process may have written since the last call."""
        ...

    # Deciding

    def check_commit_settled(self) -> None:
        """After `CommitOutcomeUnknownError`: return once that commit's outcome is final and
        readable. Raise as long as the outcome may change."""
        ...

    def commit(self, writes: Sequence[StreamWrite], at: str) -> tuple[CommitRow | None, list[bool]]:
        """Return the commit, and which writes won, in their order; no commit if all lost."""
        ...

    def load_runs(self, ids: Sequence[str]) -> dict[str, LoadedRun]:
        """Load runs by id; ids that do not exist are left out."""
        ...

    def load_locks(self, repositories: Sequence[str]) -> dict[str, LockRow]: ...

    def load_stream(self, name: str) -> StreamRow | None: ...

    def list_due_runs(self, now: str, limit: int) -> list[str]:
        """List runs of which a clock may have expired, the earliest first."""
        ...

    def list_due_locks(self, now: str, limit: int) -> list[str]: ...

    def postpone_runs(self, dues: Sequence[tuple[str, bytes, str]]) -> None:
        """Set the next clock of runs that were not due after all: (run, its head, next clock). A
        run that has changed since stays unchanged."""
        ...

    def reserve_dispatches(self, role: str, limit: int) -> list[DispatchRow]:
        """Reserve offered dispatches, by priority and age. Other engines skip them for a while."""
        ...

    def list_messages(self, limit: int) -> list[MessageRow]:
        """List the oldest undelivered messages."""
        ...

    def delete_message(self, message_id: str) -> None:
        """Delete a message that led to no decision."""
        ...

    def get_idempotency_key(self, key: str, actor: str) -> IdempotencyKeyRow | None: ...

    def delete_idempotency_keys(self, before: str) -> int: ...

    # Agents and engines

    def put_agent(self, agent: AgentRow) -> None: ...

    def remove_agent(self, agent_id: str) -> None: ...

    def list_agents(self) -> list[AgentRow]: ...

    def heartbeat_session(self, session: str, at: str) -> bool:
        """Record that the session is alive. Return False if the agent has another session now."""
        ...

    def heartbeat_engine(self, engine: str, at: str) -> None:
        """Record that this engine and its functions are alive."""
        ...

    def list_engines(self) -> dict[str, str]:
        """Return when each engine was last alive."""
        ...

    def delete_engine(self, engine: str) -> None:
        """Delete an engine that closed or is dead, and the agents of its functions."""
        ...

    def list_orphaned_dispatches(self, silent_since: str, limit: int) -> list[DispatchRow]:
        """List claimed dispatches whose session is gone, disabled, or silent since then."""
        ...

    def list_unmatched_dispatches(
        self, silent_since: str, offered_before: str, limit: int
    ) -> list[DispatchRow]:
        """List dispatches offered before that moment whose role no live agent has."""
        ...

    def add_outage(self, started_at: str, ended_at: str) -> None:
        """Record that no engine was alive in between, unless another engine did so already."""
        ...

    def list_outages(self, since: str) -> list[tuple[str, str]]:
        """List outages that ended after `since`, in order."""
        ...

    def get_last_alive(self) -> str | None:
        """Return when any engine last wrote anything."""
        ...

    # Definitions, beads, notes

    def put_definition(self, row: DefinitionRow, owner: str | None = None) -> bool:
        """Insert a version. Return False, and change nothing, if this version exists, or if
        `find_foreign_definition` finds another owner's. Without `owner`, owners do not matter."""
        ...

    def find_foreign_definition(self, workflow_id: str, name: str, owner: str) -> str | None:
        """Return a definition with this id or name that has a version by another owner."""
        ...

    def get_definition(self, workflow_id: str, version: int | None = None) -> DefinitionRow | None:
        """Return that version, by default the newest. `workflow_id` may also be a name."""
        ...

    def list_definitions(self) -> list[DefinitionRow]:
        """List the newest version of each definition."""
        ...

    def insert_bead(self, bead: BeadRow) -> bool:
        """Insert a bead. Return False if it exists."""
        ...

    def get_bead(self, bead_id: str) -> BeadRow | None: ...

    def get_active_run_id(self, bead_id: str) -> str | None: ...

    def add_note(self, note: NoteRow) -> None: ...

    def list_notes(self, execution_id: str) -> tuple[list[NoteRow], int]:
        """Return the kept notes, and how many were added in all."""
        ...

    # Reading

    def read_journal(
        self, stream: str, after_seq: int = 0, limit: int = 10_000
    ) -> list[StoredEntry]:
        """Return the entries of one stream, in order."""
        ...

    def read_feed(self, after_n: int, limit: int) -> list[StoredEntry]:
        """Return the entries of the commits after `after_n`, in the order of commits. Commits are
        not split: the last may exceed the limit."""
        ...

    def get_last_commit(self) -> CommitRow | None: ...

    def list_transitions(self, execution_id: str) -> list[TransitionItem]: ...

    def list_approvals(
        self, *, execution_id: str | None = None, status: str | None = None, limit: int = 1_000
    ) -> list[ApprovalRow]: ...

    def list_dispatches(self, execution_id: str) -> list[DispatchRow]: ...

    def list_runs_by_id(
        self,
        *,
        bead_id: str | None = None,
        status: str | None = None,
        after: str = "",
        limit: int = 1_000,
    ) -> list[RunRow]:
        """List runs by id, that is in order of creation, without their states."""
        ...

    def iter_commits(
        self, after_n: int, limit: int
    ) -> Iterator[tuple[CommitRow, list[StoredEntry]]]:
        """Iterate over the chain, with the entries of each commit."""
        ...


def iso(moment: datetime) -> str:
    """Format a moment as in all rows."""
    global _last_iso  # nearly all rows of a batch have the same moment
    cached = _last_iso
    if cached[0] is not moment:
        text = moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"
        _last_iso = cached = (moment, text)
    return cached[1]


def parse_iso(text: str) -> datetime:
    return datetime.fromisoformat(text)
