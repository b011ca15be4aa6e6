"""Databases for engines: in memory, on a file, on PostgreSQL."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from handrail.testing.clock import ManualClock

SHARED = ["file"] + ["postgres"] * (find_spec("handrail.store.postgres.store") is not None)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'work.db'}"


@pytest.fixture(params=["memory", *SHARED])
def url(request: pytest.FixtureRequest, file_url: str) -> str:
    """An empty database of every kind."""
    return "sqlite://" if request.param == "memory" else _shared(request, file_url)


@pytest.fixture(params=SHARED)
def shared_url(request: pytest.FixtureRequest, file_url: str) -> str:
    """An empty database that is still there when an engine is gone, and that two may share."""
    return _shared(request, file_url)


def _shared(request: pytest.FixtureRequest, file_url: str) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return file_url
