"""A database in which something has happened, and a server on it, to ask either."""

import getpass
import os
from pathlib import Path

import pytest
from tests.cli.calling import Called, call
from tests.client.serving import Server
from tests.engine.filled import Filled


def alone(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """In nobody's folder, with nobody's settings."""
    for name in [name for name in os.environ if name.startswith("HANDRAIL_")]:
        monkeypatch.delenv(name)
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    return folder


class Both:
    """The same command, to the database and to the server."""

    def __init__(self, filled: Filled, served: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs, self.url, self.address = filled.runs, filled.url, served.url
        self.filled, self.served, self._patch = filled, served, monkeypatch
        self.token = served.token("admin", getpass.getuser())

    def database(self, *arguments: str) -> Called:
        return call(*arguments, "--database", self.url)

    def server(self, *arguments: str, role: str = "") -> Called:
        token = self.served.token(role, "somebody") if role else self.token
        self._patch.setenv("HANDRAIL_TOKEN", token)
        called = call(*arguments, "--server", self.address)
        self._patch.delenv("HANDRAIL_TOKEN")
        return called

    def same(self, *arguments: str) -> Called:
        """What both answer."""
        called = self.database(*arguments)
        assert self.server(*arguments) == called
        return called
