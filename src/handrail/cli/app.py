"""The command line: every command, in the order of the help.

Each is one function in the module of its subject.
"""

from typing import Annotated

import typer

from handrail.cli import (
    admin,
    answer,
    budgets,
    channel,
    database,
    guard,
    heal,
    hook_group,
    local_commands,
    memory,
    metrics,
    processes,
    replay,
    runs,
)
from handrail.cli.command_group import CommandGroup

app = typer.Typer(
    name="handrail",
    cls=CommandGroup,
    help="Runs teams of AI agents and people so that every run ends, with a reason.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        print(f"handrail {version('handrail')}")
        raise typer.Exit


@app.callback()
def handrail(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Runs teams of AI agents and people so that every run ends, with a reason."""


for command in (
    processes.demo,
    local_commands.init,
    local_commands.check,
    local_commands.run,
    processes.serve,
    processes.worker,
    processes.mcp,
    processes.a2a,
    runs.runs,
    runs.show,
    runs.report,
    runs.why,
    metrics.metrics,
    budgets.budgets,
    replay.replay,
    replay.tune,
    answer.answer,
    runs.override,
    admin.agents,
    admin.settings,
    admin.sign_in,
    local_commands.sim,
    guard.guard,
    database.verify,
    database.doctor,
):
    app.command(command.__name__.replace("_", "-"))(command)
for name, group in (
    ("bead", runs.bead),
    ("heal", heal.heal),
    ("hook", hook_group.hook_group),
    ("memory", memory.memory),
    ("token", admin.token),
    ("webhook", admin.webhook),
    ("channel", channel.channel),
    ("db", database.db),
):
    app.add_typer(group, name=name)
