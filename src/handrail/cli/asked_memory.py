"""`handrail memory …`: the options of its commands."""

from typing import Annotated

import typer

from handrail.cli.options import AsJson, Database, Server

Which = Annotated[
    str, typer.Argument(metavar="MEMORY", help="Its id, or enough of the beginning or end of it.")
]

memory = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@memory.callback()
def memories() -> None:
    """Look at, correct and remove remembered resolutions."""


@memory.command("list")
def memory_list(
    text: Annotated[str, typer.Option(help="What the ticket or the resolution contains.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most so many.")] = 50,
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """List remembered resolutions, the newest first."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.memory import list_memories

    raise typer.Exit(
        list_memories(ApiTarget("memory list", database, server, as_json), text, limit)
    )


@memory.command("show")
def memory_show(
    memory: Which, database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """Show one: the ticket, the resolution, and how it stands."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.memory import show_memory

    raise typer.Exit(show_memory(ApiTarget("memory show", database, server, as_json), memory))


@memory.command("correct")
def memory_correct(
    memory: Which,
    resolution: Annotated[str, typer.Argument(help="What such tickets are answered from now on.")],
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Write another resolution; who did is on record."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.memory import correct_memory

    target = ApiTarget("memory correct", database, server, as_json)
    raise typer.Exit(correct_memory(target, memory, resolution))


@memory.command("remove")
def memory_remove(
    memory: Which, database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """Remove one: it answers no ticket any more."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.memory import remove_memory

    raise typer.Exit(remove_memory(ApiTarget("memory remove", database, server, as_json), memory))
