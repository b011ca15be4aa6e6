"""The `Store` on SQLite: lists, files, credentials and statistics, on the engine's own connection.

Long queries go to a store from `open_reader`, whose connection is its own and delays no commit.
"""

from collections.abc import Sequence
from math import floor
from typing import Literal

from msgspec.structs import astuple

from handrail.store.engine_store import (
    AgentRow,
    ApprovalRow,
    BeadRow,
    DefinitionRow,
    DispatchRow,
    IdempotencyKeyRow,
    RunRow,
    StoredEntry,
)
from handrail.store.filters import Filters, bead_queries, merge_newest, status_filters, text_filters
from handrail.store.maintenance import MaintenanceStore
from handrail.store.sqlite.bugs import SqliteBugStore
from handrail.store.sqlite.database import IN_MEMORY_PATH
from handrail.store.sqlite.engine_store import SQL, row_of
from handrail.store.sqlite.notifications import SqliteNotificationStore
from handrail.store.sqlite.ticket_memory import SqliteTicketMemoryStore
from handrail.store.store import (
    BEAD_FILES_MAX,
    BeadItem,
    CredentialRow,
    DefinitionStats,
    EndedRun,
    FileRow,
    NodeDispatchStats,
    NodeStatsRow,
    OpenWorkCount,
    RunListRow,
    RunStatsRow,
    Store,
)

COMMIT_N_MAX = 2**63 - 1


