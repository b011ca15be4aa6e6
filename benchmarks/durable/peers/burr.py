"""Burr with a persister that saves after every action.

A persister holds one connection and blocks, so "at once" is a step of each run in turn, Burr's
fastest way here. Burr leaves SQLite in its older journal mode; here it gets WAL like all others.
Building the applications is counted only for runs one after the other, where it is part of a run.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from burr.core import Application, ApplicationBuilder, State, action, default, when
from burr.core.persistence import SQLitePersister

from benchmarks.durable.common import AGENTS, Bench, Load, following

DISTRIBUTION = "apache-burr"


@action(reads=["made", "goal"], writes=["made", "over"])
def agent(state: State) -> State:
    made = state["made"] + 1
    return state.update(made=made, over=made >= state["goal"])


@action(reads=[], writes=[])
def stop(state: State) -> State:
    return state


def application(persister: Any, name: str, goal: int) -> Application[Any]:
    return (
        ApplicationBuilder()
        .with_actions(stop=stop, **dict.fromkeys(AGENTS, agent))
        .with_transitions(
            *((name, "stop", when(over=True)) for name in AGENTS),
            *((name, following(name), default) for name in AGENTS),
        )
        .with_state(made=0, goal=goal, over=False)
        .with_entrypoint(AGENTS[0])
        .with_identifiers(app_id=name, partition_key="bench")
        .with_state_persister(persister)
        .build()
    )


@contextmanager
def persister(bench: Bench) -> Iterator[Any]:
    if bench.store == "sqlite":
        connection = sqlite3.connect(bench.file)
        kept: Any = SQLitePersister(str(bench.file), connection=connection)
    else:
        import psycopg2
        from burr.integrations.persisters.b_psycopg2 import PostgreSQLPersister

        connection = psycopg2.connect(bench.database.url())
        kept = PostgreSQLPersister(connection)
    with closing(connection):
        kept.initialize()
        yield kept


def measure(bench: Bench, loads: list[Load]) -> None:
    with persister(bench) as kept:
        application(kept, "warm", 20).run(halt_after=["stop"])
        for load in loads:
            names = [f"{load.name} {run}" for run in range(load.runs)]
            if load.at_once:
                apps = [application(kept, name, load.steps) for name in names]
                with bench.timed(load):
                    for _ in range(load.steps):
                        for app in apps:
                            app.step()
                assert all(app.state["made"] == load.steps for app in apps)
            else:
                with bench.timed(load):
                    for name in names:
                        # with the closing action, one save more than steps
                        application(kept, name, load.steps).run(halt_after=["stop"])
