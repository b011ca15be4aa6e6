"""Commands that need no server: `handrail init`, `check`, `run` and `sim`."""

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from handrail.cli import output
from handrail.cli.arguments import AsJson, decode_argument, read_context
from handrail.cli.command import (
    EXIT_FAILED,
    EXIT_WRONG_INPUT,
    InputError,
    as_input_error,
    file_as_input,
    print_error,
)
from handrail.store.rows import StoreError

if TYPE_CHECKING:
    from handrail.cli.definitions import DefinitionSource
    from handrail.kernel.definition.plan import DefinitionCheck, Plan

STARTER_FOLDER = Path(__file__).parent / "starter"
STARTER_FILES = ("notes.yaml", "agents.py", "test_notes.py", "pytest.ini")
NEXT_COMMANDS = (
    ("{handrail} check {folder}/notes.yaml", "what a run can cost at most"),
    ("{pytest} {folder}", "the workflow with its agents"),
    ("{handrail} run {folder}/notes.yaml", "watch a rehearsal, and be asked"),
    ("{handrail} serve", "then for real: agents.py says how its worker is started"),
)
COMMAND_COLUMNS = 40
PYTEST_COMMANDS = {
    "handrail": f"uv run --no-project --python {shlex.quote(sys.executable)} --with pytest pytest",
    "uv run handrail": "uv run --with pytest pytest",
}
"""By how the command line was called: how to run tests, also beside a tool's own environment."""


def init(
    folder: Annotated[str, typer.Argument(help="The folder; created if it is missing.")] = ".",
) -> None:
    """Write a definition, an agent and a test to start from."""
    target = Path(folder)
    with as_input_error(OSError):
        _write_files(target)
    for name in STARTER_FILES:
        print(f"wrote {target / name}")
    print("Next:")
    program = output.program_name()
    for command, purpose in NEXT_COMMANDS:
        command_line = command.format(
            handrail=program, pytest=PYTEST_COMMANDS[program], folder=target
        )
        if len(command_line) > COMMAND_COLUMNS:  # then its description stands below it
            print(f"  {command_line}")
            command_line = ""
        print(f"  {command_line:<{COMMAND_COLUMNS}} {purpose}")


def _write_files(target: Path) -> None:
    """Write the files, and never over others."""
    existing = [name for name in STARTER_FILES if (target / name).exists()]
    if existing:
        raise InputError(
            f"{', '.join(existing)} already exist in {target}; name another folder: "
            "handrail init FOLDER"
        )
    target.mkdir(parents=True, exist_ok=True)
    for name in STARTER_FILES:
        (target / name).write_bytes((STARTER_FOLDER / name).read_bytes())


def check(
    files: Annotated[
        list[str], typer.Argument(help="Files or names of built-in definitions; - for stdin.")
    ],
    as_json: AsJson = False,
) -> int:
    """Validate definitions and print their certificates.

    Every error comes with its place and a hint; a valid definition with what a run can cost at most
    and how much room its limits leave. Exit code 1 if a definition has errors, 2 if a file cannot
    be read.
    """
    from handrail.cli.definitions import find_definition
    from handrail.kernel.definition.plan import DefinitionCheck, check_definition

    code = 0
    documents: list[dict[str, Any]] = []
    for name in files:
        source = find_definition(name)
        plan, checked = (None, DefinitionCheck(errors=tuple(source.problems)))
        if not source.problems:
            plan, checked = check_definition(source.document)
        code = max(
            code, EXIT_WRONG_INPUT if source.missing else EXIT_FAILED if checked.errors else 0
        )
        if as_json:
            documents.append(_check_document(source, plan, checked))
        elif source.missing:
            problem = source.problems[0]
            print_error("check", f"{source.label}: {problem.message}; {problem.hint}")
        else:
            print("\n".join(_check_lines(source, plan, checked)))
    if as_json:
        output.print_json({"valid": code == 0, "definitions": documents})
    return code


def _check_lines(
    source: "DefinitionSource", plan: "Plan | None", checked: "DefinitionCheck"
) -> list[str]:
    label = output.printable(source.label)
    lines = source.format_problems(checked.errors, "error") + source.format_problems(
        checked.warnings, "warning"
    )
    if plan is None or checked.bound is None:
        return [
            *lines,
            f"{label}: not valid, {output.format_count(len(checked.errors), 'error')}",
        ]
    name, bound = output.printable(plan.definition.name), checked.bound
    lines.append(f"{label}: valid {plan.kind} '{name}'")
    lines.append(f"  {output.format_certificate(bound, plan.kind)}")
    if bound.asks:
        lines.append(f"  besides {output.format_asks_bound(bound)}")
    lines.append(f"  {output.format_exactness(bound)}")
    for slack in checked.feasibility:
        lines.append(
            f"  slack {slack.slack} in {slack.limit}: "
            f"{slack.way} takes {slack.needed} of {slack.allowed}"
        )
    return lines


