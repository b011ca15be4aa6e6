"""The command line: every command, in the order of the help.

Each is one function in the module of its name, or in the module of its group.
"""

from typing import Annotated

import typer

from handrail.cli.a2a import a2a
from handrail.cli.agents import agents
from handrail.cli.answer import answer
from handrail.cli.bead import bead
from handrail.cli.channel import channel
from handrail.cli.check import check
from handrail.cli.command import CommandGroup
from handrail.cli.db import db
from handrail.cli.demo import demo
from handrail.cli.doctor import doctor
from handrail.cli.guard import guard
from handrail.cli.init import init
from handrail.cli.mcp import mcp
from handrail.cli.memory import memory
from handrail.cli.metrics import metrics
from handrail.cli.override import override
from handrail.cli.replay import replay
from handrail.cli.report import report
from handrail.cli.run import run
from handrail.cli.runs import runs
from handrail.cli.serve import serve
from handrail.cli.settings import settings
from handrail.cli.show import show
from handrail.cli.sim import sim
from handrail.cli.token import sign_in, token
from handrail.cli.tune import tune
from handrail.cli.verify import verify
from handrail.cli.webhook import webhook
from handrail.cli.why import why
from handrail.cli.worker import worker

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
            "--version", callback=_print_version, is_eager=True, help="Print it, and end."
        ),
    ] = False,
) -> None:
    """Runs teams of AI agents and people so that every run ends, with a reason."""


for command in (demo, init, check, run, serve, worker, mcp, a2a):
    app.command()(command)
for command in (runs, show, report, why, metrics, replay, tune, answer, override, agents, settings):
    app.command()(command)
app.command("sign-in")(sign_in)
for command in (sim, guard, verify, doctor):
    app.command()(command)
for name, group in (
    ("bead", bead),
    ("memory", memory),
    ("token", token),
    ("webhook", webhook),
    ("channel", channel),
    ("db", db),
):
    app.add_typer(group, name=name)
