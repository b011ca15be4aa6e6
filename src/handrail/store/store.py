"""The store for whoever serves people and agents from outside: lists, files, credentials, figures.

It is the store of the engine with more questions on the same database. Nothing here takes part in
a decision: what an engine decides goes through `Store.commit`. `open_store` in `urls.py` makes one.

Lists are pages, the newest first: `before` is the last id of the page that was seen, and what is
None is not asked for.
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
"""Files of one bead."""


class RunListRow(Row):
    """A run in a list: of its row what is shown, and its bead's title."""

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
    """A bead in a list: work, or a question to people, whose parent is the work it is about."""

    type: str
    parent_id: str | None


class FileRow(Row):
    """A file of a bead; without its content in lists."""

    bead_id: str
    name: str
    sha256: str
    size: int
    content_type: str
    content: bytes | None
    uploaded_by: str
    created_at: str


class CredentialRow(Row):
    """A token, a one-time sign-in or a browser's session. Of the secret only the digest is kept."""

    id: str
    kind: str
    """token, sign_in or session"""
    digest: str
    """SHA-256 of the secret, in hex; no two are the same."""
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
    """What is counted of a run that has ended."""

    execution_id: str
    workflow_id: str
    ended_at: str
    seconds: float
    terminal_status: str
    escalations: int
    tokens: int
    cost: float


class NodeStatsRow(Row):
    """What is counted of one node, or agent of a team, in a run that has ended."""

    execution_id: str
    node: str
    visits: int
    dispatches: int


class EndedRun(Row):
    """A run that has ended, and whether its figures are known."""

    id: str
    ended_at: str
    counted: bool


class DefinitionStats(Row):
    """The runs of one definition that ended since a moment, in all. Percentiles are between the two
    nearest values."""

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
    """So many runs needed so many dispatches of the node."""

    workflow_id: str
    node: str
    dispatches: int
    runs: int


class OpenWorkCount(Row):
    """So many are open now: runs by status, dispatches offered and claimed by role, questions by
    type. `oldest` is when the first of them began to wait."""

    what: str
    kind: str
    count: int
    oldest: str | None


class Store(EngineStore, TicketMemoryStore, NotificationStore, BugStore, Protocol):
    """Every method is one transaction."""

    def open_reader(self) -> "Store":
        """The same database for questions that take long: engines do not wait for the answer. To
        be asked on a thread, and closed; it may be this very store."""
        ...

    def open_maintenance(self) -> MaintenanceStore | None:
        """The same database for a caretaker, to read from, and to be closed. None if it is in
        memory, where nobody else can look."""
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
        """By id, the newest first. `text` is in the title, whatever the case, or begins the id of
        the run or of its bead; `since` is when the run was created."""
        ...

    def list_bead_runs(self, bead_id: str, after: str = "", limit: int = 50) -> list[RunRow]:
        """The runs of a bead, the oldest first, without their states."""
        ...

    def read_feed_backwards(self, before_n: int | None, limit: int) -> list[StoredEntry]:
        """As `feed`, backwards: the entries of the commits before that one, the newest first; of a
        commit the last first. Whole commits, of which the last may go over the limit."""
        ...

    # Questions to people

    def get_approval(self, approval_id: str) -> ApprovalRow | None: ...

    def list_newest_approvals(
        self,
        *,
        execution_id: str | None = None,
        status: str | None = None,
        before: tuple[str, str] | None = None,
        limit: int = 50,
    ) -> list[ApprovalRow]:
        """Those asked last come first; `before` is (created_at, id)."""
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
        """By id, the newest first. An approval is open, or closed."""
        ...

    def create_bead(self, bead: BeadRow, key: IdempotencyKeyRow | None) -> IdempotencyKeyRow | None:
        """A new bead, and the key that it was asked for with; or nothing, and the key that stands,
        if that is taken."""
        ...

    def update_bead_context(self, bead: BeadRow, expected_updated_at: str) -> bool:
        """Its context and `updated_at`, if it was last updated at `was` and no run is active."""
        ...

    def put_file(self, file: FileRow) -> bool:
        """A new file of a bead; False if it has one of that name, or FILES_MAX already."""
        ...

    def list_files(self, bead_id: str) -> list[FileRow]:
        """By name, without their contents."""
        ...

    def get_file(self, bead_id: str, name: str) -> FileRow | None: ...

    # Definitions

    def list_definitions_page(self, after: str, limit: int) -> list[DefinitionRow]:
        """The newest version of each, by id."""
        ...

    def list_definition_versions(self, workflow_id: str) -> list[DefinitionRow]:
        """All versions of one, the newest first; by id alone."""
        ...

    # Agents

    def get_agent(self, agent_id: str) -> AgentRow | None: ...

    def register_agent(self, agent: AgentRow) -> bool:
        """An agent outside of all engines. It stays disabled if it was. False if a function of an
        engine has that id."""
        ...

    def set_agent_enabled(self, agent_id: str, *, enabled: bool) -> bool:
        """False if there is none."""
        ...

    def list_claimed_dispatches(self, session: str | None = None) -> list[DispatchRow]:
        """What is claimed, by that session or by anybody; the oldest claim first."""
        ...

    # Credentials and answers

    def add_credential(self, row: CredentialRow) -> None: ...

    def get_credential(self, digest: str) -> CredentialRow | None:
        """Also one that has expired or was revoked."""
        ...

    def list_credentials(self, kind: str) -> list[CredentialRow]:
        """The newest first."""
        ...

    def revoke_credential(self, credential_id: str, at: str) -> bool:
        """False if there is none, or it was revoked before."""
        ...

    def use_sign_in(self, digest: str, at: str) -> CredentialRow | None:
        """The sign-in, once: it is revoked by it. None if it is unknown, used or expired."""
        ...

    def has_active_tokens(self) -> bool:
        """Whether there is a token that was not revoked."""
        ...

    def put_idempotency_keys(self, rows: Sequence[IdempotencyKeyRow]) -> None:
        """Under each key and actor the first answer stands."""
        ...

    # Figures

    def count_open_work(self, limit: int) -> list[OpenWorkCount]:
        """What is open now; of each kind so many are looked at, and no more."""
        ...

    def list_ended_runs(self, after: tuple[str, str], limit: int) -> list[EndedRun]:
        """Runs by the moment of their end: those after (ended_at, id)."""
        ...

    def put_run_stats(self, runs: Sequence[RunStatsRow], nodes: Sequence[NodeStatsRow]) -> None:
        """Of runs that are not counted yet; of others nothing changes."""
        ...

    def sum_definition_stats(
        self, workflow_id: str | None, since: str | None
    ) -> list[DefinitionStats]:
        """By definition; runs that ended at that moment or later."""
        ...

    def sum_node_stats(
        self, workflow_id: str | None, since: str | None
    ) -> list[NodeDispatchStats]: ...
