"""A pytest plugin: a database in which something has happened, and a copy of it for each test."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.engine.engines import run_async
from tests.engine.sample_database import SampleDatabase, fill_database

from handrail.testing.clock import ManualClock


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> SampleDatabase:
    """Made once; nobody changes it."""
    path = tmp_path_factory.mktemp("sample_database") / "work.db"
    runs = run_async(fill_database(f"sqlite:///{path}", ManualClock()))
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")  # one file, to copy
    return SampleDatabase(path, runs)


@pytest.fixture
def sample_database(original: SampleDatabase, tmp_path: Path) -> SampleDatabase:
    path = tmp_path / "work.db"
    path.write_bytes(original.path.read_bytes())
    return SampleDatabase(path, original.runs)
