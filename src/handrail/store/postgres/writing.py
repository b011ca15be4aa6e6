"""A commit on PostgreSQL: one round trip where all runs go on, two where something begins, unless a
write is impossible.

Rules
1. First the subjects are locked one after the other, in one order for all engines, so that two of
   them never wait for each other; then the agents that are to have a turn, of which none is given
   more than it has room for. A subject that is not as it was read is found here, and so is a new
   one whose place is taken. Then everything of the winners, the journal, the chain and COMMIT. Of
   runs that go on nearly always all win: all of it is sent at once, and fails if one does not. If
   it is one run that hands on, all but the journal is one statement.
2. What a constraint forbids, or no column can hold, fails the whole statement. Then the transaction
   is rolled back and made again in halves, each in a savepoint, down to the writes that cannot be.
   The same is done where writes follow each other: two of one stream, or a run that begins on a
   bead whose last run ends here.
3. The connection may break. Before COMMIT was sent, nothing is written; after that nobody knows.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
from msgspec.structs import astuple
from psycopg import errors
from psycopg.pq.abc import PGresult

from handrail.store.channels import ChannelRow, ChannelWrite
from handrail.store.port import (
    ApprovalRow,
    Commit,
    Execution,
    LockState,
    Row,
    StoreError,
    Stream,
    Unsure,
    Write,
)
from handrail.store.postgres.link import Link, LostError
from handrail.store.postgres.opening import PACKAGE, Database
from handrail.store.postgres.trip import Step, prepare_all, trip
from handrail.store.postgres.values import columns, scalars
from handrail.store.statements import statements

Rows = list[tuple[Any, ...]]
SQL = {
    name: text.encode()
    for file in (
        "queries.sql",
        "office.sql",
        "channels.sql",
        "memory.sql",
        "reviews.sql",
        "healing.sql",
    )
    for name, text in statements(PACKAGE, file).items()
}
TRIES = 5
"""Of a commit that the server ended because of another one."""
KINDS = {
    "lock_executions": "tb",
    "lock_locks": "tb",
    "lock_streams": "tb",
    "lock_channels": "tb",
    "lock_agents": "ttn",
    "free_holders": "ttn",
    "insert_executions": "tttnttttnnbtttttn",
    "insert_locks": "tttnnbttt",
    "insert_streams": "tnb",
    "insert_channels": "tnbttttt",
    "hold_executions": "tb",
    "move_executions": "ttnbt",
    "update_executions": "ttnbttntntttttn",
    "update_locks": "tttnnbttt",
    "update_streams": "tnb",
    "update_channels": "tnbttttt",
    "delete_members": "tt",
    "put_members": "tttnnn",
    "put_holders": "tttnnn",
    "insert_log": "tntntttnttt",
    "delete_dispatches": "tn",
    "put_dispatches": "tnttntttt",
    "insert_transitions": "tntttttt",
    "put_approvals": "tttttttttttttt",
    "put_beads": "ttttnttttttt",
    "insert_messages": "tttt",
    "delete_messages": "t",
    "insert_keys": "ttttt",
    "known_entries": "tn",
    "insert_commit": "tnntb",
}
"""The statements that take columns, and their kinds; the subjects' come in the order of locking."""
SUBJECTS = tuple(KINDS)[:10]
LOCKS = tuple(name for name in SUBJECTS if name.startswith("lock_"))
HELD = ("ACTIVE", "WAITING")
"""States of a member that has the turn."""


class _KnownError(Exception):
    """The journal has this entry: the stream and its subject are not of one mind."""


LOST = (
    _KnownError,
    UnicodeError,
    OverflowError,
    psycopg.IntegrityError,
    psycopg.DataError,
    errors.ProgramLimitExceeded,
    errors.StatementTooComplex,
)
"""What is wrong with a write alone: the others are not to suffer from it."""
AGAIN = (errors.DeadlockDetected, errors.SerializationFailure)
BEGIN: Step = ("BEGIN", ())
COMMIT: Step = ("COMMIT", ())
ROLLBACK: Step = ("ROLLBACK", ())


def prepare(db: Database) -> None:
    """A connection for commits. Its statements take arrays, which are no reason to plan again."""
    trip(db, [("SET plan_cache_mode = force_generic_plan", ())])
    prepare_all(db, {name: SQL[name] for name in (*KINDS, "hand_on")})


