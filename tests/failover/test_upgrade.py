"""Servers of two versions on one database: the newer one migrates it when it starts; what do the
older ones do then? (`docs/deployment.md`, "Upgrades".)"""

import asyncio

import psycopg
import pytest
from tests.engine.engines import DONE, ROLE, chain, node, start_run

from handrail.engine import opening
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.kernel.result import Result
from handrail.store.rows import StoreError
from handrail.store.urls import open_maintenance_store

pytest_plugins = ["tests.fixtures_postgres"]

TABLES = ("journal", "workflow_executions", "dispatches", "beads", "agents")
SECONDS = 60


def migrate(url: str) -> None:
    """As a newer version would: it adds, and takes nothing away."""
    with psycopg.connect(url) as db:
        for table in TABLES:
            db.execute(f"ALTER TABLE {table} ADD COLUMN added_later text".encode())
        db.execute("UPDATE handrail_schema SET version = version + 1")


def add_agent(engine: Engine) -> None:
    @engine.agent(ROLE)
    async def work(dispatch: Dispatch) -> Result:
        return DONE


async def one_run(engine: Engine) -> str | None:
    run = await start_run(engine, chain(node("one"), node("two")))
    return (await run.result(SECONDS)).terminal_status


def test_who_runs_goes_on_and_who_starts_is_told_to_upgrade(postgres_url: str):
    async def main():
        async with opening.open(postgres_url) as engine:
            add_agent(engine)
            assert await one_run(engine) == "done_success"
            migrate(postgres_url)
            assert await one_run(engine) == "done_success"
            with pytest.raises(StoreError, match=r"newer Handrail .* upgrade Handrail"):
                async with opening.open(postgres_url):
                    pass
            with pytest.raises(StoreError, match=r"newer Handrail .* upgrade Handrail"):
                open_maintenance_store(postgres_url, read_only=True)
            assert await one_run(engine) == "done_success"

    asyncio.run(main())


def test_a_connection_that_is_made_again_after_the_migration_goes_on_too(postgres_url: str):
    async def main():
        async with opening.open(postgres_url) as engine:
            add_agent(engine)
            assert await one_run(engine) == "done_success"
            migrate(postgres_url)
            with psycopg.connect(postgres_url, autocommit=True) as db:
                db.execute(
                    "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND datname = current_database()"
                )
            assert await one_run(engine) == "done_success"

    asyncio.run(main())
