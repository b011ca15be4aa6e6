"""A pytest plugin: `both`, a database and a server on it; `here`, a folder of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.both import Both, alone
from tests.client.serving import Server
from tests.engine.filled import Filled

pytest_plugins = ["tests.engine.fixtures_filled"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(monkeypatch, tmp_path / "here")


@pytest.fixture
def both(filled: Filled, here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    with Server(filled.url) as server:
        yield Both(filled, server, monkeypatch)
