"""The store port: what the engine asks of a database, and the rows that cross it.

Rules
1. The journal is the truth: one row per commit and stream, with the events it recorded, chained by
   hash. Every other row is a projection, written in the same transaction, and can be checked
   against the journal.
2. `commit` writes many decisions in one transaction. Each is guarded by the version that was read
   (`head`, the hash of all that had happened); one whose version has moved on is a *loser*: nothing
   of it is written, the others are. When `commit` returns, the winners are on disk. When it raises,
   nothing is, with one exception: `Unsure` says that the connection broke while it was under way.
3. A store is synchronous. `inline` says whether it is fast enough to be called on the event loop
   (SQLite: a hop to a thread costs more than the write) or wants a thread (PostgreSQL).
4. Times are ISO 8601 texts in UTC with microseconds (`iso`), so that they sort as texts; documents
   are JSON texts; hashes are bytes.

A *stream* is what has events of its own: a run (its id), a commit lock ("lock:REPOSITORY"), a
channel ("channel:ID"), or the care of the database itself ("care": what was archived, by whom).
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from handrail.store.channels import ChannelRow, ChannelStore, ChannelWrite
from handrail.store.row import Row


class StoreError(Exception):
    """The database cannot do it. The text is one line: what is wrong, where, what to do next."""


class CommitOutcomeUnknownError(StoreError):
    """The connection broke during a commit: it may be on disk or not. Load, and look."""


class AcknowledgedDataLostError(Exception):
    """What was acknowledged is not there any more: whoever remembers it must not go on."""


class JournalEntry(Row):
    """What one commit recorded of one stream: `count` events, of which `seq` is the last."""

    stream: str
    seq: int
    count: int
    body: str
    """The events: a JSON array."""
    hash: bytes


class RunRow(Row):
    """A run. `state` is None where the stored one, as of `state_seq`, is near enough: a run is
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
    """The hash of its last entry."""
    next_due: str | None
    """Not later than its next clock; None once it has ended."""
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
    """A question to people. `status` leaves `open` once and for good."""

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
    """From one stream to another, delivered later and once. `id` is unique for its cause."""

    id: str
    target: str
    body: str
    created_at: str


class IdempotencyKeyRow(Row):
    """An idempotency key with the answer that was given, as JSON."""

    key: str
    actor: str
    digest: str
    answer: str
    created_at: str