def _check_document(
    source: "DefinitionSource", plan: "Plan | None", checked: "DefinitionCheck"
) -> dict[str, Any]:
    return {
        "file": source.label,
        "valid": checked.is_valid,
        "name": plan.definition.name if plan is not None else None,
        "kind": plan.kind if plan is not None else None,
        "errors": [_problem_document(p) for p in checked.errors],
        "warnings": [_problem_document(p) for p in checked.warnings],
        "bound": _to_builtins(checked.bound) if checked.bound is not None else None,
        "feasibility": [
            {**_to_builtins(slack), "slack": slack.slack} for slack in checked.feasibility
        ],
    }


def _to_builtins(value: object) -> dict[str, Any]:
    return msgspec.to_builtins(value, str_keys=True)


def _problem_document(problem: object) -> dict[str, Any]:
    return {"hint": "", **_to_builtins(problem)}


def run(
    definition: Annotated[
        str, typer.Argument(help="A file, else the name of a built-in definition.")
    ],
    title: Annotated[str, typer.Option(help="The bead's title.")] = "",
    description: Annotated[str, typer.Option(help="The bead's description.")] = "",
    context: Annotated[
        str, typer.Option(help="The bead's context: a JSON object, or @FILE with one.")
    ] = "",
    review: Annotated[
        str, typer.Option(help="required or skip; default: as the definition says.")
    ] = "",
    answers: Annotated[
        str, typer.Option(help="Read answers from this file, one per line; - for stdin.")
    ] = "",
    report: Annotated[
        str, typer.Option(help="Write the full report to this file, as Markdown or .json.")
    ] = "",
    database: Annotated[
        str, typer.Option(metavar="URL", help="Store the run in this database; default: in memory.")
    ] = "",
    as_json: AsJson = False,
) -> int:
    """Run one bead to its end in this process, with scripted agents.

    Questions are asked in the terminal. Exit code 0 only if the run ends as done_success.
    """
    import asyncio

    from handrail.agents.model import BadModelError
    from handrail.cli import local_run
    from handrail.cli.definitions import find_definition
    from handrail.engine.errors import RefusedError

    with as_input_error(StoreError, RefusedError, BadModelError):
        source = find_definition(definition)
        plan = local_run.check_plan(source)
        if review not in ("", "required", "skip"):
            raise InputError(f"--review is '{review}'; write required or skip")
        bead_context = read_context(context)
        bead = local_run.LocalBead(
            title=decode_argument(title) or local_run.sample_title(plan, bead_context),
            description=decode_argument(description),
            context=bead_context,
            review=review or None,
        )
        person = local_run.TerminalPerson(
            local_run.open_view(plan, bead, sys.stderr if as_json else sys.stdout),
            _read_answers(answers),
            is_present=answers != "-" and sys.stdin.isatty(),
        )
        interactive_run = asyncio.run(
            local_run.run_bead(source, plan, bead, person, database=database, as_json=as_json)
        )
        return local_run.print_end(interactive_run, person, plan.bound(bead.scope), report)


def _read_answers(path: str) -> list[str] | None:
    if not path:
        return None
    if path == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace").splitlines()
    with file_as_input(f"--answers {path}", "name a file with one answer a line"):
        return Path(path).read_text(encoding="utf-8").splitlines()


SEEDS_PER_PROCESS_MIN = 100
"""Seeds below which another process costs more time than it saves."""


def sim(
    seeds: Annotated[
        int, typer.Option(min=1, max=10_000_000, help="How many seeds to play.")
    ] = 1_000,
    seed: Annotated[
        int | None, typer.Option(help="Play only this seed, and print its history.")
    ] = None,
    engine: Annotated[
        bool, typer.Option("--engine", help="Also run through the engine and a database.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Play adversaries against the kernel, by seed.

    Agents loop, lie, stall and crash, people never answer or never stop revising; every run has to
    end all the same, within its certificate. Exit code 1 if one does not.
    """
    from handrail.testing import simulator

    if seed is not None:
        return _simulate_seed(seed, engine=engine, as_json=as_json)
    summary = simulator.run_seeds(
        0,
        seeds,
        min(os.cpu_count() or 1, max(1, seeds // SEEDS_PER_PROCESS_MIN)),
        *(("engine",) if engine else ()),
    )
    if as_json:
        output.print_json(
            {
                **msgspec.to_builtins(summary),
                "seeds_per_second": summary.seeds_per_second,
                "all_ended": summary.all_ended,
            }
        )
    else:
        print(output.printable(summary.table()))
    return 0 if summary.all_ended else EXIT_FAILED


def _simulate_seed(seed: int, *, engine: bool, as_json: bool) -> int:
    """Play one seed and print what was drawn from it and everything that happened."""
    from handrail.testing import simulator

    result = simulator.run_seed(seed, "engine") if engine else simulator.run_seed(seed)
    events: list[Any] = simulator.history(seed) if not result.failure else []
    if as_json:
        output.print_json({**msgspec.to_builtins(result), "history": msgspec.to_builtins(events)})
    else:
        print(output.printable(simulator.describe_seed(seed)))
        for number, event in enumerate(events, 1):
            print(f"{number:5}  {output.printable(msgspec.json.encode(event).decode())}")
        ended_line = f"seed {seed}: {result.status} by {result.rule}, {result.events} events"
        print(ended_line if not result.failure else output.printable(result.failure))
    sys.stdout.flush()
    return EXIT_FAILED if result.failure else 0