def commit(link: Link, writes: Sequence[Write], at: str) -> tuple[Commit | None, list[bool]]:
    """The port's `commit`."""
    if not writes:
        return None, []
    attempt = _Attempt(writes, at)
    try:
        with link.use() as db:
            return attempt.run(db)
    except LostError as error:
        if attempt.sent:
            raise Unsure(f"{error} during a commit; load what it was about, and look") from error
        raise StoreError(f"{error}; nothing was written") from error


def append(db: Database, write: Write, at: str) -> bool:
    """One write to a stream of its own, as a part of somebody's transaction; False if the stream
    is not as it was read."""
    assert isinstance(write.subject, Stream)
    subject = columns(KINDS["update_streams"], [astuple(write.subject)])
    if write.expected:
        guard = columns(KINDS["lock_streams"], [(write.subject.name, write.expected)])
        won = db.execute(SQL["lock_streams"], guard).fetchone()
        db.execute(SQL["update_streams"], subject)
    else:
        won = db.execute(SQL["insert_streams"], subject).fetchone()
    if won is None:
        return False
    entry = columns(KINDS["insert_commit"], [astuple(write.entry)])
    db.execute(SQL["insert_commit"], (*entry, at))
    return True


class _Attempt:
    def __init__(self, writes: Sequence[Write], at: str) -> None:
        self.writes = writes
        self.at = at
        self.sent = False
        """Whether COMMIT is on its way."""

    def run(self, db: Database) -> tuple[Commit | None, list[bool]]:
        for left in reversed(range(TRIES)):
            try:
                return self._run(db)
            except AGAIN:
                if not left:
                    raise
                self._undo(db)
        raise AssertionError("returned or raised")

    def _run(self, db: Database) -> tuple[Commit | None, list[bool]]:
        if _independent(self.writes):
            try:
                return self._in_one_trip(db) if _all_go_on(self.writes) else self._at_once(db)
            except LOST:
                self._undo(db)
        # All locks before any part, so that nobody waits in a circle.
        trip(db, [BEGIN, *_entering(self.writes, LOCKS)])
        won = self._in_parts(db, self.writes)
        return self._finish(db, _winners(self.writes, won), []), won

    def _undo(self, db: Database) -> None:
        """The server said no, so it was no COMMIT."""
        self.sent = False
        trip(db, [ROLLBACK])

    def _in_one_trip(self, db: Database) -> tuple[Commit | None, list[bool]]:
        if len(self.writes) == 1 and _hands_on(self.writes[0]):
            steps = [BEGIN, _hand_on(self.writes[0])]
        else:
            held: Rows = sorted((write.entry.stream, write.expected) for write in self.writes)
            steps = [BEGIN, _step("hold_executions", held), *_rest(self.writes)]
        return self._finish(db, self.writes, steps), [True] * len(self.writes)

    def _at_once(self, db: Database) -> tuple[Commit | None, list[bool]]:
        entering = _entering(self.writes)
        won = _entered(self.writes, entering, trip(db, [BEGIN, *entering])[1:])
        winners = _winners(self.writes, won)
        return self._finish(db, winners, _rest(winners)), won

    def _finish(
        self, db: Database, winners: Sequence[Write], rest: Sequence[Step]
    ) -> Commit | None:
        if not winners:
            trip(db, [ROLLBACK])
            return None
        entries = columns(KINDS["insert_commit"], [astuple(write.entry) for write in winners])
        steps = [*rest, ("insert_commit", (*entries, self.at.encode())), COMMIT]
        self.sent = True
        *_, numbered, _ = trip(db, steps)
        assert numbered.ntuples == 1, "the chain has its row"
        n, head = numbered.get_value(0, 0), numbered.get_value(0, 1)
        assert n is not None
        assert head is not None
        return Commit(n=int.from_bytes(n, "big"), hash=head, at=self.at, entries=len(winners))

    def _in_parts(self, db: Database, writes: Sequence[Write]) -> list[bool]:
        """Who wins: all of it at once, else one half after the other."""
        if _independent(writes):
            trip(db, [("SAVEPOINT part", ())])
            try:
                entering = _entering(writes)
                won = _entered(writes, entering, trip(db, entering))
                winners = _winners(writes, won)
                if winners:
                    trip(db, _rest(winners))
                    _check_journal(db, winners)
            except LOST:
                trip(db, [("ROLLBACK TO part", ())])
                if len(writes) == 1:
                    return [False]
            else:
                return won
        half = len(writes) // 2
        return self._in_parts(db, writes[:half]) + self._in_parts(db, writes[half:])


