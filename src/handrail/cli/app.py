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
    as_json: AsJson = False,
) -> None:
    """Play adversaries against the kernel, by seed.

    Agents loop, lie, stall and crash, people never answer or never stop revising; every run has to
    end all the same, within its certificate. Exit code 1 if one does not.
    """
    from handrail.cli.sim import run_many, run_seed

    code = run_many(seeds, as_json=as_json) if seed is None else run_seed(seed, as_json=as_json)
    raise typer.Exit(code)
