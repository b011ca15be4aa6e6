"""`handrail hook`: answer one payload, or install the hooks in an agent's settings.

It starts without typer and the server's packages; `app.py` names it among the other commands.
"""

import argparse
import difflib
import os
import sys
from pathlib import Path
from typing import cast

from handrail.hook import launcher
from handrail.hook.options import (
    HookOptions,
    make_install_parser,
    make_parser,
    parse_options,
)
from handrail.hook.payloads import PAYLOAD_BYTES_MAX, AgentName
from handrail.hook.recording import write_ended_runs
from handrail.hook.service import HookService, RulesError, read_rules_file
from handrail.hook.settings_files import (
    AGENT_SETTINGS,
    SettingsFileError,
    format_settings,
    hook_command,
    read_settings,
    settings_path,
    with_hooks,
    without_hooks,
    write_settings,
)

EXIT_REFUSED, EXIT_WRONG_USE = 1, 2


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] in (["install"], ["uninstall"]):
        verb, *rest = arguments
        try:
            return _change_settings(verb, make_install_parser(verb).parse_args(rest))
        except (SettingsFileError, RulesError) as error:
            print(f"handrail hook {verb}: {error}", file=sys.stderr)
            return EXIT_WRONG_USE
    parsed = make_parser().parse_args(arguments)
    if sys.stdin.isatty():
        message = "a coding agent starts this; `handrail hook install NAME` tells it to"
        print(f"handrail hook: {message}", file=sys.stderr)
        return EXIT_WRONG_USE
    folder = Path(parsed.state or launcher.default_folder())
    return _answer(folder, parse_options(arguments))


def _answer(folder: Path, options: HookOptions) -> int:
    """Answer the payload on standard input by this process alone."""
    service = HookService(folder)
    answer = service.answer(sys.stdin.buffer.read(PAYLOAD_BYTES_MAX + 1), options)
    if answer.stderr:
        print(answer.stderr, file=sys.stderr)
    sys.stdout.buffer.write(answer.stdout)
    sys.stdout.buffer.flush()
    if service.has_ended_runs and (problem := write_ended_runs(service.store)):
        print(f"handrail hook: {problem}", file=sys.stderr)
    service.store.close()
    return answer.exit_code


def _change_settings(verb: str, parsed: argparse.Namespace) -> int:
    """Show what changes in the agent's settings file, ask, and write it."""
    agent = cast("AgentName", parsed.name)
    path = settings_path(agent, Path.cwd() if parsed.project else None, os.environ)
    text, content = read_settings(path)
    if verb == "install":
        if parsed.rules:
            read_rules_file(Path(parsed.rules))
        changed = with_hooks(agent, content, _installed_command(agent, parsed))
    else:
        changed = without_hooks(agent, content)
    if changed == content:
        state = "are there" if verb == "install" else "are not there"
        print(f"nothing to do: the hooks {state} in {path}")
        return 0
    new_text = format_settings(changed, text) if changed else ""
    name = str(path)
    diff = difflib.unified_diff(text.splitlines(), new_text.splitlines(), name, name, lineterm="")
    print("\n".join(diff))
    if not parsed.yes and not _is_confirmed(path):
        return EXIT_REFUSED
    write_settings(path, new_text)
    print(f"The agent's hooks are {verb}ed.")
    if verb == "install" and AGENT_SETTINGS[agent].note:
        print(AGENT_SETTINGS[agent].note)
    return 0


def _is_confirmed(path: Path) -> bool:
    if not sys.stdin.isatty():
        print("handrail hook: nothing is written without --yes or a terminal", file=sys.stderr)
        return False
    return input(f"Write this to {path}? [y/N] ").strip().lower() in ("y", "yes")


def _installed_command(agent: AgentName, parsed: argparse.Namespace) -> str:
    """Return the command line for the agent's settings, with every path absolute."""
    folder = Path(parsed.state or launcher.default_folder()).absolute()
    arguments = ["--agent", agent, "--state", str(folder)]
    for option, value in (
        ("--record", parsed.record),
        ("--rules", str(Path(parsed.rules).absolute()) if parsed.rules else ""),
        ("--fail", parsed.fail if parsed.fail != "open" else ""),
    ):
        arguments += [option, value] if value else []
    return hook_command(arguments, fail_closed=parsed.fail == "closed")
