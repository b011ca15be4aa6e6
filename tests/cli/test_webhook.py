"""`handrail webhook`: who is told outside, from the command line."""

import json
from typing import Any

from tests.cli.test_write_commands import ask, done, refused

__all__ = ["ask"]
pytest_plugins = ["tests.cli.fixtures_command_targets"]

URL = "https://93.184.215.14/hook"


def test_a_webhook_is_made_listed_enabled_and_removed(ask: Any):
    called = ask("webhook", "create", URL, "--events", "run.ended", "--people", "bob:ceo, pam")
    assert (called.code, called.out[:4]) == (0, "hrw_")
    assert "its secret is shown only once" in called.err
    (shown,) = json.loads(done(ask("webhook", "list", "--json")))["items"]
    assert (shown["url"], shown["events"], shown["enabled"]) == (URL, ["run.ended"], True)
    assert [(one["name"], one["role"]) for one in shown["people"]] == [
        ("bob", "ceo"),
        ("pam", "operator"),
    ]
    assert called.out.strip() not in done(ask("webhook", "list"))
    webhook = shown["id"]
    assert "is enabled; " in done(ask("webhook", "enable", webhook[-8:]))
    assert done(ask("webhook", "remove", webhook[-8:])) == f"webhook {webhook} is removed\n"
    refused(ask("webhook", "remove", webhook), "there is no webhook")
    assert len(done(ask("webhook", "list")).splitlines()) == 1


def test_a_webhook_that_points_inside_is_refused_with_what_to_do(ask: Any):
    refused(ask("webhook", "create", "https://127.0.0.1/x"), "webhook_private")
