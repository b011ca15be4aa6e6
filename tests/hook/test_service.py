"""Conversations between hook calls: kept for one owner, shared by processes, lost without harm."""

import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.hook.agent_forms import FORMS, AgentForm

from handrail.guard.run import GuardedRun
from handrail.hook import record
from handrail.hook.options import HookOptions
from handrail.hook.payloads import PAYLOAD_BYTES_MAX
from handrail.hook.record import CONVERSATIONS_KEPT, FILE_NAME, KEPT, ConversationStore
from handrail.hook.service import HookService
from handrail.hook.session import Conversation
from handrail.kernel.stop.findings import KEYS_KEPT
from handrail.testing.clock import ManualClock

OPEN, CLOSED = HookOptions(), HookOptions(fail="closed")
COMMAND = {"command": "pytest -q"}
NOBODY = 65_534
SECRET = "sk-proj-abcdefghijklmnop"


def repeat_until_denied(service: HookService, form: AgentForm) -> int:
    for count in range(10):
        if form.is_denied(service.answer(form.proposed("Bash", COMMAND), OPEN).stdout):
            return count
        assert service.answer(form.done("Bash", COMMAND, "1 failed"), OPEN).stderr == ""
    return 10


@pytest.mark.parametrize("make_form", FORMS)
def test_a_loop_is_stopped_though_each_call_is_a_process(
    make_form: type[AgentForm], tmp_path: Path
) -> None:
    form = make_form()
    count = 0
    while not form.is_denied(
        HookService(tmp_path).answer(form.proposed("Bash", COMMAND), OPEN).stdout
    ):
        HookService(tmp_path).answer(form.done("Bash", COMMAND, "1 failed"), OPEN)
        count += 1
        assert count < 10
    assert count == 3  # nothing else has been found in this conversation


def test_conversations_do_not_mix(tmp_path: Path) -> None:
    service = HookService(tmp_path)
    repeat_until_denied(service, AgentForm("one"))
    assert service.answer(AgentForm("two").proposed("Bash", COMMAND), OPEN).stdout == b""
    subagent = json.loads(AgentForm("one").proposed("Bash", COMMAND)) | {"agent_id": "a7"}
    assert service.answer(json.dumps(subagent).encode(), OPEN).stdout == b""


def test_calls_of_several_processes_at_once_are_all_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "LOCK_SECONDS", 20.0)
    form, threads_count, calls_each = AgentForm(), 4, 15

    def work(number: int) -> None:
        service = HookService(tmp_path)
        for n in range(calls_each):
            path = {"path": f"page {number} {n}"}
            payload = form.done("Read", path, f"text {chr(97 + number)}{chr(97 + n)}")
            assert service.answer(payload, OPEN).stderr == ""
        service.store.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(threads_count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = ConversationStore(tmp_path)
    with store.reading() as connection:
        row = store.load(connection, "claude-code\n5f1c\n")
    assert row is not None
    assert row.version == row.state.run.ledger.steps == threads_count * calls_each


@pytest.mark.parametrize("rules", ["{}", '{"constraints": {"commands": ["*rm -rf*"]}}'])
def test_the_record_is_its_owners_alone_and_holds_no_secret(rules: str, tmp_path: Path) -> None:
    service, form = HookService(tmp_path / "hook"), AgentForm()
    (tmp_path / "rules.json").write_text(rules)
    options = HookOptions(
        record=f"sqlite:///{tmp_path}/work.db", rules=str(tmp_path / "rules.json")
    )
    service.answer(form.prompt(f"use {SECRET}"), options)
    for n in range(3):
        arguments = {"command": f"curl -H 'Authorization: Bearer {SECRET}' page-{n}"}
        service.answer(form.done("Bash", arguments, f"welcome {SECRET}"), options)
        service.answer(form.failed("Bash", arguments, f"no such user {SECRET}"), options)
    service.answer(form.end(f"I have used {SECRET}"), options)
    service.answer(form.done("Bash", {"command": f"rm -rf {SECRET}"}, "gone"), options)
    answer = service.answer(form.proposed("Bash", COMMAND), options)
    assert form.is_denied(answer.stdout) is ("constraints" in rules)
    files = list((tmp_path / "hook").iterdir())
    assert FILE_NAME in {file.name for file in files}
    for file in files:
        assert file.stat().st_mode & 0o077 == 0
        assert not any(word in file.read_bytes() for word in (SECRET.encode(), b"welcome"))
    assert (tmp_path / "hook").stat().st_mode & 0o077 == 0


def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    clock = ManualClock()
    service = HookService(tmp_path, clock.now)
    for n in range(KEYS_KEPT + 20):
        service.answer(AgentForm().done("Read", {"path": n}, f"page {n}"), OPEN)
    for n in range(CONVERSATIONS_KEPT + 5):
        clock.advance(seconds=1)
        service.answer(AgentForm(f"session {n}").prompt("go"), OPEN)
    with service.store.reading() as connection:
        (count,) = connection.execute("select count(*) from conversations").fetchone()
        (memories,) = connection.execute("select count(*) from memories").fetchone()
    assert (count, memories) == (CONVERSATIONS_KEPT, 0)
    clock.advance(seconds=(KEPT + timedelta(days=1)).total_seconds())
    service.answer(AgentForm("late").prompt("go"), OPEN)
    with service.store.reading() as connection:
        assert connection.execute("select count(*) from conversations").fetchone() == (1,)


def test_rules_come_from_a_file(tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text('{"tool_limits": {"Bash": 1}}')
    service, form = HookService(tmp_path / "hook"), AgentForm()
    options = HookOptions(rules=str(rules))
    for n in range(2):
        service.answer(form.done("Bash", {"command": f"ls {n}"}, f"{n}"), options)
    answer = service.answer(form.proposed("Bash", COMMAND), options)
    assert b"tool_limit" in answer.stdout
    rules.write_text('{"no_change_limit": "many"}')
    os.utime(rules, (1, 1))
    answer = service.answer(form.proposed("Bash", COMMAND), options)
    assert "no_change_limit" in answer.stderr
    assert "goes on" in answer.stderr


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"x" * (PAYLOAD_BYTES_MAX + 2)])
def test_what_is_no_payload_lets_the_agent_go_on_with_a_word(raw: bytes, tmp_path: Path) -> None:
    answer = HookService(tmp_path).answer(raw, OPEN)
    assert (answer.stdout, answer.exit_code) == (b"", 0)
    assert "the hook payload" in answer.stderr
    assert HookService(tmp_path).answer(raw, CLOSED).exit_code == 2


