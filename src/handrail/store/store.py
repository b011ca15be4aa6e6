"""The store for servers of people and remote agents: lists, files, credentials, statistics.

`Store` extends the engine's store with more queries on the same database. Nothing here takes part
in a decision: decisions go through `EngineStore.commit`. `open_store` in `urls.py` opens a store.

Lists are pages, the newest first: `before` is the last id of the previous page, and a filter of
None does not apply.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

from handrail.store.bugs import BugStore
from handrail.store.engine_store import (
    AgentRow,
    ApprovalRow,
    BeadRow,
    DefinitionRow,
    DispatchRow,
    EngineStore,
    IdempotencyKeyRow,
    Row,
    RunRow,
    StoredEntry,
)
from handrail.store.maintenance import MaintenanceStore
from handrail.store.notifications import NotificationStore
from handrail.store.ticket_memory import TicketMemoryStore

BEAD_FILES_MAX = 100
"""Files per bead."""


class RunListRow(Row):
    """A run in a list: the columns shown, and its bead's title."""

    id: str
    bead_id: str
    title: str
    workflow_id: str
    workflow_version: int
    current_node_id: str | None
    status: str
    terminal_status: str | None
    stop_rule: str | None
    priority: int
    created_at: str
    updated_at: str
    ended_at: str | None


class BeadItem(BeadRow):
    """A bead in a list: work, or an approval, whose parent is the work it is about."""

    type: str
    parent_id: str | None


class FileRow(Row):
    """A file of a bead. Lists omit the content."""

    bead_id: str
    name: str
    sha256: str
    size: int
    content_type: str
    content: bytes | None
    uploaded_by: str
    created_at: str


class CredentialRow(Row):
    """A token, a one-time sign-in or a browser's session. Only the secret's digest is kept."""

    id: str
    kind: str
    """token, sign_in or session"""
    digest: str
    """SHA-256 of the secret, in hex; unique."""
    name: str
    agent: str | None
    role: str
    works_as: str | None
    """The roles that an agent may register, as a JSON array; None: any."""
    created_by: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class RunStatsRow(Row):
    """Statistics of a run that has ended."""

    execution_id: str
    workflow_id: str
    ended_at: str
    seconds: float
    terminal_status: str
    escalations: int
    tokens: int
    cost: float


class NodeStatsRow(Row):
    """Statistics of one node, or agent of a team, in a run that has ended."""

    execution_id: str
    node: str
    visits: int
    dispatches: int


class EndedRun(Row):
    """A run that has ended, and whether its statistics are stored."""

    id: str
    ended_at: str
    counted: bool


class DefinitionStats(Row):
    """Totals of the runs of one definition that ended since a moment. Percentiles are interpolated
    between the two nearest values."""

    workflow_id: str
    runs: int
    succeeded: int
    escalated: int
    """Runs with an escalation."""
    seconds_mean: float
    seconds_p50: float
    seconds_p90: float
    seconds_p99: float
    tokens: int
    cost: float


class NodeDispatchStats(Row):
    """How many runs needed that number of dispatches of the node."""

    workflow_id: str
    node: str
    dispatches: int
    runs: int


class OpenWorkCount(Row):
    """A count of open work: runs by status, dispatches offered and claimed by role, approvals by
    type. `oldest` is when the first of them began to wait."""

    what: str
    kind: str
    count: int
    oldest: str | None


