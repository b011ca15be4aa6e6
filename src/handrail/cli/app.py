"""The commands and their options. Each command's code stands in a module of its name.

Commands for the record and the database are here; those that call the API stand in `asked.py`.
"""

from typing import Annotated

import typer

from handrail.cli import asked
from handrail.cli.options import AsJson, Database, Server

app = typer.Typer(
    name="handrail",
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


@app.command()
def demo(
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Left out, 8080 if it is free.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Answer every question, print a table, and end.")
    ] = False,
) -> None:
    """Show it: a server with built-in teams at work on sample beads.

    Prints the page's address with a one-time sign-in. Needs nothing but this folder, where it has a
    database of its own.
    """
    from handrail.cli.demo import run_demo

    raise typer.Exit(run_demo(port, once=once))


@app.command()
def init(
    folder: Annotated[str, typer.Argument(help="Where to; it is made if it is not there.")] = ".",
) -> None:
    """Write a definition, an agent and a test to begin with."""
    from handrail.cli.init import write_starter

    raise typer.Exit(write_starter(folder))


@app.command()
def check(
    files: Annotated[
        list[str], typer.Argument(help="Files, names of built-in definitions, - for stdin.")
    ],
    as_json: AsJson = False,
) -> None:
    """Validate definitions and print their certificates.

    Every error comes with its place and a hint; a valid definition with what a run can cost at most
    and how much room its limits leave. Exit code 1 if a definition has errors, 2 if a file cannot
    be read.
    """
    from handrail.cli.check import check_definitions

    raise typer.Exit(check_definitions(files, as_json=as_json))


