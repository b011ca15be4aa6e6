"""The command line: every command, in the order of the help.

Each is one function in the module of its name, or in the module of its group.
"""

from typing import Annotated

import typer

from handrail.cli import (
    a2a,
    agents,
    answer,
    bead,
    channel,
    check,
    db,
    demo,
    doctor,
    guard,
    init,
    mcp,
    memory,
    metrics,
    override,
    replay,
    report,
    run,
    runs,
    serve,
    settings,
    show,
    sim,
    token,
    tune,
    verify,
    webhook,
    why,
    worker,
)
from handrail.cli.command import CommandGroup

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
    demo.demo,
    init.init,
    check.check,
    run.run,
    serve.serve,
    worker.worker,
    mcp.mcp,
    a2a.a2a,
    runs.runs,
    show.show,
    report.report,
    why.why,
    metrics.metrics,
    replay.replay,
    tune.tune,
    answer.answer,
    override.override,
    agents.agents,
    settings.settings,
    token.sign_in,
    sim.sim,
    guard.guard,
    verify.verify,
    doctor.doctor,
):
    app.command(command.__name__.replace("_", "-"))(command)
for name, group in (
    ("bead", bead.bead),
    ("memory", memory.memory),
    ("token", token.token),
    ("webhook", webhook.webhook),
    ("channel", channel.channel),
    ("db", db.db),
):
    app.add_typer(group, name=name)