class Store(EngineStore, TicketMemoryStore, NotificationStore, BugStore, Protocol):
    """The store of a server. Every method is one transaction."""

    def open_reader(self) -> "Store":
        """Open the same database for long queries that engines do not wait for. Call it on a
        thread, and close it. The reader may be this very store."""
        ...

    def open_maintenance(self) -> MaintenanceStore | None:
        """Open the same database for maintenance, read-only; the caller closes it. None if the
        database is in memory, where no other connection can read it."""
        ...

    # Runs

    def list_runs(
        self,
        *,
        bead_id: str | None = None,
        status: str | None = None,
        terminal_status: str | None = None,
        workflow_id: str | None = None,
        text: str | None = None,
        since: str | None = None,
        ended_since: str | None = None,
        ended_before: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[RunListRow]:
        """List runs by id, the newest first. `text` is in the title, in any case, or begins the id
        of the run or of its bead; `since` compares with the run's creation."""
        ...

    def list_bead_runs(self, bead_id: str, after: str = "", limit: int = 50) -> list[RunRow]:
        """List the runs of a bead, the oldest first, without their states."""
        ...

    def read_feed_backwards(self, before_n: int | None, limit: int) -> list[StoredEntry]:
        """Like `read_feed`, backwards: the entries of the commits before that one, the newest
        first, also within a commit. Commits are not split: the last may exceed the limit."""
        ...

    # Approvals

    def get_approval(self, approval_id: str) -> ApprovalRow | None: ...

    def list_newest_approvals(
        self,
        *,
        execution_id: str | None = None,
        status: str | None = None,
        before: tuple[str, str] | None = None,
        limit: int = 50,
    ) -> list[ApprovalRow]:
        """List approvals, the newest first; `before` is (created_at, id)."""
        ...

    # Beads

    def list_beads(
        self,
        *,
        type: Literal["work", "approval"] | None = None,  # noqa: A002 - as the column
        status: str | None = None,
        workflow_id: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[BeadItem]:
        """List beads by id, the newest first. The status of an approval is open or closed."""
        ...

    def create_bead(self, bead: BeadRow, key: IdempotencyKeyRow | None) -> IdempotencyKeyRow | None:
        """Insert a bead and the request's idempotency key. If the key exists, insert nothing and
        return the existing key."""
        ...

    def update_bead_context(self, bead: BeadRow, expected_updated_at: str) -> bool:
        """Update context and `updated_at`, if the bead was last updated at `expected_updated_at`
        and no run is active."""
        ...

    def put_file(self, file: FileRow) -> bool:
        """Insert a file. Return False if the bead has that name, or BEAD_FILES_MAX files."""
        ...

    def list_files(self, bead_id: str) -> list[FileRow]:
        """List files by name, without their contents."""
        ...

    def get_file(self, bead_id: str, name: str) -> FileRow | None: ...

    # Definitions

    def list_definitions_page(self, after: str, limit: int) -> list[DefinitionRow]:
        """List the newest version of each definition, by id."""
        ...

    def list_definition_versions(self, workflow_id: str) -> list[DefinitionRow]:
        """List all versions of a definition, the newest first; by id, not by name."""
        ...

    # Agents

    def get_agent(self, agent_id: str) -> AgentRow | None: ...

    def register_agent(self, agent: AgentRow) -> bool:
        """Register a remote agent. A disabled agent stays disabled. Return False if a function of
        an engine has that id."""
        ...

    def set_agent_enabled(self, agent_id: str, *, enabled: bool) -> bool:
        """Return False if there is no such agent."""
        ...

    def list_claimed_dispatches(self, session: str | None = None) -> list[DispatchRow]:
        """List dispatches claimed by that session, or by any; the oldest claim first."""
        ...

    # Credentials and answers

    def add_credential(self, row: CredentialRow) -> None: ...

    def get_credential(self, digest: str) -> CredentialRow | None:
        """Return the credential, even if expired or revoked."""
        ...

    def list_credentials(self, kind: str) -> list[CredentialRow]:
        """List credentials, the newest first."""
        ...

    def revoke_credential(self, credential_id: str, at: str) -> bool:
        """Return False if there is no such credential, or it was revoked before."""
        ...

    def use_sign_in(self, digest: str, at: str) -> CredentialRow | None:
        """Use and revoke the one-time sign-in. None if it is unknown, used or expired."""
        ...

    def has_active_tokens(self) -> bool:
        """Return whether a token exists that was not revoked."""
        ...

    def put_idempotency_keys(self, rows: Sequence[IdempotencyKeyRow]) -> None:
        """Insert keys with their responses; for each key and actor the first response stays."""
        ...

    # Statistics

    def count_open_work(self, limit: int) -> list[OpenWorkCount]:
        """Count open work; at most `limit` rows of each kind are read."""
        ...

    def list_ended_runs(self, after: tuple[str, str], limit: int) -> list[EndedRun]:
        """List ended runs after (ended_at, id), in that order."""
        ...

    def put_run_stats(self, runs: Sequence[RunStatsRow], nodes: Sequence[NodeStatsRow]) -> None:
        """Insert statistics of runs; runs that have statistics already stay unchanged."""
        ...

    def sum_definition_stats(
        self, workflow_id: str | None, since: str | None
    ) -> list[DefinitionStats]:
        """Sum up, by definition, the runs that ended at that moment or later."""
        ...

    def sum_node_stats(
        self, workflow_id: str | None, since: str | None
    ) -> list[NodeDispatchStats]: ...
