"""A commit on PostgreSQL: one round trip where all writes continue existing runs, two where a new
stream begins, unless a write is impossible.

Rules
1. The commit first locks the stream rows one after the other, in one order for all engines, so that
   engines never deadlock; then the agents that get a turn, none beyond its capacity. These guards
   find changed rows, and new rows whose key is taken. Then follow all rows of the winners, the
   journal, the chain and COMMIT. Writes to existing runs nearly always win: the commit sends all
   of them at once, and fails if one loses. A single run that hands on needs one statement for all
   but the journal.
2. A value that violates a constraint, or that no column can hold, fails the whole statement. The
   commit then rolls back and writes in halves, each in a savepoint, down to the impossible writes.
   It does the same where writes depend on each other: two of one stream, or a run that begins on
   a bead whose last run ends here.
3. The connection may break. Before COMMIT is sent, nothing is written; after it, the outcome is
   unknown.
"""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

import psycopg
from msgspec.structs import astuple
from psycopg import errors
from psycopg.pq.abc import PGresult

from handrail.store.columns import Row
from handrail.store.database import STREAM_TABLES, Rows
from handrail.store.postgres.binary_values import array_columns, binary_scalars
from handrail.store.postgres.connection import ConnectionLostError, ReconnectingConnection
from handrail.store.postgres.database import PostgresConnection
from handrail.store.postgres.pipeline import PipelineStep, prepare_statements, run_pipeline
from handrail.store.queries import Queries
from handrail.store.rows import (
    ApprovalRow,
    ChannelWrite,
    CommitOutcomeUnknownError,
    CommitRow,
    LockRow,
    RunRow,
    StoreError,
    StreamRow,
    StreamWrite,
    total_spending,
)

QUERIES = Queries("postgres")
COMMIT_ATTEMPTS = 5
"""Attempts of a commit that the server aborts because of a concurrent one."""
LOCK_STATEMENTS = ("lock_executions", "lock_locks", "lock_streams", "lock_channels", "lock_agents")
GUARD_STATEMENTS = (
    *LOCK_STATEMENTS,
    *("free_holders", "insert_executions", "insert_locks", "insert_streams", "insert_channels"),
)
"""Statements of the guards, in the order of locking."""
COMMIT_STATEMENTS = (
    *GUARD_STATEMENTS,
    *("hold_executions", "single_step", "move_executions", "update_executions", "update_locks"),
    *("update_streams", "update_channels", "delete_dispatches", "put_dispatches"),
    *("insert_transitions", "put_approvals", "put_beads", "insert_messages", "delete_messages"),
    *(
        "insert_keys",
        "add_spendings",
        "delete_members",
        "put_members",
        "insert_log",
        "known_entries",
    ),
    "insert_commit",
)
"""Statements of a commit, prepared when its connection is made."""
TURN_STATES = ("ACTIVE", "WAITING")
"""States of a member that holds the turn."""


class _DuplicateEntryError(Exception):
    """The journal has this entry already: it contradicts the stream's row."""


REJECTED_WRITE_ERRORS = (
    _DuplicateEntryError,
    UnicodeError,
    OverflowError,
    psycopg.IntegrityError,
    psycopg.DataError,
    errors.ProgramLimitExceeded,
    errors.StatementTooComplex,
)
"""Errors of a single write, which must not fail the other writes."""
RETRYABLE_ERRORS = (errors.DeadlockDetected, errors.SerializationFailure)
BEGIN: PipelineStep = ("BEGIN", ())
COMMIT: PipelineStep = ("COMMIT", ())
ROLLBACK: PipelineStep = ("ROLLBACK", ())


def prepare_connection(db: PostgresConnection) -> None:
    """Prepare a connection for commits. Array parameters do not cause its statements to be planned
    again."""
    run_pipeline(db, [("SET plan_cache_mode = force_generic_plan", ())])
    prepare_statements(db, {name: QUERIES[name].encoded for name in COMMIT_STATEMENTS})


def commit(
    connection: ReconnectingConnection, writes: Sequence[StreamWrite], at: str
) -> tuple[CommitRow | None, list[bool]]:
    """Implement `Database.commit`."""
    if not writes:
        return None, []
    attempt = _CommitAttempt(writes, at)
    try:
        with connection.use() as db:
            return attempt.run(db)
    except ConnectionLostError as error:
        if attempt.commit_sent:
            raise CommitOutcomeUnknownError(
                f"{error} during a commit, whose outcome is unknown; read the runs again"
            ) from error
        raise StoreError(f"{error}; nothing was written") from error


