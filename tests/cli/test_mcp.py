"""`handrail mcp`: what it says when it cannot begin."""

import pytest
from tests.cli.command_line import run_command

from handrail.cli import processes


def test_without_a_token_nobody_is_an_agent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HANDRAIL_TOKEN", raising=False)
    called = run_command("mcp")
    assert called.code == 2
    assert "HANDRAIL_TOKEN is not set" in called.err
    assert "handrail token create --role agent --agent ID" in called.err


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(processes, "find_spec", lambda _: None)
    called = run_command("mcp", "--http")
    assert called.code == 2
    assert "uv tool install --force '.[server,mcp]'" in called.err


def test_a_server_without_an_address_is_wrong_usage(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HANDRAIL_TOKEN", "hr_x")
    called = run_command("mcp", "--server", "nowhere")
    assert called.code == 2
    assert "is not the URL of a server" in called.err
