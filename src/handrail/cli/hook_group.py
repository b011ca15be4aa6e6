"""`handrail hook` among the other commands: its help, its completion, its options.

The arguments go on to `hook.py`, which starts without typer where the shell calls it.
"""

from typing import Annotated

import typer

from handrail.cli.command_group import CommandGroup
from handrail.hook.options import OPTION_HELP

Record = Annotated[str, typer.Option(metavar="URL", help=OPTION_HELP["record"])]
Rules = Annotated[str, typer.Option(metavar="FILE", help=OPTION_HELP["rules"])]
Fail = Annotated[str, typer.Option(metavar="open|closed", help=OPTION_HELP["fail"])]
State = Annotated[str, typer.Option(metavar="FOLDER", help=OPTION_HELP["state"])]
Name = Annotated[str, typer.Argument(metavar="NAME", help=OPTION_HELP["name"])]
Yes = Annotated[bool, typer.Option("--yes", help=OPTION_HELP["yes"])]
Project = Annotated[bool, typer.Option("--project", help=OPTION_HELP["project"])]

hook_group = typer.Typer(
    cls=CommandGroup,
    rich_markup_mode=None,
    invoke_without_command=True,
    help="Answer the hooks of coding agents, and install them.",
)


@hook_group.callback()
def hook(
    ctx: typer.Context,
    agent: Annotated[str, typer.Option(metavar="NAME", help=OPTION_HELP["agent"])] = "",
    record: Record = "",
    rules: Rules = "",
    fail: Fail = "open",
    state: State = "",
) -> None:
    """Answer one payload of a coding agent on standard input."""
    if ctx.invoked_subcommand is None:
        arguments = _options(agent=agent, record=record, rules=rules, fail=fail, state=state)
        raise typer.Exit(_run(arguments))


@hook_group.command()
def install(
    name: Name,
    yes: Yes = False,
    project: Project = False,
    record: Record = "",
    rules: Rules = "",
    fail: Fail = "open",
    state: State = "",
) -> int:
    """Write the hooks into an agent's settings; the change is shown first."""
    options = _options(record=record, rules=rules, fail=fail, state=state)
    return _run(["install", name, *_flags(yes=yes, project=project), *options])


@hook_group.command()
def uninstall(name: Name, yes: Yes = False, project: Project = False) -> int:
    """Take the hooks out of an agent's settings; the change is shown first."""
    return _run(["uninstall", name, *_flags(yes=yes, project=project)])


def _run(arguments: list[str]) -> int:
    from handrail.cli.hook import main as run_hook  # it opens databases: not for every command

    return run_hook(arguments)


def _options(**values: str) -> list[str]:
    return [word for name, value in values.items() if value for word in (f"--{name}", value)]


def _flags(**values: bool) -> list[str]:
    return [f"--{name}" for name, value in values.items() if value]