def append_entries(db: PostgresConnection, writes: Sequence[StreamWrite], at: str) -> bool:
    """Write entries to streams in the caller's transaction. Return False if one of the streams has
    changed since it was read."""
    for write in writes:
        assert isinstance(write.row, StreamRow)
        if write.expected_head:
            locked = _execute_rows(db, "lock_streams", [(write.row.name, write.expected_head)])
            _execute_rows(db, "update_streams", [astuple(write.row)])
        else:
            locked = _execute_rows(db, "insert_streams", [astuple(write.row)])
        if not locked:
            return False
    _execute_rows(db, "insert_commit", [astuple(write.entry) for write in writes], at)
    return True


def _execute_rows(db: PostgresConnection, name: str, rows: Rows, *more_values: object) -> int:
    query = QUERIES[name]
    values = (*array_columns(query.array_types, rows), *more_values)
    return db.execute(query.encoded, values, binary=True).rowcount


class _CommitAttempt:
    def __init__(self, writes: Sequence[StreamWrite], at: str) -> None:
        self.writes = writes
        self.at = at
        self.commit_sent = False
        """Whether COMMIT has been sent."""

    def run(self, db: PostgresConnection) -> tuple[CommitRow | None, list[bool]]:
        for left in reversed(range(COMMIT_ATTEMPTS)):
            try:
                return self._run_once(db)
            except RETRYABLE_ERRORS:
                if not left:
                    raise
                self._undo(db)
        raise AssertionError("returned or raised")

    def _run_once(self, db: PostgresConnection) -> tuple[CommitRow | None, list[bool]]:
        if _are_independent(self.writes):
            try:
                return (
                    self._commit_in_one_trip(db)
                    if _are_all_known_runs(self.writes)
                    else self._commit_in_two_trips(db)
                )
            except REJECTED_WRITE_ERRORS:
                self._undo(db)
        # All locks before any half, so that engines do not deadlock.
        run_pipeline(db, [BEGIN, *_guard_steps(self.writes, LOCK_STATEMENTS)])
        won = self._write_in_halves(db, self.writes)
        return self._finish(db, _select_winners(self.writes, won), []), won

    def _undo(self, db: PostgresConnection) -> None:
        """Roll back. The server reported an error, so the COMMIT did not happen."""
        self.commit_sent = False
        run_pipeline(db, [ROLLBACK])

    def _commit_in_one_trip(self, db: PostgresConnection) -> tuple[CommitRow | None, list[bool]]:
        if len(self.writes) == 1 and _is_single_step(self.writes[0]):
            steps = [BEGIN, _single_step(self.writes[0])]
        else:
            heads: Rows = sorted((write.entry.stream, write.expected_head) for write in self.writes)
            steps = [BEGIN, _array_step("hold_executions", heads), *_row_steps(self.writes)]
        return self._finish(db, self.writes, steps), [True] * len(self.writes)

    def _commit_in_two_trips(self, db: PostgresConnection) -> tuple[CommitRow | None, list[bool]]:
        guards = _guard_steps(self.writes)
        won = _passed_guards(self.writes, guards, run_pipeline(db, [BEGIN, *guards])[1:])
        winners = _select_winners(self.writes, won)
        return self._finish(db, winners, _row_steps(winners)), won

    def _finish(
        self,
        db: PostgresConnection,
        winners: Sequence[StreamWrite],
        row_steps: Sequence[PipelineStep],
    ) -> CommitRow | None:
        if not winners:
            run_pipeline(db, [ROLLBACK])
            return None
        _, entries = _array_step("insert_commit", [astuple(write.entry) for write in winners])
        steps = [*row_steps, ("insert_commit", (*entries, self.at.encode())), COMMIT]
        self.commit_sent = True
        *_, commit_result, _ = run_pipeline(db, steps)
        assert commit_result.ntuples == 1, "the chain has its row"
        n, head = commit_result.get_value(0, 0), commit_result.get_value(0, 1)
        assert n is not None
        assert head is not None
        return CommitRow(n=int.from_bytes(n, "big"), hash=head, at=self.at, entries=len(winners))

    def _write_in_halves(self, db: PostgresConnection, writes: Sequence[StreamWrite]) -> list[bool]:
        """Write all at once, else one half after the other. Return which writes won."""
        if _are_independent(writes):
            run_pipeline(db, [("SAVEPOINT part", ())])
            try:
                guards = _guard_steps(writes)
                won = _passed_guards(writes, guards, run_pipeline(db, guards))
                winners = _select_winners(writes, won)
                if winners:
                    run_pipeline(db, _row_steps(winners))
                    _check_entries_are_new(db, winners)
            except REJECTED_WRITE_ERRORS:
                run_pipeline(db, [("ROLLBACK TO part", ())])
                if len(writes) == 1:
                    return [False]
            else:
                return won
        half = len(writes) // 2
        return self._write_in_halves(db, writes[:half]) + self._write_in_halves(db, writes[half:])


