"""A pytest plugin: a database in which something has happened, and a copy of it for each test."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.engine.at_work import go
from tests.engine.filled import Filled, fill

from handrail.testing.clock import ManualClock


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """Made once; nobody changes it."""
    path = tmp_path_factory.mktemp("filled") / "work.db"
    runs = go(fill(f"sqlite:///{path}", ManualClock()))
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")  # one file, to copy
    return Filled(path, runs)


@pytest.fixture
def filled(original: Filled, tmp_path: Path) -> Filled:
    path = tmp_path / "work.db"
    path.write_bytes(original.path.read_bytes())
    return Filled(path, original.runs)