def _independent(writes: Sequence[Write]) -> bool:
    """Whether no write needs another one to have been written before."""
    if len({write.entry.stream for write in writes}) < len(writes):
        return False
    begun: set[str] = set()
    ended: set[str] = set()
    for write in writes:
        run = write.subject
        if isinstance(run, Execution):
            if not write.expected:
                begun.add(run.bead_id)
            elif run.ended_at is not None:
                ended.add(run.bead_id)
    return begun.isdisjoint(ended)


def _all_go_on(writes: Sequence[Write]) -> bool:
    """Whether they are of runs, and none begins."""
    return all(write.expected and isinstance(write.subject, Execution) for write in writes)


def _hands_on(write: Write) -> bool:
    """Whether it is the usual step: one dispatch is over and one is new, and nothing else."""
    usual = len(write.closed) == len(write.dispatches) == len(write.transitions) == 1
    more = write.bead or write.approvals or write.messages or write.consumed or write.keys
    return write.light and usual and not more


def _hand_on(write: Write) -> Step:
    """In one statement instead of five: a lone run's trip is a sixth shorter."""
    run, (over,) = write.subject, write.closed
    (offered,), (passed,) = write.dispatches, write.transitions
    assert isinstance(run, Execution)
    moved = (run.id, write.expected, run.current_node_id, run.seq, run.head, run.updated_at)
    return "hand_on", scalars((*moved, over, *astuple(offered)[1:], *astuple(passed)[1:]))


def _winners(writes: Sequence[Write], won: Sequence[bool]) -> Sequence[Write]:
    if all(won):
        return writes
    return [write for write, one in zip(writes, won, strict=True) if one]


def _entering(writes: Sequence[Write], wanted: Sequence[str] = SUBJECTS) -> list[Step]:
    """Lock what is there as it was read, make what is new. The keys of both come back."""
    rows: dict[str, Rows] = {}
    for write in writes:
        table, name = _place(write)
        if write.expected:
            rows.setdefault(f"lock_{table}", []).append((name, write.expected))
        else:
            rows.setdefault(f"insert_{table}", []).append(astuple(write.subject))
        for one in _holders(write):
            rows.setdefault("lock_agents", []).append(one)
            rows.setdefault("free_holders", []).append(one)
    steps: list[Step] = []
    for statement in wanted:
        if found := rows.get(statement):
            # New runs by bead: where two engines make one for the same bead, one has to wait.
            found.sort(key=_bead if statement == "insert_executions" else _first)
            steps.append(_step(statement, found))
    return steps


def _entered(
    writes: Sequence[Write], entering: Sequence[Step], results: Sequence[PGresult]
) -> list[bool]:
    """Whose guard held."""
    found = {
        (statement.partition("_")[2].encode(), result.get_value(row, 0))
        for (statement, _), result in zip(entering, results, strict=True)
        for row in range(result.ntuples)
    }
    return [
        all((table.encode(), name.encode()) in found for table, name in _needed(write))
        for write in writes
    ]


def _needed(write: Write) -> list[tuple[str, str]]:
    """What has to be found for it to win."""
    return [_place(write), *(("holders", one[0]) for one in _holders(write))]


def _holders(write: Write) -> Rows:
    """Who has the turn now, if that is new or otherwise than before: channel, agent, number."""
    members = write.channel.members if write.channel is not None else ()
    return [(one.channel_id, one.agent_id, one.turn) for one in members if one.state in HELD]


def _first(row: tuple[Any, ...]) -> Any:  # noqa: ANN401
    return row[0]


def _bead(row: tuple[Any, ...]) -> Any:  # noqa: ANN401
    return row[1]


def _place(write: Write) -> tuple[str, str]:
    """The subject's table and key."""
    s = write.subject
    if isinstance(s, Execution):
        return "executions", s.id
    if isinstance(s, ChannelRow):
        return "channels", s.id
    return ("locks", s.repository) if isinstance(s, LockState) else ("streams", s.name)