class SqliteStore(SqliteTicketMemoryStore, SqliteNotificationStore, SqliteBugStore):
    def open_reader(self) -> Store:
        return self if self.path == IN_MEMORY_PATH else SqliteStore(self.path, read_only=True)

    def open_maintenance(self) -> MaintenanceStore | None:
        from handrail.store.sqlite.maintenance import SqliteMaintenanceStore  # few need it

        return (
            None
            if self.path == IN_MEMORY_PATH
            else SqliteMaintenanceStore(self.path, read_only=True)
        )

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
        filters: Filters = {
            "bead_id": bead_id,
            "status": status,
            "terminal_status": terminal_status,
            "workflow_id": workflow_id,
            "since": since,
            "ended_since": ended_since,
            "ended_before": ended_before,
            "before": before,
            "limit": limit,
            **text_filters(text),
        }
        return [row_of(RunListRow, row) for row in self._fetch_filtered("runs", filters)]

    def list_bead_runs(self, bead_id: str, after: str = "", limit: int = 50) -> list[RunRow]:
        return [row_of(RunRow, row) for row in self._fetch_all("runs_of", bead_id, after, limit)]

    def read_feed_backwards(self, before_n: int | None, limit: int) -> list[StoredEntry]:
        entries: list[StoredEntry] = []
        for n, batch, first, last in self._fetch_all("back", before_n or COMMIT_N_MAX, limit):
            rows = self._fetch_all("entries", n, first, last, batch)
            entries += [row_of(StoredEntry, row) for row in reversed(rows)]
            if len(entries) >= limit:
                break
        return entries

    # Approvals

    def get_approval(self, approval_id: str) -> ApprovalRow | None:
        row = self._fetch_one("approval", approval_id)
        return row_of(ApprovalRow, row) if row is not None else None

    def list_newest_approvals(
        self,
        *,
        execution_id: str | None = None,
        status: str | None = None,
        before: tuple[str, str] | None = None,
        limit: int = 50,
    ) -> list[ApprovalRow]:
        at, last = before or (None, None)
        filters: Filters = {"execution_id": execution_id, **status_filters(status)}
        filters |= {"before_at": at, "before_id": last, "limit": limit}
        return [row_of(ApprovalRow, row) for row in self._fetch_filtered("approvals_page", filters)]

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
        filters: Filters = {"workflow_id": workflow_id, "before": before, "limit": limit}
        pages = [
            self._fetch_filtered(name, filters | own_filters)
            for name, own_filters in bead_queries(type, status)
        ]
        return merge_newest(limit, *([row_of(BeadItem, row) for row in rows] for rows in pages))

    def create_bead(self, bead: BeadRow, key: IdempotencyKeyRow | None) -> IdempotencyKeyRow | None:
        with self._transaction() as db:
            if key is not None and not db.execute(SQL["keep_answer"], astuple(key)).rowcount:
                stored_key = db.execute(SQL["key"], (key.key, key.actor)).fetchone()
                return row_of(IdempotencyKeyRow, stored_key)
            db.execute(SQL["insert_bead"], astuple(bead))
            return None

    def update_bead_context(self, bead: BeadRow, expected_updated_at: str) -> bool:
        return (
            self._execute(
                "change_bead", bead.context, bead.updated_at, bead.id, expected_updated_at
            )
            > 0
        )

    def put_file(self, file: FileRow) -> bool:
        return self._execute("put_file", *astuple(file), BEAD_FILES_MAX) > 0

    def list_files(self, bead_id: str) -> list[FileRow]:
        return [row_of(FileRow, row) for row in self._fetch_all("files", bead_id)]

    def get_file(self, bead_id: str, name: str) -> FileRow | None:
        row = self._fetch_one("file", bead_id, name)
        return row_of(FileRow, row) if row is not None else None

    # Definitions

    def list_definitions_page(self, after: str, limit: int) -> list[DefinitionRow]:
        return [
            row_of(DefinitionRow, row) for row in self._fetch_all("definitions_page", after, limit)
        ]

    def list_definition_versions(self, workflow_id: str) -> list[DefinitionRow]:
        return [row_of(DefinitionRow, row) for row in self._fetch_all("versions", workflow_id)]

    # Agents

    def get_agent(self, agent_id: str) -> AgentRow | None:
        row = self._fetch_one("agent", agent_id)
        return row_of(AgentRow, (*row[:3], bool(row[3]), *row[4:])) if row is not None else None

    def register_agent(self, agent: AgentRow) -> bool:
        return self._execute("register", *astuple(agent)) > 0

    def set_agent_enabled(self, agent_id: str, *, enabled: bool) -> bool:
        return self._execute("enable_agent", enabled, agent_id) > 0

    def list_claimed_dispatches(self, session: str | None = None) -> list[DispatchRow]:
        rows = (
            self._fetch_all("held", session) if session is not None else self._fetch_all("all_held")
        )
        return [row_of(DispatchRow, row) for row in rows]

    # Credentials and answers

    def add_credential(self, row: CredentialRow) -> None:
        self._execute("add_credential", *astuple(row))

    def get_credential(self, digest: str) -> CredentialRow | None:
        row = self._fetch_one("credential", digest)
        return row_of(CredentialRow, row) if row is not None else None

    def list_credentials(self, kind: str) -> list[CredentialRow]:
        return [row_of(CredentialRow, row) for row in self._fetch_all("credentials", kind)]

    def revoke_credential(self, credential_id: str, at: str) -> bool:
        return self._execute("revoke_credential", at, credential_id) > 0

    def use_sign_in(self, digest: str, at: str) -> CredentialRow | None:
        with self._transaction() as db:
            row = db.execute(SQL["use_sign_in"], (at, digest)).fetchone()
        return row_of(CredentialRow, row) if row is not None else None

    def has_active_tokens(self) -> bool:
        return self._fetch_all("has_tokens") == [(1,)]

    def put_idempotency_keys(self, rows: Sequence[IdempotencyKeyRow]) -> None:
        with self._transaction() as db:
            db.executemany(SQL["keep_answer"], [astuple(row) for row in rows])

    # Statistics

    def count_open_work(self, limit: int) -> list[OpenWorkCount]:
        return [row_of(OpenWorkCount, row) for row in self._fetch_all("standing", limit)]

    def list_ended_runs(self, after: tuple[str, str], limit: int) -> list[EndedRun]:
        rows = self._fetch_all("ended", *after, limit)
        return [
            EndedRun(id=run_id, ended_at=ended_at, counted=bool(counted))
            for run_id, ended_at, counted in rows
        ]

    def put_run_stats(self, runs: Sequence[RunStatsRow], nodes: Sequence[NodeStatsRow]) -> None:
        with self._transaction() as db:
            db.executemany(SQL["put_run_figures"], [astuple(run) for run in runs])
            db.executemany(SQL["put_node_figures"], [astuple(node) for node in nodes])

    def sum_definition_stats(
        self, workflow_id: str | None, since: str | None
    ) -> list[DefinitionStats]:
        stats: list[DefinitionStats] = []
        for row in self._fetch_filtered("sums", {"workflow_id": workflow_id, "since": since}):
            definition_id, runs, succeeded, escalated, mean, tokens, cost = row
            percentiles = [
                self._percentile(definition_id, since, runs, fraction)
                for fraction in (0.5, 0.9, 0.99)
            ]
            values = (definition_id, runs, succeeded, escalated, mean, *percentiles, tokens, cost)
            stats.append(row_of(DefinitionStats, values))
        return stats

    def _percentile(self, workflow_id: str, since: str | None, runs: int, fraction: float) -> float:
        """Interpolate between the two nearest values, like PostgreSQL's `percentile_cont`."""
        rank = (runs - 1) * fraction
        filters = {"workflow_id": workflow_id, "since": since, "offset": floor(rank)}
        low, *higher = (seconds for (seconds,) in self._fetch_filtered("seconds_at", filters))
        return low + (higher[0] - low) * (rank - floor(rank)) if higher else low

    def sum_node_stats(self, workflow_id: str | None, since: str | None) -> list[NodeDispatchStats]:
        rows = self._fetch_filtered("node_sums", {"workflow_id": workflow_id, "since": since})
        return [row_of(NodeDispatchStats, row) for row in rows]
