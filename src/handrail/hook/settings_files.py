"""The hook entries in the settings files of coding agents: what to write, and what is ours in them.

Only entries whose command runs our launcher are written, replaced or removed. Everything else in a
file stays, in its order; a file that is not plain JSON is left to its owner.
"""

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from handrail.hook import launcher
from handrail.hook.payloads import AgentName
from handrail.kernel.decision import Value

LAUNCHER_MARK = "handrail/hook/launcher.py"
TIMEOUT_SECONDS = 30
INDENTS: tuple[int | str, ...] = (2, 4, "\t", 3, 1)

Json = dict[str, Any]


class SettingsFileError(ValueError):
    """A settings file that cannot be changed here."""


class AgentSettings(Value):
    """Where an agent reads its hooks, and in which form."""

    folder: str
    """Below the home folder, or below the project."""
    file: str
    tool_events: tuple[str, ...]
    other_events: tuple[str, ...]
    home_variable: str = ""
    """The environment variable that names another folder than the one at home."""
    timeout: int = TIMEOUT_SECONDS
    matcher: str | None = "*"
    note: str = ""
    """What is left to be done after an installation."""


AGENT_SETTINGS: dict[AgentName, AgentSettings] = {
    "claude-code": AgentSettings(
        folder=".claude",
        file="settings.json",
        tool_events=("PreToolUse", "PostToolUse", "PostToolUseFailure"),
        other_events=("UserPromptSubmit", "Stop", "SubagentStop", "SessionEnd"),
        home_variable="CLAUDE_CONFIG_DIR",
    ),
    "codex": AgentSettings(
        folder=".codex",
        file="hooks.json",
        tool_events=("PreToolUse", "PostToolUse"),
        other_events=("UserPromptSubmit", "Stop", "SubagentStop", "SessionEnd"),
        home_variable="CODEX_HOME",
        matcher=None,
        note="Codex runs new hooks only once you trust them: see /hooks in Codex.",
    ),
    "gemini-cli": AgentSettings(
        folder=".gemini",
        file="settings.json",
        tool_events=("BeforeTool", "AfterTool"),
        other_events=("BeforeAgent", "AfterAgent", "SessionEnd"),
        timeout=TIMEOUT_SECONDS * 1000,
    ),
    "openhands": AgentSettings(
        folder=".openhands",
        file="hooks.json",
        tool_events=("PreToolUse", "PostToolUse"),
        other_events=("UserPromptSubmit", "Stop", "SessionEnd"),
        note="OpenHands reads a project's .openhands/hooks.json instead, where there is one.",
    ),
}


def settings_path(agent: AgentName, project: Path | None, environ: Mapping[str, str]) -> Path:
    """Return the agent's settings file: the user's, or a project's."""
    settings = AGENT_SETTINGS[agent]
    if project is not None:
        return project / settings.folder / settings.file
    home = environ.get(settings.home_variable, "") if settings.home_variable else ""
    return (Path(home) if home else Path.home() / settings.folder) / settings.file


def hook_command(arguments: list[str], *, fail_closed: bool) -> str:
    """Return the shell command that an agent runs. Where the launcher is gone, as after Handrail
    was removed, Python's exit code would refuse every tool call; so it is looked for first, unless
    calls are to be refused then.
    """
    path = str(Path(launcher.__file__).resolve())
    words = [sys.executable, "-I", "-S", path, *arguments]
    command = f"exec {shlex.join(words)}"
    return command if fail_closed else f"test ! -e {shlex.quote(path)} || {command}"


