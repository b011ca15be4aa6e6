"""Runs in the store, with their transitions, notes, open dispatches and approvals."""

from collections.abc import Sequence

from handrail.store.database import Subject
from handrail.store.queries import text_filters
from handrail.store.record import kept_note, record
from handrail.store.rows import (
    NOTES_MAX,
    ApprovalRow,
    DispatchRow,
    LoadedRun,
    NoteRow,
    RunListColumns,
    RunRow,
    TransitionRow,
)


class RunListRow(RunListColumns):
    """A run in a list, with its bead's title."""

    title: str


class RunStore(Subject):
    def load(self, ids: Sequence[str]) -> dict[str, LoadedRun]:
        """Load runs by id; ids that do not exist are left out."""
        return self._database.load_runs(ids)

    def list_due(self, now: str, limit: int) -> list[str]:
        """List runs of which a clock may have expired, the earliest first."""
        return self._fetch_rows(str, "due_runs", now=now, limit=limit)

    def postpone(self, dues: Sequence[tuple[str, bytes, str]]) -> None:
        """Set the next clock of runs that were not due after all: (run, its head, next clock). A
        run that has changed since stays unchanged."""
        self._database.write_rows("postpone_runs", dues)

    def get_active_id(self, bead_id: str) -> str | None:
        """Return the run of a bead that has not ended."""
        return self._fetch_row(str, "active_run", bead_id=bead_id)

    def list_transitions(
        self, execution_id: str, after_id: int | None = None, limit: int | None = None
    ) -> list[tuple[int, TransitionRow]]:
        """List a page of a run's transitions with their ids, in the order of ids."""
        rows = self._database.fetch_filtered(
            "transitions", execution_id=execution_id, after_id=after_id, limit=limit
        )
        return [(row[0], TransitionRow(*row[1:])) for row in rows]

    def add_note(self, note: NoteRow) -> None:
        """Count a note, and keep it if it is one of the first NOTES_MAX."""
        with self._database.transaction() as transaction:
            counted = transaction.fetch_one("count_note", execution_id=note.execution_id)
            if counted is not None and counted[0] <= NOTES_MAX:
                transaction.write_rows("insert_notes", [note])
                record(transaction, note.at, kept_note(note))

    def list_notes(self, execution_id: str) -> tuple[list[NoteRow], int]:
        """Return the kept notes, and how many were added in all. Late answers in a channel are
        notes of its stream, and not counted."""
        rows = self._database.fetch_all("notes", execution_id=execution_id)
        return [NoteRow(*row[:-1]) for row in rows], rows[0][-1] if rows else 0

    def list_of_bead(self, bead_id: str, after: str = "", limit: int = 50) -> list[RunRow]:
        """List the runs of a bead, the oldest first, without their states."""
        return self.list_by_id(bead_id=bead_id, after=after, limit=limit)

    def list_by_id(
        self,
        *,
        bead_id: str | None = None,
        status: str | None = None,
        after: str = "",
        limit: int = 1_000,
    ) -> list[RunRow]:
        """List runs by id, that is in order of creation, without their states."""
        return self._fetch_filtered(
            RunRow, "runs_by_id", bead_id=bead_id, status=status, after=after, limit=limit
        )

    def list(
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
        return self._fetch_filtered(
            RunListRow,
            "runs",
            bead_id=bead_id,
            status=status,
            terminal_status=terminal_status,
            workflow_id=workflow_id,
            since=since,
            ended_since=ended_since,
            ended_before=ended_before,
            before=before,
            limit=limit,
            **text_filters(text),
        )


class DispatchStore(Subject):
    def reserve(self, role: str, limit: int) -> list[DispatchRow]:
        """Reserve offered dispatches, by priority and age. Other engines skip them for a while."""
        return [DispatchRow(*row) for row in self._database.reserve_dispatches(role, limit)]

    def list_claimed(self, session: str | None = None) -> list[DispatchRow]:
        """List dispatches claimed by that session, or by any; the oldest claim first."""
        return self._fetch_filtered(DispatchRow, "claimed_dispatches", session=session)

    def list_orphaned(self, silent_since: str, limit: int) -> list[DispatchRow]:
        """List claimed dispatches whose session is gone, disabled, or silent since then."""
        return self._fetch_rows(
            DispatchRow, "orphaned_dispatches", silent_since=silent_since, limit=limit
        )

    def list_unmatched(
        self, silent_since: str, offered_before: str, limit: int
    ) -> list[DispatchRow]:
        """List dispatches offered before that moment whose role no live agent has."""
        return self._fetch_rows(
            DispatchRow,
            "unmatched_dispatches",
            silent_since=silent_since,
            offered_before=offered_before,
            limit=limit,
        )

    def list(self, execution_id: str) -> list[DispatchRow]:
        """List the dispatches of one run."""
        return self._fetch_rows(DispatchRow, "dispatches", execution_id=execution_id)


class ApprovalStore(Subject):
    def get(self, approval_id: str) -> ApprovalRow | None:
        return self._fetch_row(ApprovalRow, "approval", id=approval_id)

    def list_newest(
        self,
        *,
        execution_id: str | None = None,
        status: str | None = None,
        before: tuple[str, str] | None = None,
        limit: int = 50,
    ) -> list[ApprovalRow]:
        """List approvals, the newest first; `before` is (created_at, id)."""
        before_at, before_id = before or (None, None)
        return self._fetch_filtered(
            ApprovalRow,
            "newest_approvals",
            execution_id=execution_id,
            before_at=before_at,
            before_id=before_id,
            limit=limit,
            **_status_filters(status),
        )

    def list(
        self, *, execution_id: str | None = None, status: str | None = None, limit: int = 1_000
    ) -> list[ApprovalRow]:
        """List approvals, the oldest first."""
        filters = _status_filters(status)
        return self._fetch_filtered(
            ApprovalRow, "approvals", execution_id=execution_id, limit=limit, **filters
        )


def _status_filters(status: str | None) -> dict[str, str | bool | None]:
    """Return the filters for a status. Open approvals have an index of their own, which the
    database uses only for a literal value."""
    return {"open": True} if status == "open" else {"status": status}