def _are_independent(writes: Sequence[StreamWrite]) -> bool:
    """Return whether no write depends on another write of the batch."""
    if len({write.entry.stream for write in writes}) < len(writes):
        return False
    started_beads: set[str] = set()
    ended_beads: set[str] = set()
    for write in writes:
        run = write.row
        if isinstance(run, RunRow):
            if not write.expected_head:
                started_beads.add(run.bead_id)
            elif run.ended_at is not None:
                ended_beads.add(run.bead_id)
    return started_beads.isdisjoint(ended_beads)


def _are_all_known_runs(writes: Sequence[StreamWrite]) -> bool:
    """Return whether all writes are of existing runs."""
    return all(write.expected_head and isinstance(write.row, RunRow) for write in writes)


def _is_single_step(write: StreamWrite) -> bool:
    """Return whether the write is the usual step: it closes one dispatch, opens one, no more."""
    is_one_each = len(write.closed_fences) == len(write.dispatches) == len(write.transitions) == 1
    has_more = (
        write.bead
        or write.approvals
        or write.messages
        or write.consumed_message_ids
        or write.keys
        or write.spending
    )
    return write.position_only and is_one_each and not has_more


def _single_step(write: StreamWrite) -> PipelineStep:
    """Write a step in one statement instead of five: a single run's round trip is a sixth
    shorter."""
    run, (closed_fence,) = write.row, write.closed_fences
    (dispatch,), (transition,) = write.dispatches, write.transitions
    assert isinstance(run, RunRow)
    run_values = (
        run.id,
        write.expected_head,
        run.current_node_id,
        run.seq,
        run.head,
        run.updated_at,
    )
    return "single_step", binary_scalars(
        (*run_values, closed_fence, *astuple(dispatch)[1:], *astuple(transition)[1:])
    )


def _select_winners(writes: Sequence[StreamWrite], won: Sequence[bool]) -> Sequence[StreamWrite]:
    if all(won):
        return writes
    return [write for write, is_winner in zip(writes, won, strict=True) if is_winner]


def _guard_steps(
    writes: Sequence[StreamWrite], names: Sequence[str] = GUARD_STATEMENTS
) -> list[PipelineStep]:
    """Lock existing rows with the expected head, insert new rows. Both return their keys."""
    rows: dict[str, Rows] = {}
    for write in writes:
        table, name = _table_and_key(write)
        if write.expected_head:
            rows.setdefault(f"lock_{table}", []).append((name, write.expected_head))
        else:
            rows.setdefault(f"insert_{table}", []).append(astuple(write.row))
        for holder in _turn_holders(write):
            rows.setdefault("lock_agents", []).append(holder)
            rows.setdefault("free_holders", []).append(holder)
    steps: list[PipelineStep] = []
    for statement in names:
        if statement_rows := rows.get(statement):
            # New runs by bead: of two engines that start a run of the same bead, one waits.
            statement_rows.sort(
                key=_bead_column if statement == "insert_executions" else _first_column
            )
            steps.append(_array_step(statement, statement_rows))
    return steps


def _passed_guards(
    writes: Sequence[StreamWrite], steps: Sequence[PipelineStep], results: Sequence[PGresult]
) -> list[bool]:
    """Return whose guard held."""
    passed = {
        (statement.partition("_")[2].encode(), result.get_value(row, 0))
        for (statement, _), result in zip(steps, results, strict=True)
        for row in range(result.ntuples)
    }
    return [
        all((table.encode(), name.encode()) in passed for table, name in _guarded_keys(write))
        for write in writes
    ]


def _guarded_keys(write: StreamWrite) -> list[tuple[str, str]]:
    """Return the keys that the guards must return for the write to win."""
    return [_table_and_key(write), *(("holders", holder[0]) for holder in _turn_holders(write))]


def _turn_holders(write: StreamWrite) -> Rows:
    """Return (channel, agent, turn number) of members with a new or changed turn."""
    members = write.channel.members if write.channel is not None else ()
    return [
        (member.channel_id, member.agent_id, member.turn)
        for member in members
        if member.state in TURN_STATES
    ]


def _first_column(row: tuple[Any, ...]) -> Any:  # noqa: ANN401
    return row[0]


def _bead_column(row: tuple[Any, ...]) -> Any:  # noqa: ANN401
    return row[1]


