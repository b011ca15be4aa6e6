"""The launcher that agents start, the daemon behind it, and what a call costs."""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.hook.agent_forms import FORMS, AgentForm
from tests.patience import PATIENCE, wait_until

from handrail.hook import launcher
from handrail.hook.options import HookOptions
from handrail.hook.service import HookService

COMMAND = {"command": "pytest -q"}
CALL_CPU_MS_MAX = 15.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """A state folder. Its daemon ends when the socket is gone."""
    path = Path(tempfile.mkdtemp()) / "handrail" / "hook"
    yield path
    shutil.rmtree(path.parents[1])


def launch(
    folder: Path, payload: bytes, *arguments: str, python: str = sys.executable
) -> subprocess.CompletedProcess[bytes]:
    command = [python, "-I", "-S", launcher.__file__, "--state", str(folder), *arguments]
    environment = {"PATH": os.environ["PATH"]}
    return subprocess.run(
        command, input=payload, capture_output=True, env=environment, timeout=PATIENCE
    )


def start_daemon(folder: Path, idle_seconds: float = 900.0) -> subprocess.Popen[bytes]:
    code = (
        "import sys, pathlib; from handrail.hook.daemon import HookDaemon; "
        "HookDaemon(pathlib.Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])).serve()"
    )
    name = launcher.socket_name()
    return subprocess.Popen(
        [sys.executable, "-I", "-c", code, str(folder), name, str(idle_seconds)]
    )


@contextmanager
def running_daemon(folder: Path) -> Generator[None]:
    daemon = start_daemon(folder)
    wait_until(lambda: is_listening(folder))
    yield
    (folder / launcher.socket_name()).unlink()
    assert daemon.wait(PATIENCE) == 0


def is_listening(folder: Path) -> bool:
    return (folder / launcher.socket_name()).exists()


@pytest.mark.parametrize("make_form", FORMS)
def test_a_loop_is_stopped_through_launcher_and_daemon(
    make_form: type[AgentForm], folder: Path
) -> None:
    form, options = make_form(), ("--agent", make_form.name)
    with running_daemon(folder):
        answers = [launch(folder, form.prompt("make the tests pass"), *options)]
        while not form.is_denied(answers[-1].stdout):
            answers.append(launch(folder, form.done("Bash", COMMAND, "1 failed"), *options))
            answers.append(launch(folder, form.proposed("Bash", COMMAND), *options))
            assert len(answers) < 20
    assert {(answer.returncode, answer.stderr) for answer in answers} == {(0, b"")}
    assert folder.stat().st_mode & 0o077 == 0


def test_the_launcher_starts_a_daemon_where_there_is_none(folder: Path) -> None:
    def answers_warm() -> bool:  # on a busy machine the first calls are answered without it
        answer = launch(folder, AgentForm().prompt("x"))
        assert (answer.returncode, answer.stdout) == (0, b"")
        return answer.stderr == b"" and is_listening(folder)

    wait_until(answers_warm)


def test_hooks_that_start_at_once_share_one_daemon(folder: Path) -> None:
    answers: list[subprocess.CompletedProcess[bytes]] = []

    def work(number: int) -> None:
        payload = AgentForm().done("Read", {"path": number}, f"page {number}")
        answers.append(launch(folder, payload))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.returncode for answer in answers} == {0}
    wait_until(lambda: is_listening(folder))
    assert len(list(folder.glob("*.sock"))) == 1
    late = start_daemon(folder)
    assert late.wait(PATIENCE) == 0  # there is one
    assert is_listening(folder)


def test_the_daemon_ends_by_itself(folder: Path) -> None:
    daemon = start_daemon(folder, idle_seconds=0.2)
    assert daemon.wait(PATIENCE) == 0
    assert not is_listening(folder)


def test_the_daemon_ends_when_its_socket_is_gone(folder: Path) -> None:
    with running_daemon(folder):
        assert launch(folder, AgentForm().prompt("x")).stderr == b""


@pytest.mark.parametrize("request_bytes", [b"", b"GET / HTTP/1.1\r\n\r\n", b"handrail-hook 1\n"])
def test_the_daemon_goes_on_after_a_caller_that_is_no_launcher(
    folder: Path, request_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_daemon(folder):
        monkeypatch.chdir(folder)
        connection = wait_until(lambda: launcher.connect(launcher.socket_name()))
        connection.sendall(request_bytes)
        connection.close()
        assert launch(folder, AgentForm().prompt("x")).stderr == b""


def test_without_a_daemon_the_launcher_answers_by_a_process_of_its_own(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o755)  # not trusted
    form = AgentForm()
    for _ in range(4):
        answer = launch(folder, form.done("Bash", COMMAND, "1 failed"))
        assert b"open to other users" in answer.stderr
        assert answer.returncode == 0
    assert not is_listening(folder)
    folder.chmod(0o700)
    assert form.is_denied(launch(folder, form.proposed("Bash", COMMAND)).stdout)


def test_a_folder_that_cannot_be_lets_the_agent_go_on_with_a_word(folder: Path) -> None:
    folder.parent.mkdir(parents=True)
    folder.write_text("a file")
    form = AgentForm()
    answer = launch(folder, form.done("Bash", COMMAND, "1 failed"))
    assert (answer.returncode, answer.stdout) == (0, b"")
    assert b"the agent goes on unguarded" in answer.stderr
    closed = launch(folder, form.proposed("Bash", COMMAND), "--fail", "closed")
    assert form.is_denied(closed.stdout)


def test_an_endless_payload_is_read_to_its_bound(folder: Path) -> None:
    answer = launch(folder, b"x" * (launcher.PAYLOAD_BYTES_MAX + 10))
    assert (answer.returncode, answer.stdout) == (0, b"")
    assert b"has more than" in answer.stderr


def test_the_folder_in_which_the_agent_works_is_not_trusted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("handrail", "socket", "subprocess", "_socket"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken over')")
    monkeypatch.chdir(tmp_path)
    answer = launch(folder, AgentForm().prompt("x"))
    assert (answer.returncode, answer.stdout) == (0, b"")
    assert b"taken over" not in answer.stderr
    wait_until(lambda: is_listening(folder))


def cpu_ms(command: list[str], payload: bytes) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, input=payload, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) * 1000


@pytest.mark.alone
def test_a_call_costs_little_beside_the_start_of_the_interpreter(folder: Path) -> None:
    """The least of many in turn: the launcher against the bare interpreter; the daemon's part by
    itself, late in a session of 1,000 calls."""
    form, text = AgentForm(), "word " * 500
    command = [sys.executable, "-I", "-S", launcher.__file__, "--state", str(folder)]
    launched: list[float] = []
    bare: list[float] = []
    with running_daemon(folder):
        for n in range(20):
            launched.append(cpu_ms(command, form.done("Read", {"path": n}, f"{text} {n}")))
            bare.append(cpu_ms([sys.executable, "-I", "-S", "-c", ""], b""))
    service, answers = HookService(folder), list[float]()
    for n in range(1_000):
        if n % 400 == 0:
            service.answer(form.prompt(f"go on {n}"), HookOptions())
        payload = form.done("Read", {"path": -n}, f"{text} {chr(97 + n)}")
        began = time.process_time()
        service.answer(payload, HookOptions())
        answers.append((time.process_time() - began) * 1000)
    service.store.close()
    cost = min(launched) - min(bare) + min(answers[-100:])
    print(f"launcher {min(launched) - min(bare):.1f} ms, daemon {min(answers[-100:]):.1f} ms")
    assert cost <= CALL_CPU_MS_MAX
