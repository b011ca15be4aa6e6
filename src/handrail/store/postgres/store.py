"""The `Store` on PostgreSQL: lists, files, credentials and statistics.

Long queries go to a store from `open_reader`, whose connections are its own and block no others.
"""

from collections.abc import Mapping, Sequence
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
from handrail.store.postgres.binary_values import array_columns
from handrail.store.postgres.bugs import PostgresBugStore
from handrail.store.postgres.commit import SQL, Rows
from handrail.store.postgres.database import PostgresConnection
from handrail.store.postgres.engine_store import row_of
from handrail.store.postgres.notifications import PostgresNotificationStore
from handrail.store.postgres.primary import PrimaryFinder
from handrail.store.postgres.ticket_memory import PostgresTicketMemoryStore
from handrail.store.statements import select_filters
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
ENABLE_SCANS_SQL = b"SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on"
"""Allows table scans for sums over whole tables; the connection's settings disable them."""


class PostgresStore(PostgresTicketMemoryStore, PostgresNotificationStore, PostgresBugStore):
    def __init__(
        self, url: str, *, read_only: bool = False, primary_finder: PrimaryFinder | None = None
    ) -> None:
        super().__init__(url, read_only=read_only, primary_finder=primary_finder)
        self._url = url

    def open_reader(self) -> Store:
        return PostgresStore(self._url, primary_finder=self._primary_finder)

    def open_maintenance(self) -> MaintenanceStore | None:
        from handrail.store.postgres.maintenance import PostgresMaintenanceStore  # few need it

        return PostgresMaintenanceStore(self._url, read_only=True)

    def _fetch_scanning(self, name: str, filters: Mapping[str, object]) -> Rows:
        text, values = select_filters(SQL[name].decode(), filters, "$")
        with self._borrow_connection() as db, db.transaction():
            db.execute(ENABLE_SCANS_SQL, prepare=False)
            return db.execute(text.encode(), values, binary=True).fetchall()

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
        rows = self._fetch_all("back", before_n or COMMIT_N_MAX, limit)
        return [row_of(StoredEntry, row) for row in rows]

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
        with self._borrow_for_write() as db, db.transaction():
            if key is not None:
                inserted = db.execute(SQL["keep_answers"], array_columns("ttttt", [astuple(key)]))
                if not inserted.rowcount:
                    return _stored_key(db, key)
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
        with self._borrow_for_write() as db, db.transaction():
            db.execute(SQL["lock_files"], (file.bead_id,))
            return db.execute(SQL["put_file"], (*astuple(file), BEAD_FILES_MAX)).rowcount > 0

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
        return row_of(AgentRow, row) if row is not None else None

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
        with self._borrow_for_write() as db:
            row = db.execute(SQL["use_sign_in"], (at, digest), binary=True).fetchone()
        return row_of(CredentialRow, row) if row is not None else None

    def has_active_tokens(self) -> bool:
        return self._fetch_all("has_tokens") == [(True,)]

    def put_idempotency_keys(self, rows: Sequence[IdempotencyKeyRow]) -> None:
        if rows:  # in one order for all engines
            self._execute(
                "keep_answers", *array_columns("ttttt", sorted(astuple(row) for row in rows))
            )

    # Statistics

    def count_open_work(self, limit: int) -> list[OpenWorkCount]:
        return [row_of(OpenWorkCount, row) for row in self._fetch_all("standing", limit)]

    def list_ended_runs(self, after: tuple[str, str], limit: int) -> list[EndedRun]:
        ended_at, last_id = after
        rows = self._fetch_all("ended", ended_at or "-infinity", last_id, limit)
        return [row_of(EndedRun, row) for row in rows]

    def put_run_stats(self, runs: Sequence[RunStatsRow], nodes: Sequence[NodeStatsRow]) -> None:
        """Send decimal numbers as texts, which keep every digit."""
        with self._borrow_for_write() as db, db.transaction():
            if runs:
                rows = [tuple(map(_exact_text, astuple(run))) for run in runs]
                db.execute(SQL["put_run_figures"], array_columns("tttttnnt", rows))
            if nodes:
                db.execute(
                    SQL["put_node_figures"],
                    array_columns("ttnn", [astuple(node) for node in nodes]),
                )

    def sum_definition_stats(
        self, workflow_id: str | None, since: str | None
    ) -> list[DefinitionStats]:
        rows = self._fetch_scanning("sums", {"workflow_id": workflow_id, "since": since})
        return [row_of(DefinitionStats, row) for row in rows]

    def sum_node_stats(self, workflow_id: str | None, since: str | None) -> list[NodeDispatchStats]:
        rows = self._fetch_scanning("node_sums", {"workflow_id": workflow_id, "since": since})
        return [row_of(NodeDispatchStats, row) for row in rows]


def _stored_key(db: PostgresConnection, key: IdempotencyKeyRow) -> IdempotencyKeyRow:
    stored = db.execute(SQL["key"], (key.key, key.actor), binary=True).fetchone()
    assert stored is not None, "it is there, or was put there"
    return row_of(IdempotencyKeyRow, stored)


def _exact_text(value: object) -> object:
    return repr(value) if isinstance(value, float) else value