def _table_and_key(write: StreamWrite) -> tuple[str, str]:
    """Return the table and key of the stream's row."""
    row = write.row
    if isinstance(row, LockRow):
        key = row.repository
    else:
        key = row.name if isinstance(row, StreamRow) else row.id
    return STREAM_TABLES[type(row)], key


def _array_step(statement: str, rows: Rows) -> PipelineStep:
    return statement, array_columns(QUERIES[statement].array_types, rows)


def _row_steps(writes: Sequence[StreamWrite]) -> list[PipelineStep]:
    """Write all rows but the journal. Deletions go before insertions."""
    return [
        _array_step(statement, rows)
        for statement, rows in (
            *_stream_rows(writes).items(),
            *_dependent_rows(writes),
            ("add_spendings", [astuple(row) for row in total_spending(writes)]),
        )
        if rows
    ]


def _check_entries_are_new(db: PostgresConnection, writes: Sequence[StreamWrite]) -> None:
    rows: Rows = [(write.entry.stream, write.entry.seq) for write in writes]
    (duplicates,) = run_pipeline(db, [_array_step("known_entries", rows)])
    if duplicates.ntuples:
        raise _DuplicateEntryError


def _stream_rows(writes: Sequence[StreamWrite]) -> dict[str, Rows]:
    """Return the new values of existing stream rows."""
    rows: dict[str, Rows] = {}
    for write in writes:
        if not write.expected_head:
            continue
        if write.position_only:
            rows.setdefault("move_executions", []).append(_position(write.row))
        else:
            statement = f"update_{STREAM_TABLES[type(write.row)]}"
            rows.setdefault(statement, []).append(astuple(write.row))
    return rows


_position = attrgetter(*QUERIES["move_executions"].parameters)
"""The values of a run that only moves."""


def _dependent_rows(writes: Sequence[StreamWrite]) -> list[tuple[str, Rows]]:
    """Return the statements besides stream row and entry, with their rows. A statement that
    updates gets each row once."""
    closed: Rows = []
    dispatches: dict[tuple[str, int], tuple[Any, ...]] = {}
    transitions: Rows = []
    approvals: dict[str, ApprovalRow] = {}
    beads: dict[str, tuple[Any, ...]] = {}
    row_lists: dict[str, list[Row]] = {"messages": [], "keys": []}
    consumed: Rows = []
    for write in writes:
        if write.closed_fences:
            closed += [(write.entry.stream, fence) for fence in write.closed_fences]
        for dispatch in write.dispatches:
            dispatches[dispatch.execution_id, dispatch.fence] = astuple(dispatch)
        if write.transitions:
            transitions += [astuple(transition) for transition in write.transitions]
        if write.bead is not None:
            beads[write.bead.id] = astuple(write.bead)
        if write.approvals:
            _merge_approvals(approvals, write.approvals)
        row_lists["messages"] += write.messages
        row_lists["keys"] += write.keys
        if write.consumed_message_ids:
            consumed += [(message_id,) for message_id in write.consumed_message_ids]
    return [
        ("delete_dispatches", closed),
        ("put_dispatches", list(dispatches.values())),
        ("insert_transitions", transitions),
        ("put_approvals", [astuple(approval) for approval in approvals.values()]),
        ("put_beads", [beads[bead_id] for bead_id in sorted(beads)]),
        ("insert_messages", [astuple(message) for message in row_lists["messages"]]),
        ("delete_messages", consumed),
        ("insert_keys", sorted(astuple(key) for key in row_lists["keys"])),
        *_channel_rows([write.channel for write in writes if write.channel is not None]),
    ]


def _channel_rows(changes: Sequence[ChannelWrite]) -> list[tuple[str, Rows]]:
    """Return a channel's rows in one order for all engines. Members that lost the turn go before
    the member that holds it."""
    member_values = [astuple(member) for change in changes for member in change.members]
    members = sorted(member_values, key=lambda row: row[:2])
    removed = sorted(member for change in changes for member in change.removed_members)
    return [
        ("delete_members", removed),
        ("put_members", [row for row in members if row[2] not in TURN_STATES]),
        ("put_members", [row for row in members if row[2] in TURN_STATES]),
        ("insert_log", [astuple(log_row) for change in changes for log_row in change.log]),
    ]


def _merge_approvals(approvals: dict[str, ApprovalRow], rows: Iterable[ApprovalRow]) -> None:
    """Keep the deciding row of each approval: the first that is not open."""
    for approval in rows:
        before = approvals.get(approval.id)
        if before is None or before.status == "open":
            approvals[approval.id] = approval
