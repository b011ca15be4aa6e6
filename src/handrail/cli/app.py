"""The commands and their options. What they do stands in a module of the same name each."""

from typing import Annotated

import typer

app = typer.Typer(
    name="handrail",
    help="Runs teams of AI agents and people so that every run ends, with a reason.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Database = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="sqlite:///FILE or postgresql://…; left out, HANDRAIL_DATABASE, else the one in the "
        "folder .handrail here.",
    ),
]


@app.callback()
def handrail() -> None:
    """Runs teams of AI agents and people so that every run ends, with a reason."""


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
    from handrail.cli.check import check_all

    raise typer.Exit(check_all(files, as_json=as_json))


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
        str, typer.Option(help="A file with one answer a line, instead of a terminal.")
    ] = "",
    report: Annotated[
        str, typer.Option(help="Write the whole report to this file, as Markdown or .json.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Run one bead to its end here, with scripted agents.

    Everything happens in this process and in memory. Questions are asked in the terminal. Exit code
    0 only if the run ends as done_success.
    """
    from handrail.cli.run import Wanted, run_one

    wanted = Wanted(
        definition=definition,
        title=title,
        description=description,
        context=context,
        review=review,
        answers=answers,
        report=report,
    )
    raise typer.Exit(run_one(wanted, as_json=as_json))


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
    from handrail.cli.sim import run_many, run_seed

    if seed is None:
        raise typer.Exit(run_many(seeds, engine=engine, as_json=as_json))
    raise typer.Exit(run_seed(seed, engine=engine, as_json=as_json))


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
