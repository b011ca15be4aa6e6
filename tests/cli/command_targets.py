"""A database in which something has happened, and a server on it, to ask either."""

import getpass
import os
from pathlib import Path

import pytest
from tests.cli.command_line import CommandResult, run_command
from tests.client.live_server import Server
from tests.engine.sample_database import SampleDatabase


def isolate(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """In nobody's folder, with nobody's settings."""
    for name in [name for name in os.environ if name.startswith("HANDRAIL_")]:
        monkeypatch.delenv(name)
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    return folder


class CommandTargets:
    """The same command, to the database and to the server."""

    def __init__(
        self, sample_database: SampleDatabase, served: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.runs, self.url, self.address = sample_database.runs, sample_database.url, served.url
        self.sample_database, self.served, self._patch = sample_database, served, monkeypatch
        self.token = served.token("admin", getpass.getuser())

    def database(self, *arguments: str) -> CommandResult:
        return run_command(*arguments, "--database", self.url)

    def server(self, *arguments: str, role: str = "") -> CommandResult:
        token = self.served.token(role, "somebody") if role else self.token
        self._patch.setenv("HANDRAIL_TOKEN", token)
        called = run_command(*arguments, "--server", self.address)
        self._patch.delenv("HANDRAIL_TOKEN")
        return called

    def same(self, *arguments: str) -> CommandResult:
        """What both answer."""
        called = self.database(*arguments)
        assert self.server(*arguments) == called
        return called
