"""The limit: the rows that Handrail writes for a step, by a bare loop of batched commits.

No engine, no decisions, no waiting for anybody: all values are made before the clock starts, and
each commit holds one step of every run in flight. What is written is a `Rows`; Handrail's own come
from `handrail_side.rows`. While there are none, two tables of a usual shape stand in for them.
"""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Protocol

from benchmarks.durable import handrail_side
from benchmarks.durable.common import AGENTS, Bench, Load, Store

DISTRIBUTION = ""

Key = tuple[str, int]
"""A run, and the number of its step, from 1."""


class Rows(Protocol):
    """What one step of a run writes."""

    def create(self, connection: Any) -> None:
        """The tables."""
        ...

    def values(self, keys: Sequence[Key]) -> Any:
        """What `write` needs for one commit with these steps; not timed."""
        ...

    def write(self, connection: Any, values: Any) -> None:
        """Executes the statements; the transaction is the caller's."""
        ...


class StandIn:
    """An event per step, and where the run stands: about 150 bytes."""

    def __init__(self, store: Store) -> None:
        self.sqlite = store == "sqlite"

    def create(self, connection: Any) -> None:
        number, blob = ("INTEGER", "BLOB") if self.sqlite else ("bigserial", "bytea")
        connection.execute(
            f"CREATE TABLE event (id {number} PRIMARY KEY, run text, seq integer, body {blob})"
        )
        connection.execute("CREATE UNIQUE INDEX event_run ON event (run, seq)")
        connection.execute("CREATE TABLE run (id text PRIMARY KEY, seq integer, place text)")

    def values(self, keys: Sequence[Key]) -> Any:
        places = [AGENTS[seq % len(AGENTS)] for _, seq in keys]
        events = [
            (run, seq, json.dumps({"run": run, "seq": seq, "to": to, "why": "handoff"}).encode())
            for (run, seq), to in zip(keys, places, strict=True)
        ]
        runs = [(run, seq, to) for (run, seq), to in zip(keys, places, strict=True)]
        if self.sqlite:
            return events, runs
        return [list(column) for rows in (events, runs) for column in zip(*rows, strict=True)]

    def write(self, connection: Any, values: Any) -> None:
        upsert = "ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, place = excluded.place"
        if self.sqlite:
            events, runs = values
            connection.executemany("INSERT INTO event (run, seq, body) VALUES (?, ?, ?)", events)
            connection.executemany(f"INSERT INTO run VALUES (?, ?, ?) {upsert}", runs)
            return
        connection.execute(
            "WITH added AS (INSERT INTO event (run, seq, body) "
            "SELECT * FROM unnest(%b::text[], %b::integer[], %b::bytea[])) INSERT INTO run "
            f"SELECT * FROM unnest(%b::text[], %b::integer[], %b::text[]) {upsert}",
            values,
        )


def connected(bench: Bench) -> Any:
    """Without implicit transactions."""
    if bench.store == "sqlite":
        return sqlite3.connect(bench.file, isolation_level=None)
    import psycopg

    return psycopg.connect(bench.database.url(), autocommit=True, prepare_threshold=0)


def batches(load: Load) -> list[list[Key]]:
    """One step of every run that is in flight; of a run alone, one step."""
    runs = [f"{load.name} {run}" for run in range(load.runs)]
    if load.at_once:
        return [[(run, seq) for run in runs] for seq in range(1, load.steps + 1)]
    return [[(run, seq)] for run in runs for seq in range(1, load.steps + 1)]


def measure(bench: Bench, loads: list[Load]) -> None:
    rows: Rows = handrail_side.rows(bench.store) or StandIn(bench.store)
    begin = "BEGIN IMMEDIATE" if bench.store == "sqlite" else "BEGIN"
    with closing(connected(bench)) as connection:
        rows.create(connection)

        def commit(values: Any) -> None:
            connection.execute(begin)
            rows.write(connection, values)
            connection.execute("COMMIT")

        commit(rows.values([("warm", 1)]))
        for load in loads:
            ready = [rows.values(batch) for batch in batches(load)]
            with bench.timed(load):
                for values in ready:
                    commit(values)
