"""The options of `handrail hook`, as the command line, the daemon and the settings files have them.

Only argparse: a hook must start without the server's packages.
"""

import argparse
from typing import Literal

from handrail.hook.payloads import AGENT_NAMES, AgentName
from handrail.kernel.decision import Value

FailMode = Literal["open", "closed"]


class HookOptions(Value):
    """How payloads are answered: from the command line of the hook."""

    agent: AgentName | None = None
    record: str = ""
    """A Handrail database or server that shows the runs."""
    rules: str = ""
    """A JSON file with stop rules."""
    fail: FailMode = "open"


FAIL_MODES: tuple[FailMode, ...] = ("open", "closed")


OPTION_HELP = {
    "agent": "Whose payload it is; default: as its form tells.",
    "record": "A Handrail database or server that shows the runs.",
    "rules": "A JSON file with stop rules.",
    "fail": "What becomes of tool calls that cannot be judged: open or closed.",
    "state": "The folder in which conversations are kept.",
    "yes": "Do not ask.",
    "project": "The settings of the project in this folder, not the user's.",
    "name": f"The agent: {', '.join(AGENT_NAMES)}.",
}
"""By option, what it is."""


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--record", metavar="URL", default="", help=OPTION_HELP["record"])
    parser.add_argument("--rules", metavar="FILE", default="", help=OPTION_HELP["rules"])
    parser.add_argument("--fail", choices=FAIL_MODES, default="open", help=OPTION_HELP["fail"])
    parser.add_argument("--state", metavar="FOLDER", default="", help=OPTION_HELP["state"])


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="handrail hook",
        description="Read one hook payload of a coding agent on standard input and answer it. "
        "`handrail hook install NAME` writes the hooks into the agent's settings, `handrail hook "
        f"uninstall NAME` takes them out; NAME is {', '.join(AGENT_NAMES)}.",
    )
    parser.add_argument("--agent", choices=AGENT_NAMES, help=OPTION_HELP["agent"])
    _add_options(parser)
    return parser


def make_install_parser(verb: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"handrail hook {verb}",
        description=(
            "Write the hooks into the settings of a coding agent."
            if verb == "install"
            else "Take the hooks out of the settings of a coding agent."
        )
        + " The change is shown first.",
    )
    parser.add_argument("name", metavar="NAME", choices=AGENT_NAMES, help=OPTION_HELP["name"])
    parser.add_argument("--yes", action="store_true", help=OPTION_HELP["yes"])
    parser.add_argument("--project", action="store_true", help=OPTION_HELP["project"])
    if verb == "install":
        _add_options(parser)
    return parser


def parse_options(arguments: list[str]) -> HookOptions:
    """Read the options of a hook. Raises ValueError."""
    parser = make_parser()
    parser.exit_on_error = False
    try:
        parsed = parser.parse_args(arguments)
    except (argparse.ArgumentError, SystemExit) as error:
        raise ValueError(f"the hook's options are wrong: {error}") from None
    return HookOptions(
        agent=parsed.agent, record=parsed.record, rules=parsed.rules, fail=parsed.fail
    )