def _step(statement: str, rows: Rows) -> Step:
    return statement, columns(KINDS[statement], rows)


def _rest(writes: Sequence[Write]) -> list[Step]:
    """Everything but the journal. What is over goes before what is new."""
    rows = _subjects(writes) | _others(writes)
    return [_step(statement, found) for statement, found in rows.items() if found]


def _check_journal(db: Database, writes: Sequence[Write]) -> None:
    rows: Rows = [(write.entry.stream, write.entry.seq) for write in writes]
    (known,) = trip(db, [_step("known_entries", rows)])
    if known.ntuples:
        raise _KnownError


def _subjects(writes: Sequence[Write]) -> dict[str, Rows]:
    """The new values of those that were there."""
    moved: Rows = []
    runs: Rows = []
    locks: Rows = []
    streams: Rows = []
    channels: Rows = []
    for write in writes:
        s = write.subject
        if not write.expected:
            continue
        if isinstance(s, LockState):
            locks.append(astuple(s))
        elif isinstance(s, ChannelRow):
            channels.append(astuple(s))
        elif not isinstance(s, Execution):
            streams.append(astuple(s))
        elif write.light:
            moved.append((s.id, s.current_node_id, s.seq, s.head, s.updated_at))
        else:
            runs.append(
                (
                    *(s.id, s.current_node_id, s.seq, s.head, s.updated_at, s.workflow_id),
                    *(s.workflow_version, s.status, s.priority, s.terminal_status, s.stop_rule),
                    *(s.next_due, s.ended_at, s.state, s.state_seq),
                )
            )
    return {
        "move_executions": moved,
        "update_executions": runs,
        "update_locks": locks,
        "update_streams": streams,
        "update_channels": channels,
    }


def _others(writes: Sequence[Write]) -> dict[str, Rows]:
    """The rows beside subject and entry, by statement; none twice where it would be changed."""
    closed: Rows = []
    dispatches: dict[tuple[str, int], tuple[Any, ...]] = {}
    transitions: Rows = []
    approvals: dict[str, ApprovalRow] = {}
    beads: dict[str, tuple[Any, ...]] = {}
    rare: dict[str, list[Row]] = {"messages": [], "keys": []}
    consumed: Rows = []
    for write in writes:
        if write.closed:
            closed += [(write.entry.stream, fence) for fence in write.closed]
        for one in write.dispatches:
            dispatches[one.execution_id, one.fence] = astuple(one)
        if write.transitions:
            transitions += [astuple(one) for one in write.transitions]
        if write.bead is not None:
            beads[write.bead.id] = astuple(write.bead)
        if write.approvals:
            _settle(approvals, write.approvals)
        rare["messages"] += write.messages
        rare["keys"] += write.keys
        if write.consumed:
            consumed += [(one,) for one in write.consumed]
    return {
        "delete_dispatches": closed,
        "put_dispatches": list(dispatches.values()),
        "insert_transitions": transitions,
        "put_approvals": [astuple(one) for one in approvals.values()],
        "put_beads": [beads[one] for one in sorted(beads)],
        "insert_messages": [astuple(one) for one in rare["messages"]],
        "delete_messages": consumed,
        "insert_keys": sorted(astuple(one) for one in rare["keys"]),
        **_of_channels([write.channel for write in writes if write.channel is not None]),
    }


def _of_channels(changes: Sequence[ChannelWrite]) -> dict[str, Rows]:
    """In one order for all engines. Who has the turn no more goes before who has it now."""
    found = [astuple(one) for change in changes for one in change.members]
    members = sorted(found, key=lambda row: row[:2])
    left = sorted(one for change in changes for one in change.left)
    return {
        "delete_members": left,
        "put_members": [row for row in members if row[2] not in HELD],
        "put_holders": [row for row in members if row[2] in HELD],
        "insert_log": [astuple(one) for change in changes for one in change.log],
    }


def _settle(approvals: dict[str, ApprovalRow], rows: Iterable[ApprovalRow]) -> None:
    """The one that counts of each: the first that is not open."""
    for one in rows:
        before = approvals.get(one.id)
        if before is None or before.status == "open":
            approvals[one.id] = one
