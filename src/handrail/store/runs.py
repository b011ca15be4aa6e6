"""Runs, their transitions and notes in the store."""

from collections.abc import Sequence

from handrail.store.columns import Row, Time
from handrail.store.database import Subject
from handrail.store.filters import text_filters
from handrail.store.rows import NOTES_MAX, LoadedRun, NoteRow, RunRow, TransitionItem, TransitionRow


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
    created_at: Time
    updated_at: Time
    ended_at: Time | None


class RunStore(Subject):
    def load(self, ids: Sequence[str]) -> dict[str, LoadedRun]:
        """Load runs by id; ids that do not exist are left out."""
        return self._database.load_runs(ids)

    def list_due(self, now: str, limit: int) -> list[str]:
        """List runs of which a clock may have expired, the earliest first."""
        rows = self._database.fetch_all("due_runs", now=now, limit=limit)
        return [run_id for (run_id,) in rows]

    def postpone(self, dues: Sequence[tuple[str, bytes, str]]) -> None:
        """Set the next clock of runs that were not due after all: (run, its head, next clock). A
        run that has changed since stays unchanged."""
        self._database.write_rows("postpone_runs", dues)

    def get_active_id(self, bead_id: str) -> str | None:
        """Return the run of a bead that has not ended."""
        row = self._database.fetch_one("active_run", bead_id=bead_id)
        return row[0] if row is not None else None

    def list_transitions(self, execution_id: str) -> list[TransitionItem]:
        return [
            TransitionItem(
                id=number,
                from_node_id=row.from_node_id,
                to_node_id=row.to_node_id,
                outcome=row.outcome,
                reason=row.reason,
                actor=row.actor,
                timestamp=row.timestamp,
            )
            for number, row in self.list_transition_rows(execution_id, None, None)
        ]

    def list_transition_rows(
        self, execution_id: str, after_id: int | None, limit: int | None
    ) -> list[tuple[int, TransitionRow]]:
        """List a page of a run's transitions, with all columns, in the order of ids."""
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
        rows = self._database.fetch_filtered(
            "runs_by_id", bead_id=bead_id, status=status, after=after, limit=limit
        )
        return [RunRow(*row) for row in rows]

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
        rows = self._database.fetch_filtered(
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
        return [RunListRow(*row) for row in rows]
