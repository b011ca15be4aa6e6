"""Of a program's texts only digests are recorded, unless the guard says otherwise."""

from pathlib import Path

import pytest

import handrail
from handrail import Guard, StopRules
from handrail.guard.adapter import watching
from handrail.guard.errors import StoppedError
from handrail.guard.sanitising import describe_text
from handrail.kernel.definition.limits import ProfileName
from handrail.kernel.run.events import Reported
from handrail.kernel.stop.error_signature import error_signature

SECRETS = ("apple", "banana", "cherry", "durian", "elderberry", "feijoa", "grape")


def tell_everything(guard: Guard) -> handrail.GuardedRun:
    """A run in which every kind of text occurs, each with a secret in it."""
    with pytest.raises(StoppedError) as caught, watching(guard, "team", "task apple") as watch:
        watch.activate("planner")
        watch.record_answer("the answer is banana", tokens=3)
        watch.activate("coder", reason="because of cherry")
        watch.begin_step()
        for _ in range(9):
            watch.record_tool_call("bash", "cat durian", "elderberry")
            watch.begin_step()
            watch.record_tool_call("bash", "cat durian", error="OSError: no feijoa")
            watch.begin_step()
            watch.raise_if_stopped()
    return caught.value.run


def content_of(folder: Path) -> str:
    """Everything in the files of the database."""
    return "".join(file.read_bytes().decode(errors="replace") for file in folder.iterdir())


@pytest.mark.parametrize("profile", ["observed", "strict"])
def test_no_text_of_the_program_is_in_events_database_or_error(
    tmp_path: Path, profile: ProfileName
) -> None:
    database = f"sqlite:///{tmp_path / 'work.db'}"
    run = tell_everything(Guard(StopRules(profile=profile), record=database))
    assert run.recorded in content_of(tmp_path)
    everything = repr(run.events) + content_of(tmp_path) + repr(run.stop) + str(run.report())
    assert [secret for secret in SECRETS if secret in everything] == []


def test_full_texts_are_recorded_as_they_are(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'work.db'}"
    run = tell_everything(Guard(record=database, record_texts="full"))
    assert [secret for secret in SECRETS if secret not in repr(run.events)] == ["grape"]
    assert [secret for secret in SECRETS if secret not in content_of(tmp_path)] == ["grape"]


def test_an_error_of_the_program_is_recorded_by_its_type() -> None:
    guard = Guard()
    with pytest.raises(ValueError, match="grape"), guard.run("r") as run:
        raise ValueError("grape")
    assert run.stop is not None
    assert run.stop.reason == f"ValueError: {describe_text('grape')}"
    with pytest.raises(KeyError), guard.run("r") as run:
        raise KeyError
    assert run.stop is not None
    assert run.stop.reason == "KeyError"


def test_the_hosts_own_words_are_recorded_as_they_are() -> None:
    with Guard().run("ticket 1", task="fix it", raises=False) as run:
        run.handoff("planner", "coder", reason="tests are red")
        run.result("coder", evidence={"checks": [{"command": "pytest", "exit_code": 0}]})
    everything = repr(run.events)
    assert all(word in everything for word in ("fix it", "tests are red", "pytest"))


def test_equal_texts_stay_equal_and_others_differ() -> None:
    assert describe_text("one") == describe_text("one") != describe_text("two")
    assert describe_text("") == ""
    digest = describe_text("one").rpartition(" ")[2].rstrip("]")
    assert digest.isalpha()


@pytest.mark.parametrize("texts", ["digests", "full"])
def test_strict_tells_failures_apart_as_if_it_knew_their_texts(texts) -> None:
    errors = ["KeyError: 'a' at 0x7f0000000001", "KeyError: 'a' at 0x7f0000000002", "boom", ""]
    with Guard(record_texts=texts).run("r", raises=False) as run:
        for error in errors:
            run.called("coder", "bash", "ls", None, error)
    checks = [e.result.evidence.checks[0] for e in run.events if isinstance(e, Reported)]
    signatures = [error_signature(check.command, check.stderr) for check in checks]
    assert signatures[0] == signatures[1]
    assert len(set(signatures)) == 3


def test_anything_else_is_refused() -> None:
    with pytest.raises(ValueError, match="say 'digests' or 'full'"):
        Guard(record_texts="none")  # type: ignore[arg-type]