class StreamWrite(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything that a decision about one stream changes. All of it is written, or nothing."""

    expected_head: bytes
    """The `head` that was read: the hash of all that had happened; empty makes a new one."""
    entry: JournalEntry
    row: RunRow | LockRow | ChannelRow | StreamRow
    position_only: bool = False
    """Of the subject, a run, nothing changed but place, seq, head and updated_at."""
    bead: BeadRow | None = None
    transitions: Sequence[TransitionRow] = ()
    approvals: Sequence[ApprovalRow] = ()
    dispatches: Sequence[DispatchRow] = ()
    """Open ones that are new or were claimed."""
    closed_fences: Sequence[int] = ()
    """Fences of dispatches that are over."""
    messages: Sequence[MessageRow] = ()
    consumed_message_ids: Sequence[str] = ()
    """Ids of the messages that this decision answers."""
    keys: Sequence[IdempotencyKeyRow] = ()
    channel: ChannelWrite | None = None


class CommitRow(Row):
    """One transaction in the chain over the whole database."""

    n: int
    hash: bytes
    at: str
    entries: int


class LoadedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A stored run, and the journal's bodies since its stored state."""

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
    """A registered agent. `session` names one stay: what it claimed in another one is lost.
    `engine` is set for functions that live in an engine's process and die with it."""

    id: str
    roles: str
    """A JSON array."""
    capacity: int
    enabled: bool
    session: str
    engine: str | None
    beat_at: str


class NoteRow(Row):
    """Evidence that is no event: a late, doubled or foreign result, kept as it came (K21)."""

    execution_id: str
    at: str
    actor: str
    code: str
    body: str


class StoredEntry(Row):
    """An entry as it is read back: where it stands in the database's order."""

    n: int
    """Of its commit."""
    id: int
    stream: str
    seq: int
    count: int
    body: str
    """Empty where a finished run was archived."""
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
"""Notes kept per run; further ones are only counted."""


class EngineStore(ChannelStore, Protocol):
    """A database. Every method is one transaction."""

    inline: bool

    def close(self) -> None: ...

    def find_dead_engines(self) -> list[str] | None:
        """Asked once, when an engine opens: if no other engine is at work on this database, those
        that it still knows, which are dead. None if others may be at work."""
        ...

    def has_changed(self) -> bool:
        """Whether anybody else may have written since this was last asked."""
        ...

    # Deciding

    def check_commit_settled(self) -> None:
        """After `Unsure`: from now on, what can be seen of that commit is what became of it. Raises
        as long as that may change."""
        ...

    def commit(self, writes: Sequence[StreamWrite], at: str) -> tuple[CommitRow | None, list[bool]]:
        """Who won, in the order of `writes`; no commit if nobody did."""
        ...

    def load_runs(self, ids: Sequence[str]) -> dict[str, LoadedRun]:
        """Runs by id; what does not exist is left out."""
        ...

    def load_locks(self, repositories: Sequence[str]) -> dict[str, LockRow]: ...

    def load_stream(self, name: str) -> StreamRow | None: ...

    def list_due_runs(self, now: str, limit: int) -> list[str]:
        """Runs of which a clock may have run out, the earliest first."""
        ...

    def list_due_locks(self, now: str, limit: int) -> list[str]: ...

    def postpone_runs(self, dues: Sequence[tuple[str, bytes, str]]) -> None:
        """Nothing was due after all: (run, its head, the next clock). A run that has changed since
        is left as it is."""
        ...

    def reserve_dispatches(self, role: str, limit: int) -> list[DispatchRow]:
        """Dispatches on offer, by priority and age. Other engines leave them alone for a while."""
        ...

    def list_messages(self, limit: int) -> list[MessageRow]:
        """The oldest messages that wait for delivery."""
        ...

    def delete_message(self, message_id: str) -> None:
        """A message that nothing came of."""
        ...

    def get_idempotency_key(self, key: str, actor: str) -> IdempotencyKeyRow | None: ...

    def delete_idempotency_keys(self, before: str) -> int: ...

    # Agents and engines

    def put_agent(self, agent: AgentRow) -> None: ...

    def remove_agent(self, agent_id: str) -> None: ...

    def list_agents(self) -> list[AgentRow]: ...

    def heartbeat_session(self, session: str, at: str) -> bool:
        """The session is alive; False if it is not the agent's current one."""
        ...

    def heartbeat_engine(self, engine: str, at: str) -> None:
        """This engine and the functions in it are alive."""
        ...

    def list_engines(self) -> dict[str, str]:
        """Engine -> when it was last alive."""
        ...

    def delete_engine(self, engine: str) -> None:
        """It closed in good order, or is dead; its functions are no agents any more."""
        ...

    def list_orphaned_dispatches(self, silent_since: str, limit: int) -> list[DispatchRow]:
        """Claimed dispatches whose session is gone, disabled, or silent since then."""
        ...

    def list_unmatched_dispatches(
        self, silent_since: str, offered_before: str, limit: int
    ) -> list[DispatchRow]:
        """Dispatches on offer for so long whose role no live agent has."""
        ...

    def add_outage(self, started_at: str, ended_at: str) -> None:
        """Nobody was alive in between; known already if another engine has said so."""
        ...

    def list_outages(self, since: str) -> list[tuple[str, str]]:
        """Those that ended after that moment, in order."""
        ...

    def get_last_alive(self) -> str | None:
        """When anything was last written by any engine."""
        ...

    # Definitions, beads, notes

    def put_definition(self, row: DefinitionRow, owner: str | None = None) -> bool:
        """False if this version exists already, or `foreign_definition` finds one (then nothing is
        changed). Without an owner nobody's versions are in the way."""
        ...

    def find_foreign_definition(self, workflow_id: str, name: str, owner: str) -> str | None:
        """A definition that this id or name finds and of which somebody else made a version."""
        ...

    def get_definition(self, workflow_id: str, version: int | None = None) -> DefinitionRow | None:
        """That version; without one, the newest. `workflow_id` may also be a name."""
        ...

    def list_definitions(self) -> list[DefinitionRow]:
        """The newest version of each."""
        ...

    def insert_bead(self, bead: BeadRow) -> bool:
        """A new bead; False if it exists."""
        ...

    def get_bead(self, bead_id: str) -> BeadRow | None: ...

    def get_active_run_id(self, bead_id: str) -> str | None: ...

    def add_note(self, note: NoteRow) -> None: ...

    def list_notes(self, execution_id: str) -> tuple[list[NoteRow], int]:
        """The kept ones, and how many there were."""
        ...

    # Reading

    def read_journal(
        self, stream: str, after_seq: int = 0, limit: int = 10_000
    ) -> list[StoredEntry]:
        """The entries of one stream, in order."""
        ...

    def read_feed(self, after_n: int, limit: int) -> list[StoredEntry]:
        """The entries of the commits after `after_n`, in the order of commits; whole commits, of
        which the last may go over the limit."""
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
        """By id, which is by creation; without their states."""
        ...

    def iter_commits(
        self, after_n: int, limit: int
    ) -> Iterator[tuple[CommitRow, list[StoredEntry]]]:
        """The chain, with the entries that each commit says it wrote."""
        ...


def iso(moment: datetime) -> str:
    """The moment as all rows have it."""
    global _last_iso  # nearly all that a batch writes happened at one moment
    cached = _last_iso
    if cached[0] is not moment:
        text = moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"
        _last_iso = cached = (moment, text)
    return cached[1]


def parse_iso(text: str) -> datetime:
    return datetime.fromisoformat(text)
