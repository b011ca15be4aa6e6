"""Groups of commands, as Typer runs them."""

from typing import Any

import typer
from typer.core import TyperGroup

from handrail.cli.command import execute


class CommandGroup(TyperGroup):
    """Runs the command that was called, and exits with the code that it returns."""

    def invoke(self, ctx: Any) -> None:  # noqa: ANN401 - typer's class of it is private
        def name() -> str:
            path = ctx.command_path.removeprefix(ctx.find_root().info_name)
            return f"{path} {ctx.invoked_subcommand or ''}".strip()

        raise typer.Exit(execute(lambda: super(CommandGroup, self).invoke(ctx), name))


def command_group(help_text: str) -> typer.Typer:
    return typer.Typer(
        cls=CommandGroup, rich_markup_mode=None, no_args_is_help=True, help=help_text
    )
