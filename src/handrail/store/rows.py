"""The rows that engines and stores exchange, and the rules of a store.

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

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import sha256

import msgspec

from handrail.store.columns import Json, Row, Time

encode = msgspec.json.Encoder().encode


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


class RunListColumns(Row):
    """The columns of a run that lists show."""

    id: str
    bead_id: str
    workflow_id: str
    workflow_version: int
    current_node_id: str | None
    status: str
    terminal_status: str | None
    stop_rule: str | None
    priority: int
    created_at: Time
    updated_at: Time
    ended_at: Time | None


class RunRow(RunListColumns):
    """A run. `state` is None where the stored state, as of `state_seq`, is recent enough: a run is
    loaded from its last stored state and the events since."""

    seq: int
    head: bytes
    """The hash of the run's last entry."""
    next_due: Time | None
    """Not later than the run's next clock; None once the run has ended."""
    state: Json | None
    state_seq: int


class LockRow(Row):
    """The commit lock of a repository."""

    repository: str
    holder_execution_id: str | None
    holder_step: str | None
    fence: int
    seq: int
    head: bytes
    next_due: Time | None
    updated_at: Time
    state: Json


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
    timestamp: Time


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
    deadline: Time
    created_at: Time
    decision: str | None
    answer: str | None
    answered_by: str | None
    settled_at: Time | None


class DispatchRow(Row):
    """An open dispatch: on offer while `agent` is None, else claimed by that agent's session."""

    execution_id: str
    fence: int
    place: str
    role: str
    priority: int
    offered_at: Time
    agent: str | None
    session: str | None
    claimed_at: Time | None


class BeadRow(Row):
    """A unit of work. Its context is the run's while a run is active."""

    id: str
    title: str
    description: str
    status: str
    priority: int
    filed_by: str
    context: Json
    error: str | None
    workflow_id: str | None
    execution_id: str | None
    created_at: Time
    updated_at: Time
    due_at: Time | None = None


class MessageRow(Row):
    """A message from one stream to another, delivered later and once. `id` is unique per cause."""

    id: str
    target: str
    body: str
    created_at: Time


class IdempotencyKeyRow(Row):
    """An idempotency key with its response, as JSON."""

    key: str
    actor: str
    digest: str
    answer: str
    created_at: Time


class ChannelRow(Row):
    """A channel. A closed channel stays, and may be opened again."""

    id: str
    seq: int
    head: bytes
    next_due: Time | None
    created_at: Time
    updated_at: Time
    closed_at: Time | None
    state: Json


class ChannelMemberRow(Row):
    """An agent in a channel. `busy`: work elsewhere takes up all its capacity. `sole`: the agent
    works on one thing at a time."""

    channel_id: str
    agent_id: str
    state: str
    busy: int
    sole: int
    turn: int | None
    """The number of the turn that the agent holds."""


class ChannelLogRow(Row):
    """A message, with its number among the messages, or a notice, with its code."""

    channel_id: str
    seq: int
    """Sequence number of the event that the entry comes from."""
    kind: str
    number: int | None
    message_id: str
    code: str
    author: str
    human: int
    text: str
    recipient: str | None
    at: Time


class ChannelWrite(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The rows that a decision about a channel changes, besides the channel's own row."""

    members: Sequence[ChannelMemberRow] = ()
    removed_members: Sequence[tuple[str, str]] = ()
    """(channel, agent) of members that left."""
    log: Sequence[ChannelLogRow] = ()


class SpendingRow(Row):
    """What was spent of a budget in one period."""

    name: str
    period: str
    cost: float
    tokens: int
    updated_at: Time


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
    spending: Sequence[SpendingRow] = ()
    """What was spent of budgets, to be added to their sums."""
    channel: ChannelWrite | None = None


def total_spending(writes: Sequence[StreamWrite]) -> list[SpendingRow]:
    """Return what the writes spend, once for each sum, in a fixed order: no two processes wait for
    each other.
    """
    totals: dict[tuple[str, str], SpendingRow] = {}
    for write in writes:
        for row in write.spending:
            total = totals.get((row.name, row.period))
            if total is not None:
                cost, tokens = total.cost + row.cost, total.tokens + row.tokens
                row = SpendingRow(row.name, row.period, cost, tokens, row.updated_at)
            totals[row.name, row.period] = row
    return [totals[key] for key in sorted(totals)]


class CommitRow(Row):
    """One transaction in the chain over the whole database."""

    n: int
    hash: bytes
    at: Time
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
    definition: Json
    created_by: str
    created_at: Time


class AgentRow(Row):
    """A registered agent. Claims of an earlier `session` are lost. `engine` is set for functions
    that run in an engine's process and end with it."""

    id: str
    roles: Json
    """A JSON array."""
    capacity: int
    enabled: bool
    session: str
    engine: str | None
    beat_at: Time


class NoteRow(Row):
    """Evidence outside of the events: a late, doubled or foreign result, unchanged (K21)."""

    execution_id: str
    at: Time
    actor: str
    code: str
    body: str


class StoredEntry(JournalEntry):
    """A journal entry as read, with its position in the order of commits. The body is empty if the
    run was archived."""

    n: int
    """The number of its commit."""
    id: int


_last_iso: tuple[datetime | None, str] = (None, "")

EMPTY_HEAD = b""
"""The head of a stream or database without entries."""
NOTES_MAX = 100
"""Notes kept per run; further notes are only counted."""


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


def entry_hash(head: bytes, stream: str, seq: int, body: str) -> bytes:
    """Return the head of a stream after this entry. It covers all earlier entries, the position
    and the content, so that it identifies the whole stream."""
    return sha256(b"%b\n%b\n%d\n%b" % (head, stream.encode(), seq, body.encode())).digest()


def journal_entry(stream: str, seq: int, head: bytes, events: Sequence[object]) -> JournalEntry:
    """The entry of these events, the last with number `seq`; `head` is the stream's before it."""
    body = encode(events).decode()
    return JournalEntry(
        stream=stream,
        seq=seq,
        count=len(events),
        body=body,
        hash=entry_hash(head, stream, seq, body),
    )


def filed_digest(bead: BeadRow) -> str:
    """Return the digest of what no run changes of its bead, but for the time."""
    texts = [sha256(text.encode()).hexdigest() for text in (bead.title, bead.description)]
    values = [bead.id, *texts, bead.filed_by, bead.priority, bead.due_at]
    return sha256(encode(values)).hexdigest()


def commit_hash(head: bytes, entry_hashes: Iterable[bytes]) -> bytes:
    """Return the head of the database after a commit with these entries. It covers all earlier
    commits, so that verification notices a missing or truncated stream."""
    return sha256(head + sha256(b"".join(entry_hashes)).digest()).digest()
