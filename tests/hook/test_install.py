"""Hooks in the settings of agents: shown first, written once, and taken exactly back."""

import ast
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.hook.agent_forms import AgentForm

from handrail.cli.hook import main
from handrail.hook import launcher
from handrail.hook.payloads import AGENT_NAMES, AgentName
from handrail.hook.settings_files import settings_path

OTHERS: dict[AgentName, Any] = {
    "claude-code": {
        "model": "opus",
        "hooks": {
            "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./no"}]}],
            "Notification": [{"hooks": [{"type": "command", "command": "notify-send ✓"}]}],
        },
        "permissions": {"allow": ["Read"]},
    },
    "codex": {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "./tests"}]}]}},
    "gemini-cli": {"theme": "dark", "hooks": {"Notification": []}},
    "openhands": {"stop": [{"matcher": "*", "hooks": [{"command": "./tests"}]}]},
}
all_agents = pytest.mark.parametrize("agent", AGENT_NAMES)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def settings_of(agent: AgentName) -> Path:
    return settings_path(agent, None, {})


def commands_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["command"]] if isinstance(value.get("command"), str) else []
        return own + [found for item in value.values() for found in commands_in(item)]
    return (
        [found for item in value for found in commands_in(item)] if isinstance(value, list) else []
    )


@all_agents
@pytest.mark.parametrize("indent", [2, 4, "\t"])
@pytest.mark.parametrize("end", ["", "\n"])
def test_uninstall_takes_exactly_back_what_install_wrote(
    agent: AgentName, indent: int | str, end: str
) -> None:
    path = settings_of(agent)
    path.parent.mkdir(parents=True)
    before = json.dumps(OTHERS[agent], indent=indent, ensure_ascii=False) + end
    path.write_text(before)
    path.chmod(0o640)
    assert main(["install", agent, "--yes"]) == 0
    during = json.loads(path.read_text())
    ours = [command for command in commands_in(during) if "launcher.py" in command]
    assert len(ours) >= 5
    assert set(commands_in(OTHERS[agent])) <= set(commands_in(during))
    assert main(["uninstall", agent, "--yes"]) == 0
    assert path.read_text() == before
    assert path.stat().st_mode & 0o777 == 0o640


@all_agents
def test_where_there_were_no_settings_none_are_left(agent: AgentName) -> None:
    path = settings_of(agent)
    assert main(["install", agent, "--yes"]) == 0
    assert path.exists()
    assert main(["uninstall", agent, "--yes"]) == 0
    assert not path.exists()


@all_agents
def test_a_second_install_changes_nothing(
    agent: AgentName, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["install", agent, "--yes"])
    before = settings_of(agent).read_text()
    capsys.readouterr()
    assert main(["install", agent, "--yes"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert settings_of(agent).read_text() == before
    main(["install", agent, "--yes", "--fail", "closed"])  # other options replace the hooks
    commands = commands_in(json.loads(settings_of(agent).read_text()))
    assert all(command.endswith("--fail closed") for command in commands)


@all_agents
def test_the_change_is_shown_and_nothing_is_written_without_a_yes(
    agent: AgentName, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["install", agent]) == 1
    shown = capsys.readouterr()
    assert f"+++ {settings_of(agent)}" in shown.out
    assert "launcher.py" in shown.out
    assert "--yes" in shown.err
    assert not settings_of(agent).exists()
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for typed, is_written in (("n", False), ("", False), ("y", True)):
        monkeypatch.setattr("builtins.input", lambda _, typed=typed: typed)
        assert main(["install", agent]) == int(not is_written)
        assert settings_of(agent).exists() is is_written


@pytest.mark.parametrize("text", ["{ // mine\n}", "[]", '{"hooks": []}', '{"hooks": {"Stop": 7}}'])
@pytest.mark.parametrize("agent", ["claude-code", "gemini-cli"])
def test_settings_that_cannot_be_read_are_left_alone(
    agent: AgentName, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = settings_of(agent)
    path.parent.mkdir()
    path.write_text(text.replace("Stop", "AfterAgent") if agent == "gemini-cli" else text)
    before = path.read_text()
    assert main(["install", agent, "--yes"]) == 2
    assert path.read_text() == before
    assert "handrail hook install: " in capsys.readouterr().err


def test_an_openhands_file_in_the_spelling_of_claude_code_keeps_it() -> None:
    path = settings_of("openhands")
    path.parent.mkdir()
    before = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "./tests"}]}]}}
    path.write_text(json.dumps(before))
    main(["install", "openhands", "--yes"])
    hooks = json.loads(path.read_text())["hooks"]
    assert len(hooks["Stop"]) == 2
    assert "stop" not in hooks  # OpenHands refuses both spellings of one event
    main(["uninstall", "openhands", "--yes"])
    assert json.loads(path.read_text()) == before


