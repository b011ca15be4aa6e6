"""A pytest plugin: `both`, a database and a server on it; `here`, a folder of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.command_targets import CommandTargets, isolate
from tests.client.live_server import Server
from tests.engine.sample_database import SampleDatabase

pytest_plugins = ["tests.engine.fixtures_sample_database"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return isolate(monkeypatch, tmp_path / "here")


@pytest.fixture
def targets(
    sample_database: SampleDatabase, here: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CommandTargets]:
    with Server(sample_database.url) as server:
        yield CommandTargets(sample_database, server, monkeypatch)