def test_a_mistake_of_ours_lets_the_agent_go_on_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(GuardedRun, "called", fail)
    answer = HookService(tmp_path).answer(AgentForm().done("Bash", COMMAND, "x"), OPEN)
    assert (answer.stdout, answer.exit_code) == (b"", 0)
    assert "ZeroDivisionError: oops; this should not happen" in answer.stderr
    monkeypatch.setattr(Conversation, "stop", property(fail))
    answer = HookService(tmp_path).answer(AgentForm().proposed("Bash", COMMAND), CLOSED)
    assert AgentForm().is_denied(answer.stdout)


# ---- the record in each bad state


def lock(folder: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(folder / FILE_NAME, isolation_level=None)
    connection.execute("begin exclusive")
    return connection


def make_absent(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("a file where the folder was")


def make_corrupt(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    (folder / FILE_NAME).write_bytes(b"no database at all, but long enough to look at" * 100)


def make_newer(folder: Path) -> None:
    sqlite3.connect(folder / FILE_NAME).execute("pragma user_version = 99")


def make_unreadable_row(folder: Path) -> None:
    with sqlite3.connect(folder / FILE_NAME) as connection:
        connection.execute("update conversations set version = 100, state = x'c1'")


@pytest.mark.parametrize(
    "break_record", [lock, make_absent, make_corrupt, make_newer, make_unreadable_row]
)
@pytest.mark.parametrize("make_form", FORMS)
@pytest.mark.parametrize("warm", [True, False])
def test_a_broken_record_lets_the_agent_go_on_with_a_word(
    break_record: object,
    make_form: type[AgentForm],
    warm: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record, "LOCK_SECONDS", 0.05)
    folder, form = tmp_path / "hook", make_form()
    service = HookService(folder)
    service.answer(form.done("Bash", COMMAND, "1 failed"), OPEN)
    if not (warm and break_record is lock):
        service.store.close()
    assert callable(break_record)
    held = break_record(folder)
    service = service if warm else HookService(folder)
    for payload in (form.prompt("x"), form.done("Bash", COMMAND, "y"), form.end("z")):
        answer = service.answer(payload, OPEN)
        assert answer.exit_code == 0
        assert not form.is_denied(answer.stdout)
        assert not form.is_ended(answer.stdout)
        assert str(folder) in answer.stderr
        assert "the agent goes on unguarded" in answer.stderr
    assert (b"systemMessage" in service.answer(form.prompt("x"), OPEN).stdout) is (
        form.name != "openhands"
    )
    del held


@pytest.mark.parametrize("break_record", [make_absent, make_corrupt, make_newer])
@pytest.mark.parametrize("make_form", FORMS)
def test_a_setting_refuses_tool_calls_while_the_record_is_broken(
    break_record: object, make_form: type[AgentForm], tmp_path: Path
) -> None:
    folder, form = tmp_path / "hook", make_form()
    HookService(folder).answer(form.done("Bash", COMMAND, "1 failed"), CLOSED)
    assert callable(break_record)
    break_record(folder)
    answer = HookService(folder).answer(form.proposed("Bash", COMMAND), CLOSED)
    assert form.is_denied(answer.stdout)
    assert b"its tool calls are refused" in answer.stdout


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that another user can reach, for tests that give up root."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_read_only_record_lets_the_agent_go_on_with_a_word(public_folder: Path) -> None:
    folder, form, is_root = public_folder / "hook", AgentForm(), os.geteuid() == 0
    HookService(folder).answer(form.done("Bash", COMMAND, "1 failed"), OPEN)
    for path in (*folder.iterdir(), folder):
        if is_root:
            os.chown(path, NOBODY, NOBODY)
        path.chmod(0o500 if path == folder else 0o400)
    if is_root:
        os.seteuid(NOBODY)  # root may write everywhere
    try:
        answer = HookService(folder).answer(form.done("Bash", COMMAND, "x"), OPEN)
        refusal = HookService(folder).answer(form.proposed("Bash", COMMAND), CLOSED)
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o700)
    assert (answer.stdout, answer.exit_code) == (b"", 0)
    assert FILE_NAME in answer.stderr
    assert "the agent goes on unguarded" in answer.stderr
    assert form.is_denied(refusal.stdout)


def test_a_full_disk_lets_the_agent_go_on_with_a_word(tmp_path: Path) -> None:
    form = AgentForm()
    HookService(tmp_path).answer(form.done("Bash", COMMAND, "1 failed"), OPEN)
    answer = subprocess.run(
        [sys.executable, "-I", "-B", "-m", "handrail", "hook", "--state", str(tmp_path)],
        input=form.done("Bash", COMMAND, "x " * 5_000),
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000)),
    )
    assert (answer.returncode, answer.stdout) == (0, b"")
    assert "the agent goes on unguarded" in answer.stderr.decode()
    assert HookService(tmp_path).answer(form.done("Bash", COMMAND, "y"), OPEN).stderr == ""
