"""The office on PostgreSQL: lists, files, credentials and figures.

What takes long is asked of a `reader`: connections of its own, for which nobody else waits.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec.structs import astuple

from handrail.store.listing import Wanted, beads_of, found_by, newest, of_status
from handrail.store.office import (
    FILES_MAX,
    BeadItem,
    CredentialRow,
    EndedRun,
    FileRow,
    NodeFigures,
    NodeSums,
    Office,
    RunFigures,
    RunRow,
    Standing,
    WorkflowSums,
)
from handrail.store.port import (
    AgentRow,
    ApprovalRow,
    BeadRow,
    DefinitionRow,
    DispatchRow,
    Execution,
    KeyRow,
    Recorded,
)
from handrail.store.postgres.healing import PostgresHealing
from handrail.store.postgres.memory import PostgresMemories
from handrail.store.postgres.opening import Database
from handrail.store.postgres.reviews import PostgresReviews
from handrail.store.postgres.servers import Servers
from handrail.store.postgres.store import row_of
from handrail.store.postgres.values import columns
from handrail.store.postgres.writing import SQL, Rows
from handrail.store.records import Records
from handrail.store.statements import chosen

LAST = 2**63 - 1
SCANS = b"SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on"
"""For sums over whole tables, which is not what the settings of a connection are for."""


class PostgresOffice(PostgresMemories, PostgresReviews, PostgresHealing):
    def __init__(
        self, url: str, *, read_only: bool = False, servers: Servers | None = None
    ) -> None:
        super().__init__(url, read_only=read_only, servers=servers)
        self._url = url

    def reader(self) -> Office:
        return PostgresOffice(self._url, servers=self._servers)

    def records(self) -> Records | None:
        from handrail.store.postgres.records import PostgresRecords  # few need it

        return PostgresRecords(self._url, read_only=True)

    def _scan(self, name: str, wanted: Mapping[str, object]) -> Rows:
        text, values = chosen(SQL[name].decode(), wanted, "$")
        with self._use() as db, db.transaction():
            db.execute(SCANS, prepare=False)
            return db.execute(text.encode(), values, binary=True).fetchall()

    # Runs

    def runs(
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
    ) -> list[RunRow]:
        wanted: Wanted = {
            "bead_id": bead_id,
            "status": status,
            "terminal_status": terminal_status,
            "workflow_id": workflow_id,
            "since": since,
            "ended_since": ended_since,
            "ended_before": ended_before,
            "before": before,
            "limit": limit,
            **found_by(text),
        }
        return [row_of(RunRow, row) for row in self._list("runs", wanted)]

    def runs_of(self, bead_id: str, after: str = "", limit: int = 50) -> list[Execution]:
        return [row_of(Execution, row) for row in self._all("runs_of", bead_id, after, limit)]

    def back(self, before_n: int | None, limit: int) -> list[Recorded]:
        rows = self._all("back", before_n or LAST, limit)
        return [row_of(Recorded, row) for row in rows]

    # Questions to people

    def approval(self, approval_id: str) -> ApprovalRow | None:
        row = self._one("approval", approval_id)
        return row_of(ApprovalRow, row) if row is not None else None

    def approvals_page(
        self,
        *,
        execution_id: str | None = None,
        status: str | None = None,
        before: tuple[str, str] | None = None,
        limit: int = 50,
    ) -> list[ApprovalRow]:
        at, last = before or (None, None)
        wanted: Wanted = {"execution_id": execution_id, **of_status(status)}
        wanted |= {"before_at": at, "before_id": last, "limit": limit}
        return [row_of(ApprovalRow, row) for row in self._list("approvals_page", wanted)]

    # Beads

    def beads(
        self,
        *,
        type: Literal["work", "approval"] | None = None,  # noqa: A002 - as the column
        status: str | None = None,
        workflow_id: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[BeadItem]:
        wanted: Wanted = {"workflow_id": workflow_id, "before": before, "limit": limit}
        pages = [self._list(name, wanted | more) for name, more in beads_of(type, status)]
        return newest(limit, *([row_of(BeadItem, row) for row in rows] for rows in pages))

    def file_bead(self, bead: BeadRow, key: KeyRow | None) -> KeyRow | None:
        with self._writing() as db, db.transaction():
            if key is not None:
                kept = db.execute(SQL["keep_answers"], columns("ttttt", [astuple(key)]))
                if not kept.rowcount:
                    return _kept(db, key)
            db.execute(SQL["insert_bead"], astuple(bead))
            return None

    def change_bead(self, bead: BeadRow, was: str) -> bool:
        return self._change("change_bead", bead.context, bead.updated_at, bead.id, was) > 0

    def put_file(self, file: FileRow) -> bool:
        with self._writing() as db, db.transaction():
            db.execute(SQL["lock_files"], (file.bead_id,))
            return db.execute(SQL["put_file"], (*astuple(file), FILES_MAX)).rowcount > 0

    def files(self, bead_id: str) -> list[FileRow]:
        return [row_of(FileRow, row) for row in self._all("files", bead_id)]

    def file(self, bead_id: str, name: str) -> FileRow | None:
        row = self._one("file", bead_id, name)
        return row_of(FileRow, row) if row is not None else None

    # Definitions

    def definitions_page(self, after: str, limit: int) -> list[DefinitionRow]:
        return [row_of(DefinitionRow, row) for row in self._all("definitions_page", after, limit)]

    def versions(self, workflow_id: str) -> list[DefinitionRow]:
        return [row_of(DefinitionRow, row) for row in self._all("versions", workflow_id)]

    # Agents

    def agent(self, agent_id: str) -> AgentRow | None:
        row = self._one("agent", agent_id)
        return row_of(AgentRow, row) if row is not None else None

    def register(self, agent: AgentRow) -> bool:
        return self._change("register", *astuple(agent)) > 0

    def enable_agent(self, agent_id: str, *, enabled: bool) -> bool:
        return self._change("enable_agent", enabled, agent_id) > 0

    def held(self, session: str | None = None) -> list[DispatchRow]:
        rows = self._all("held", session) if session is not None else self._all("all_held")
        return [row_of(DispatchRow, row) for row in rows]

    # Credentials and answers

    def add_credential(self, row: CredentialRow) -> None:
        self._change("add_credential", *astuple(row))

    def credential(self, digest: str) -> CredentialRow | None:
        row = self._one("credential", digest)
        return row_of(CredentialRow, row) if row is not None else None

    def credentials(self, kind: str) -> list[CredentialRow]:
        return [row_of(CredentialRow, row) for row in self._all("credentials", kind)]

    def revoke_credential(self, credential_id: str, at: str) -> bool:
        return self._change("revoke_credential", at, credential_id) > 0

    def use_sign_in(self, digest: str, at: str) -> CredentialRow | None:
        with self._writing() as db:
            row = db.execute(SQL["use_sign_in"], (at, digest), binary=True).fetchone()
        return row_of(CredentialRow, row) if row is not None else None

    def has_tokens(self) -> bool:
        return self._all("has_tokens") == [(True,)]

    def keep_answers(self, rows: Sequence[KeyRow]) -> None:
        if rows:  # in one order for all engines
            self._change("keep_answers", *columns("ttttt", sorted(astuple(row) for row in rows)))

    # Figures

    def standing(self, limit: int) -> list[Standing]:
        return [row_of(Standing, row) for row in self._all("standing", limit)]

    def ended(self, after: tuple[str, str], limit: int) -> list[EndedRun]:
        at, last = after
        rows = self._all("ended", at or "-infinity", last, limit)
        return [row_of(EndedRun, row) for row in rows]

    def put_figures(self, runs: Sequence[RunFigures], nodes: Sequence[NodeFigures]) -> None:
        """Numbers with a point go as texts, which keep every digit."""
        with self._writing() as db, db.transaction():
            if runs:
                rows = [tuple(map(_text, astuple(run))) for run in runs]
                db.execute(SQL["put_run_figures"], columns("tttttnnt", rows))
            if nodes:
                db.execute(SQL["put_node_figures"], columns("ttnn", [astuple(n) for n in nodes]))

    def sums(self, workflow_id: str | None, since: str | None) -> list[WorkflowSums]:
        rows = self._scan("sums", {"workflow_id": workflow_id, "since": since})
        return [row_of(WorkflowSums, row) for row in rows]

    def node_sums(self, workflow_id: str | None, since: str | None) -> list[NodeSums]:
        rows = self._scan("node_sums", {"workflow_id": workflow_id, "since": since})
        return [row_of(NodeSums, row) for row in rows]


def _kept(db: Database, row: KeyRow) -> KeyRow:
    kept = db.execute(SQL["key"], (row.key, row.actor), binary=True).fetchone()
    assert kept is not None, "it is there, or was put there"
    return row_of(KeyRow, kept)


def _text(value: object) -> object:
    return repr(value) if isinstance(value, float) else value