@app.command()
def run(
    definition: Annotated[str, typer.Argument(help="A file, else the name of a built-in one.")],
    title: Annotated[str, typer.Option(help="What the bead is about.")] = "",
    description: Annotated[str, typer.Option(help="The same at length.")] = "",
    context: Annotated[
        str, typer.Option(help="The bead's context: a JSON object, or @FILE with one.")
    ] = "",
    review: Annotated[
        str, typer.Option(help="required or skip; left out, as the definition says.")
    ] = "",
    answers: Annotated[
        str, typer.Option(help="A file with one answer a line, - for stdin, instead of a terminal.")
    ] = "",
    report: Annotated[
        str, typer.Option(help="Write the whole report to this file, as Markdown or .json.")
    ] = "",
    database: Annotated[
        str, typer.Option(metavar="URL", help="Keep the run there; left out, in memory.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Run one bead to its end here, with scripted agents.

    Everything happens in this process. Questions are asked in the terminal. Exit code 0 only if the
    run ends as done_success.
    """
    from handrail.cli.run import RunOptions, run_bead

    options = RunOptions(
        definition=definition,
        title=title,
        description=description,
        context=context,
        review=review,
        answers=answers,
        report=report,
        database=database,
    )
    raise typer.Exit(run_bead(options, as_json=as_json))


@app.command()
def serve(
    database: Database = "",
    host: Annotated[str, typer.Option(help="Left out, 127.0.0.1: this machine alone.")] = "",
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Left out, 8080; 0 takes a free one.")
    ] = None,
    builtin_agents: Annotated[
        bool, typer.Option("--builtin-agents", help="Let the built-in teams work here, offline.")
    ] = False,
) -> None:
    """Serve the API, the page and the engine.

    Prints its address when it listens. Ends on SIGTERM or Ctrl-C, after what is under way; exit
    code 1 if the engine failed, 2 if it cannot listen or the database cannot be used.
    """
    from handrail.cli.serve import ServeOptions, run_server

    options = ServeOptions(database, host, port, builtin_agents)
    raise typer.Exit(run_server(options))


@app.command()
def worker(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="A Worker, or a function under @agent.")
    ],
    server: Server = "",
    agent: Annotated[str, typer.Option(metavar="ID", help="The agent's id.")] = "",
    concurrency: Annotated[
        int, typer.Option(min=0, max=10_000, help="Dispatches at once; 0, as the module says.")
    ] = 0,
) -> None:
    """Run agents from a Python module against a server.

    The token, of the role agent, is taken from HANDRAIL_TOKEN. Ends on SIGTERM or Ctrl-C, after
    what is in hand.
    """
    from handrail.cli.worker import run_worker

    raise typer.Exit(run_worker(target, server=server, agent=agent, concurrency=concurrency))


@app.command()
def mcp(
    server: Server = "",
    http: Annotated[
        bool, typer.Option("--http", help="Over HTTP, for many agents; else over stdio, for one.")
    ] = False,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Where to listen; 0 takes a free one.")
    ] = 8090,
    silence: Annotated[
        float,
        typer.Option(
            min=1, max=86_400, help="Seconds without a call after which an agent has gone away."
        ),
    ] = 900,
) -> None:
    """Let a coding agent join as a worker, by MCP.

    MCP is the Model Context Protocol. Over stdio the agent's token is taken from HANDRAIL_TOKEN;
    over HTTP every request brings its own. Ends with its input, or on SIGTERM or Ctrl-C.
    """
    from handrail.cli.mcp import McpOptions, serve_mcp

    raise typer.Exit(serve_mcp(McpOptions(server, http, host, port, silence)))


@app.command()
def a2a(
    server: Server = "",
    url: Annotated[
        str,
        typer.Option(
            metavar="URL", help="Where others reach it, for its cards; left out, where it listens."
        ),
    ] = "",
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Where to listen; 0 takes a free one.")
    ] = 8091,
) -> None:
    """Let others reach definitions as agents, by A2A.

    A2A is the Agent2Agent protocol. Every definition is an agent, at its id below this address; a
    message to it files a bead. Every request brings its own token. Ends on SIGTERM or Ctrl-C.
    """
    from handrail.cli.a2a import A2aOptions, serve_a2a

    raise typer.Exit(serve_a2a(A2aOptions(server, url, host, port)))


asked.add_to(app)


@app.command()
def sim(
    seeds: Annotated[int, typer.Option(min=1, max=10_000_000, help="How many.")] = 1_000,
    seed: Annotated[int | None, typer.Option(help="Only this one, with its history.")] = None,
    engine: Annotated[
        bool, typer.Option("--engine", help="Through the engine and a database as well.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Play adversaries against the kernel, by seed.

    Agents loop, lie, stall and crash, people never answer or never stop revising; every run has to
    end all the same, within its certificate. Exit code 1 if one does not.
    """
    from handrail.cli.sim import simulate_seed, simulate_seeds

    if seed is None:
        raise typer.Exit(simulate_seeds(seeds, engine=engine, as_json=as_json))
    raise typer.Exit(simulate_seed(seed, engine=engine, as_json=as_json))


@app.command()
def guard(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:OBJECT",
            help="A function, or a team of LangGraph, Strands, OpenAI Agents, Pydantic AI, "
            "AutoGen, Agent Framework or CrewAI.",
        ),
    ],
    input_text: Annotated[
        str, typer.Option("--input", metavar="TEXT", help="What the team is given; @FILE reads it.")
    ] = "",
    name: Annotated[str, typer.Option(help="Its definition's name; left out, MODULE:OBJECT.")] = "",
    rules: Annotated[
        str, typer.Option(metavar="FILE", help="Stop rules, or the name of a profile.")
    ] = "",
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Run somebody's own team under guard, as it is.

    Prints the team's result; on standard error why it ended. The run is on record afterwards, for
    runs, show, report, why and replay; on a server while it goes on, too. Exit code 1 if a rule
    stopped it or the team raised.
    """
    from handrail.cli.guard import GuardOptions, guard_team

    options = GuardOptions(
        target, input_text, name=name, rules=rules, database=database, server=server
    )
    raise typer.Exit(guard_team(options, as_json=as_json))


@app.command()
def verify(
    head: Annotated[
        str, typer.Option(metavar="HASH", help="A head that was kept elsewhere: it must be there.")
    ] = "",
    archive: Annotated[
        str, typer.Option(metavar="FILE", help="Also check the runs that were archived to it.")
    ] = "",
    database: Database = "",
    as_json: AsJson = False,
) -> None:
    """Check that the record is what was written.

    Hashes every event again and compares every row with the events. Prints the head: who keeps it
    elsewhere can later see, with --head, that nothing before it was cut off or written anew. Works
    on a live database. Exit code 1 if something was altered.
    """
    from handrail.cli.verify import verify_database

    raise typer.Exit(verify_database(database, head=head, archive=archive, as_json=as_json))


@app.command()
def doctor(database: Database = "", as_json: AsJson = False) -> None:
    """Check that the invariants hold, and that nothing is stuck.

    Works on a live database and changes nothing. Exit code 1 if something is wrong.
    """
    from handrail.cli.doctor import examine_database

    raise typer.Exit(examine_database(database, as_json=as_json))


db = typer.Typer(rich_markup_mode=None)
app.add_typer(db, name="db")


@db.callback(invoke_without_command=True)
def sizes(context: typer.Context, database: Database = "", as_json: AsJson = False) -> None:
    """Show how large the database is; archive, back up, restore."""
    context.obj = database  # also for `handrail db --database URL COMMAND`
    if context.invoked_subcommand is not None:
        return
    from handrail.cli.db import show_sizes

    raise typer.Exit(show_sizes(database, as_json=as_json))


@db.command()
def archive(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="A new file; compressed if it ends in .gz.")],
    older_than: Annotated[str, typer.Option(help="Runs that ended so long ago.")] = "30d",
    by: Annotated[str, typer.Option(help="Who does it; left out, the system's user.")] = "",
    database: Database = "",
    as_json: AsJson = False,
) -> None:
    """Move finished runs to a file.

    The file holds all of them and is on disk before anything is removed. Their hashes stay, so that
    verify can still check everything; that they were archived, and by whom, is on record.
    """
    from handrail.cli.db import archive_runs

    code = archive_runs(
        database or context.obj, file, older_than=older_than, by=by, as_json=as_json
    )
    raise typer.Exit(code)


@db.command()
def backup(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="A new file.")],
    database: Database = "",
    as_json: AsJson = False,
) -> None:
    """Copy everything to a new file, while engines go on. Prints the head of the copy."""
    from handrail.cli.db import back_up

    raise typer.Exit(back_up(database or context.obj, file, as_json=as_json))


@db.command()
def restore(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="What backup wrote.")],
    yes: Annotated[bool, typer.Option("--yes", help="Replace what is there.")] = False,
    database: Database = "",
    as_json: AsJson = False,
) -> None:
    """Make everything as it was when a backup was written.

    The file is checked first; then all of it is restored, or nothing. Engines may be running: they
    go on from there. Exit code 2 if the file is not fit, or --yes is missing.
    """
    from handrail.cli.db import restore_from

    raise typer.Exit(restore_from(database or context.obj, file, yes=yes, as_json=as_json))
