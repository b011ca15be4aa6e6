"""What looks like a secret, or is one of ours, is not told."""

import pytest

from handrail.agents.secret_redaction import redact_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no such key: sk-proj-abcdef0123456789.", "no such key: ***."),
        ("Authorization: Bearer abcdef0123456789", "Authorization: ***"),
        ("at postgresql://ana:hunter22@db/x", "at postgresql://***@db/x"),
        ("the value of MY_SECRET is correct horse", "the value of MY_SECRET is ***"),
        ("token first-second-third", "token ***"),
        ("short ones are words: abc", "short ones are words: abc"),
        ("basic facts and a task-force", "basic facts and a task-force"),
    ],
)
def test_secrets_are_hidden_and_words_are_not(
    text: str, shown: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MY_SECRET", "correct horse")
    monkeypatch.setenv("OTHER_KEY", "abc")
    assert redact_secrets(text, ["Token first-second-third"]) == shown
