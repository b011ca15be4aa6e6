"""The office on SQLite: lists, files, credentials and figures, on the engine's own connection.

What takes long is asked of a `reader`: a connection of its own, which holds up no commit.
"""

from collections.abc import Sequence
from math import floor
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
from handrail.store.records import Records
from handrail.store.sqlite.healing import SqliteHealing
from handrail.store.sqlite.memory import SqliteMemories
from handrail.store.sqlite.opening import MEMORY
from handrail.store.sqlite.reviews import SqliteReviews
from handrail.store.sqlite.store import SQL, row_of

LAST = 2**63 - 1


class SqliteOffice(SqliteMemories, SqliteReviews, SqliteHealing):
    def reader(self) -> Office:
        return self if self.path == MEMORY else SqliteOffice(self.path, read_only=True)

    def records(self) -> Records | None:
        from handrail.store.sqlite.records import SqliteRecords  # few need it

        return None if self.path == MEMORY else SqliteRecords(self.path, read_only=True)

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
        found: list[Recorded] = []
        for n, batch, first, last in self._all("back", before_n or LAST, limit):
            rows = self._all("entries", n, first, last, batch)
            found += [row_of(Recorded, row) for row in reversed(rows)]
            if len(found) >= limit:
                break
        return found

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
        with self._writing() as db:
            if key is not None and not db.execute(SQL["keep_answer"], astuple(key)).rowcount:
                kept = db.execute(SQL["key"], (key.key, key.actor)).fetchone()
                return row_of(KeyRow, kept)
            db.execute(SQL["insert_bead"], astuple(bead))
            return None

    def change_bead(self, bead: BeadRow, was: str) -> bool:
        return self._change("change_bead", bead.context, bead.updated_at, bead.id, was) > 0

    def put_file(self, file: FileRow) -> bool:
        return self._change("put_file", *astuple(file), FILES_MAX) > 0

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
        return row_of(AgentRow, (*row[:3], bool(row[3]), *row[4:])) if row is not None else None

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
            row = db.execute(SQL["use_sign_in"], (at, digest)).fetchone()
        return row_of(CredentialRow, row) if row is not None else None

    def has_tokens(self) -> bool:
        return self._all("has_tokens") == [(1,)]

    def keep_answers(self, rows: Sequence[KeyRow]) -> None:
        with self._writing() as db:
            db.executemany(SQL["keep_answer"], [astuple(row) for row in rows])

    # Figures

    def standing(self, limit: int) -> list[Standing]:
        return [row_of(Standing, row) for row in self._all("standing", limit)]

    def ended(self, after: tuple[str, str], limit: int) -> list[EndedRun]:
        rows = self._all("ended", *after, limit)
        return [EndedRun(id=name, ended_at=at, counted=bool(known)) for name, at, known in rows]

    def put_figures(self, runs: Sequence[RunFigures], nodes: Sequence[NodeFigures]) -> None:
        with self._writing() as db:
            db.executemany(SQL["put_run_figures"], [astuple(run) for run in runs])
            db.executemany(SQL["put_node_figures"], [astuple(node) for node in nodes])

    def sums(self, workflow_id: str | None, since: str | None) -> list[WorkflowSums]:
        found: list[WorkflowSums] = []
        for row in self._list("sums", {"workflow_id": workflow_id, "since": since}):
            name, runs, succeeded, escalated, mean, tokens, cost = row
            parts = [self._percentile(name, since, runs, part) for part in (0.5, 0.9, 0.99)]
            values = (name, runs, succeeded, escalated, mean, *parts, tokens, cost)
            found.append(row_of(WorkflowSums, values))
        return found

    def _percentile(self, workflow_id: str, since: str | None, runs: int, part: float) -> float:
        """Between the two nearest, as PostgreSQL's `percentile_cont`."""
        place = (runs - 1) * part
        wanted = {"workflow_id": workflow_id, "since": since, "offset": floor(place)}
        low, *more = (seconds for (seconds,) in self._list("seconds_at", wanted))
        return low + (more[0] - low) * (place - floor(place)) if more else low

    def node_sums(self, workflow_id: str | None, since: str | None) -> list[NodeSums]:
        rows = self._list("node_sums", {"workflow_id": workflow_id, "since": since})
        return [row_of(NodeSums, row) for row in rows]
