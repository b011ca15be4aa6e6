"""Handrail and the official SDK of A2A, on loopback. Where that is not installed, the tests that
need it are not collected; the others speak the protocol by themselves."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.client.conftest import FIX, ONE
from tests.client.serving import Server

import handrail
from handrail.client.clients import SyncClient
from handrail.engine.settings import EngineSettings

WITH_SDK = ("test_member.py", "test_team.py", "test_page.py")
collect_ignore = [] if find_spec("a2a") else list(WITH_SDK)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    url = f"sqlite:///{tmp_path / 'work.db'}"
    with Server(url, engine=EngineSettings(pulse=0.05)) as server:
        yield server


@pytest.fixture
def office(server: Server) -> Iterator[SyncClient]:
    """A person who may do anything."""
    with handrail.Client(server.url, server.token("admin", "ana")) as client:
        client.create_workflow(ONE)
        client.create_workflow(FIX)
        yield client