def test_a_project_has_settings_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "shop"
    project.mkdir()
    monkeypatch.chdir(project)
    assert main(["install", "openhands", "--project", "--yes"]) == 0
    assert (project / ".openhands" / "hooks.json").exists()
    assert not settings_of("openhands").exists()


def test_a_linked_settings_file_stays_a_link(tmp_path: Path) -> None:
    target = tmp_path / "dotfiles.json"
    target.write_text("{}\n")
    path = settings_of("claude-code")
    path.parent.mkdir()
    path.symlink_to(target)
    main(["install", "claude-code", "--yes"])
    assert path.is_symlink()
    assert "launcher.py" in target.read_text()


@all_agents
def test_the_installed_command_answers(agent: AgentName, tmp_path: Path) -> None:
    main(["install", agent, "--yes", "--state", str(tmp_path / "a folder's state")])
    (command,) = set(commands_in(json.loads(settings_of(agent).read_text())))
    answer = subprocess.run(
        ["sh", "-c", command], input=AgentForm().prompt("x"), capture_output=True
    )
    assert (answer.returncode, answer.stdout) == (0, b"")
    (socket,) = (tmp_path / "a folder's state").glob("*.sock")
    socket.unlink()  # the daemon ends


def test_a_handrail_that_is_gone_refuses_nothing(tmp_path: Path) -> None:
    """Python's exit code for a missing file is 2, by which agents take a call for refused."""
    main(["install", "claude-code", "--yes"])
    (command,) = set(commands_in(json.loads(settings_of("claude-code").read_text())))
    gone = command.replace(launcher.__file__, str(tmp_path / "handrail/hook/launcher.py"))
    assert gone != command
    assert subprocess.run(["sh", "-c", gone], input=b"{}", capture_output=True).returncode == 0


def test_options_are_checked_before_they_are_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text('{"max_stpes": 5}')
    assert main(["install", "codex", "--yes", "--rules", str(rules)]) == 2
    assert "max_stpes" in capsys.readouterr().err
    rules.write_text('{"max_steps": 900}')
    assert main(["install", "codex", "--yes", "--rules", str(rules)]) == 0
    (command,) = set(commands_in(json.loads(settings_of("codex").read_text())))
    assert f"--rules {shlex.quote(str(rules))}" in command


def test_the_command_needs_msgspec_and_nothing_else(tmp_path: Path) -> None:
    code = (
        "import sys, runpy, atexit\n"
        f"sys.argv = ['handrail', 'hook', '--state', {str(tmp_path)!r}]\n"
        "def show():\n"
        "    names = {name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names\n"
        "    print(sorted(name for name in names if name[0] != '_'), file=sys.stderr)\n"
        "atexit.register(show)\n"
        f"runpy.run_module('handrail', run_name='__main__')\n"
    )
    answer = subprocess.run(
        [sys.executable, "-I", "-c", code], input=AgentForm().prompt("x"), capture_output=True
    )
    assert answer.returncode == 0, answer.stderr
    names = set(ast.literal_eval(answer.stderr.decode()))
    names -= {"sitecustomize"}  # Debian's Python begins with one
    assert names <= {"handrail", "msgspec", "typing_extensions"}  # the last by msgspec, if there