def read_settings(path: Path) -> tuple[str, Json]:
    """Return the file's text and content; both empty if there is none. Raises SettingsFileError."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return "", {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsFileError(f"{path} cannot be read: {error}") from None
    try:
        content = json.loads(text or "{}")
    except ValueError as error:
        raise SettingsFileError(
            f"{path} is not plain JSON ({error}); add or remove the hooks by hand"
        ) from None
    if not isinstance(content, dict):
        raise SettingsFileError(f"{path} is no JSON object; add or remove the hooks by hand")
    return text, cast("Json", content)


def with_hooks(agent: AgentName, content: Json, command: str) -> Json:
    """Return the settings with our hooks, and no earlier ones of ours."""
    content = without_hooks(agent, content)
    settings = AGENT_SETTINGS[agent]
    hooks = _hooks_of(agent, content)
    hook: Json = {"type": "command", "command": command, "timeout": settings.timeout}
    if agent == "gemini-cli":
        hook = {"name": "handrail", **hook}
    for event in (*settings.tool_events, *settings.other_events):
        is_matched = settings.matcher is not None and event in settings.tool_events
        group: Json = {"matcher": settings.matcher} if is_matched else {}
        name = _event_name(agent, hooks, event)
        hooks[name] = [*_groups(hooks, name), {**group, "hooks": [hook]}]
    return content if hooks is content else {**content, "hooks": hooks}


def without_hooks(agent: AgentName, content: Json) -> Json:
    """Return the settings without our hooks, and without what they leave empty."""
    hooks = _hooks_of(agent, content)
    changed = {
        event: _other_groups(cast("list[Any]", groups)) if isinstance(groups, list) else groups
        for event, groups in hooks.items()
    }
    remaining = {
        event: groups for event, groups in changed.items() if groups or groups == hooks[event]
    }
    if hooks is content:
        return remaining
    if remaining or remaining == hooks:
        return {**content, "hooks": remaining} if "hooks" in content else dict(content)
    return {name: value for name, value in content.items() if name != "hooks"}


def _hooks_of(agent: AgentName, content: Json) -> Json:
    """Return the object that holds the events; OpenHands has it at the top, unless wrapped."""
    if agent == "openhands" and "hooks" not in content:
        return content
    hooks = content.get("hooks", {})
    if not isinstance(hooks, dict):
        raise SettingsFileError("`hooks` in the settings file is no object; correct it first")
    return cast("Json", hooks)


def _groups(hooks: Json, event: str) -> list[Any]:
    groups = hooks.get(event, [])
    if not isinstance(groups, list):
        raise SettingsFileError(
            f"`hooks.{event}` in the settings file is no list; correct it first"
        )
    return cast("list[Any]", groups)


def _event_name(agent: AgentName, hooks: Json, event: str) -> str:
    """Return how the file spells an event: OpenHands takes two spellings, but not both."""
    if agent != "openhands":
        return event
    snake = "".join(f"_{char.lower()}" if char.isupper() else char for char in event).lstrip("_")
    return event if event in hooks else snake


def _other_groups(groups: list[Any]) -> list[Any]:
    """Return the groups without our hooks; a group is dropped if it had nothing else."""
    kept_groups: list[Any] = []
    for group in groups:
        hooks = cast("Json", group).get("hooks") if isinstance(group, dict) else None
        hooks = cast("list[Any]", hooks) if isinstance(hooks, list) else []
        others = [hook for hook in hooks if not _is_ours(hook)]
        if len(others) == len(hooks):
            kept_groups.append(group)
        elif others:
            kept_groups.append({**group, "hooks": others})
    return kept_groups


def _is_ours(hook: object) -> bool:
    command = cast("Json", hook).get("command") if isinstance(hook, dict) else None
    return isinstance(command, str) and LAUNCHER_MARK in command.replace("\\", "/")


def format_settings(content: Json, like: str) -> str:
    """Return the settings as text, indented as the text that was there."""
    formats: list[Callable[[Json], str]] = [_formatter(indent) for indent in INDENTS]
    try:
        before = json.loads(like or "{}")
        fitting = (form for form in formats if form(before).strip() == like.strip())
        text = next(fitting, formats[0])(content)
    except ValueError:
        text = formats[0](content)
    return text if like and not like.endswith("\n") else f"{text}\n"


def _formatter(indent: int | str) -> Callable[[Json], str]:
    return lambda content: json.dumps(content, indent=indent, ensure_ascii=False)


def write_settings(path: Path, text: str) -> None:
    """Replace the file at once; its mode stays. An empty text removes it."""
    path = path.resolve()  # settings are often links into a folder of dot files
    try:
        if not text:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except OSError as error:
        raise SettingsFileError(f"{path} cannot be written: {error}") from None
