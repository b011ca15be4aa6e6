"""The rows that Handrail writes for one step, for the raw limit: into the same tables, by plain
statements, without guards, decisions or anybody to answer.

Five rows: an entry of the journal, the run's place, a transition, the dispatch that is over and the
one that begins. The text of an entry is that of a real step.
"""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from benchmarks.durable.common import AGENTS
from handrail.store.migrations import read_migrations

Key = tuple[str, int]
NOW = "2026-01-01T12:00:00.000000Z"
BODY = (
    '[{"type":"reported","at":"2026-01-01T12:00:00.000000Z","place":"triage","fence":%d,'
    '"agent":"triage@0123abcd","result":{"outcome":"handoff","to":"billing",'
    '"reason":"next in the ring"}},{"type":"handed_off","at":"2026-01-01T12:00:00.000000Z",'
    '"source":"triage","target":"billing","reason":"next in the ring","number":%d},'
    '{"type":"offered","at":"2026-01-01T12:00:00.000000Z","place":"billing","fence":%d,'
    '"attempt":1,"role":"billing"},{"type":"claimed","at":"2026-01-01T12:00:00.000000Z",'
    '"place":"billing","fence":%d,"agent":"billing@0123abcd"}]'
)


def run_id(name: str) -> str:
    """As long as a real one."""
    return f"{hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()}"


def entry(run: str, seq: int) -> tuple[Any, ...]:
    body = BODY % (seq, seq, seq + 1, seq + 1)
    return 1, run, seq * 4, 4, body, hashlib.sha256(body.encode()).digest()


def execution(run: str, at: Any) -> tuple[Any, ...]:
    return (
        *(run, run, "ring", 1, AGENTS[0], "running", None, None, 0, 1, b"h" * 32, at, at, at),
        *(None, "{}", 1),
    )


def transition(run: str, seq: int, at: Any) -> tuple[Any, ...]:
    place, following = AGENTS[(seq - 1) % 3], AGENTS[seq % 3]
    return run, seq * 4, place, following, "handoff", "next in the ring", place, at


def dispatch(run: str, seq: int, at: Any) -> tuple[Any, ...]:
    place = AGENTS[seq % 3]
    return run, seq, place, place, 0, at, f"{place}@0123abcd", run, at


class SqliteRows:
    def create(self, connection: Any) -> None:
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript("".join(read_migrations("sqlite")))

    def values(self, keys: Sequence[Key]) -> Any:
        named = [(run_id(run), seq) for run, seq in keys]
        return [
            [execution(run, NOW) for run, seq in named if seq == 1],
            [entry(run, seq) for run, seq in named],
            [(AGENTS[seq % 3], seq + 1, b"h" * 32, NOW, run) for run, seq in named],
            [transition(run, seq, NOW) for run, seq in named],
            [(run, seq - 1) for run, seq in named],
            [dispatch(run, seq, NOW) for run, seq in named],
        ]

    def write(self, connection: Any, values: Any) -> None:
        for statement, rows in zip(SQLITE, values, strict=True):
            connection.executemany(statement, rows)


def marks(count: int) -> str:
    return ", ".join("?" * count)


SQLITE = (
    f"INSERT INTO workflow_executions VALUES ({marks(17)}, 0)",
    "INSERT INTO journal (batch, stream, seq, count, body, hash) VALUES (?, ?, ?, ?, ?, ?)",
    "UPDATE workflow_executions SET current_node_id = ?, seq = ?, head = ?, updated_at = ? "
    "WHERE id = ?",
    "INSERT INTO workflow_transitions (execution_id, seq, from_node_id, to_node_id, outcome, "
    f"reason, actor, timestamp) VALUES ({marks(8)})",
    "DELETE FROM dispatches WHERE execution_id = ? AND fence = ?",
    f"INSERT INTO dispatches VALUES ({marks(9)})",
)


class PostgresRows:
    def create(self, connection: Any) -> None:
        connection.execute("".join(read_migrations("postgres")), prepare=False)

    def values(self, keys: Sequence[Key]) -> Any:
        now = datetime(2026, 1, 1, 12, tzinfo=UTC)
        named = [(run_id(run), seq) for run, seq in keys]
        new = [execution(run, now) for run, seq in named if seq == 1]
        rows = [
            [entry(run, seq) for run, seq in named],
            [(AGENTS[seq % 3], seq + 1, b"h" * 32, now, run) for run, seq in named],
            [transition(run, seq, now) for run, seq in named],
            [dispatch(run, seq, now) for run, seq in named],
        ]
        over = [[run for run, _ in named], [seq - 1 for _, seq in named]]
        return columns([new]), over, columns(rows)

    def write(self, connection: Any, values: Any) -> None:
        new, over, rest = values
        if new:
            connection.execute(f"INSERT INTO workflow_executions SELECT * FROM {NEW}", new)
        connection.execute(OVER, over)
        connection.execute(REST, rest)


def columns(tables: list[list[tuple[Any, ...]]]) -> list[list[Any]]:
    return [list(column) for rows in tables for column in zip(*rows, strict=True)]


def arrays(kinds: str) -> str:
    names = {"t": "text", "n": "bigint", "b": "bytea", "z": "timestamptz", "j": "json"}
    return f"unnest({', '.join(f'%b::{names[kind]}[]' for kind in kinds)})"


NEW = arrays("tttnttttnnbzzzzjn")
OVER = f"DELETE FROM dispatches d USING {arrays('tn')} AS o(id, fence) " + (
    "WHERE d.execution_id = o.id AND d.fence = o.fence"
)
REST = f"""
WITH e AS (INSERT INTO journal (batch, stream, seq, count, body, hash)
    SELECT * FROM {arrays("ntnntb")}),
  x AS (UPDATE workflow_executions w SET current_node_id = u.place, seq = u.seq, head = u.head,
    updated_at = u.at FROM {arrays("tnbzt")} AS u(place, seq, head, at, id) WHERE w.id = u.id),
  t AS (INSERT INTO workflow_transitions (execution_id, seq, from_node_id, to_node_id, outcome,
    reason, actor, timestamp) SELECT * FROM {arrays("tntttttz")})
INSERT INTO dispatches (execution_id, fence, place, role, priority, offered_at, agent, session,
  claimed_at) SELECT * FROM {arrays("tnttnzttz")}
"""
