"""`handrail guard MODULE:OBJECT`: run the user's own team under guard, as it is."""

import shlex
import traceback
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from handrail.cli import output
from handrail.cli.arguments import (
    AsJson,
    Database,
    Server,
    decode_argument,
    import_object,
    read_rules,
)
from handrail.cli.command import (
    EXIT_FAILED,
    TOKEN_VARIABLE,
    InputError,
    as_input_error,
    describe_error,
    file_as_input,
    print_error,
)
from handrail.cli.connection import PATIENCE_SECONDS, ensure_database, load_settings, server_url
from handrail.cli.parameters import Argument, Option
from handrail.cli.run_view import stop_lines
from handrail.client.errors import ClientError
from handrail.guard import Guard, GuardedRun
from handrail.guard.errors import StoppedError
from handrail.kernel.definition.limits import StopRules
from handrail.kernel.definition.model import PERSON_LEVELS
from handrail.store.rows import StoreError
from handrail.views.report import RunReport

DryRun = Annotated[
    bool, Option("--dry-run", help="Stop nothing; say what would have been stopped.")
]
RECORDING_ROLE = "operator"
"""The least role that may report a guarded run to a server."""


def guard(
    target: Annotated[
        str,
        Argument(
            metavar="MODULE:OBJECT",
            help="A function, or a team of LangGraph, Strands, OpenAI Agents, Pydantic AI, "
            "AutoGen, Agent Framework or CrewAI.",
        ),
    ],
    input_text: Annotated[
        str, Option("--input", metavar="TEXT", help="The team's input; @FILE reads it.")
    ] = "",
    name: Annotated[str, Option(help="The definition's name; default: MODULE:OBJECT.")] = "",
    rules: Annotated[
        str, Option(metavar="FILE", help="A file with stop rules, or the name of a profile.")
    ] = "",
    dry_run: DryRun = False,
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> int:
    """Run an existing team under guard, unchanged.

    Prints the team's result, and on standard error why it ended. The run is recorded for runs,
    show, report, why and replay; on a server also while it goes on. Exit code 1 if a rule stopped
    it or the team raised an error.
    """
    from handrail.guard.detection import TeamInputError, wrap_team

    with as_input_error(StoreError, ValueError):
        record_url, is_server = _find_record(database, server)
        texts = load_settings()["record_texts"]
        guard = Guard(_read_rules(rules), record=record_url, dry_run=dry_run, record_texts=texts)
        run_team = wrap_team(import_object(target, "team:app", "a team"), guard, name or target)
        team_input = _read_input(input_text)
        _check_record(record_url, is_server=is_server)
    code = 0
    try:
        result = run_team(team_input)
        run = guard.last
    except StoppedError as stop:
        run, result, code = stop.run, stop.partial, EXIT_FAILED
    except TeamInputError as error:
        raise InputError(str(error)) from error
    except Exception as error:  # any error of the user's team
        location = _user_location(error)
        print_error("guard", f"{target} raised {type(error).__name__}: {error} ({location})")
        _print_record_location(guard.last, database, server)
        return EXIT_FAILED
    assert run is not None, "a guarded team has had a run"
    report = run.report()
    if as_json:
        # The result is the team's own, as a text; after a stop, the partial one.
        document = {"run": run.recorded, "result": str(result), "report": report}
        output.print_json(document | ({"would_have": run.would_have} if dry_run else {}))
    else:
        _print_result(result, report)
        _print_dry_run(run)
        _print_record_location(run, database, server)
    return code


def _print_result(result: object, report: RunReport) -> None:
    """Print the team's own result, and why it ended."""
    if result is not None:
        print(output.printable(str(result)))
    output.print_note(report.why)
    for line in stop_lines(report.stop):
        output.print_note(f"  {line}")


def _print_dry_run(run: GuardedRun) -> None:
    if run.dry_run and not run.would_have:
        output.print_note("  dry run: no rule would have stopped it")
    for entry in run.would_have:
        output.print_note(
            f"  dry run: would have stopped at step {entry.step}, {entry.rule}: {entry.reason}"
        )


def _user_location(error: Exception) -> str:
    """Return the location in the user's own code, if the error was there."""
    frames = traceback.extract_tb(error.__traceback__)
    user_frames = [
        frame
        for frame in frames
        if not {"site-packages", "handrail"} & {*Path(frame.filename).parts}
    ]
    last = (user_frames or frames)[-1]
    return f"{Path(last.filename).name}, line {last.lineno}"


def _print_record_location(run: GuardedRun | None, database: str, server: str) -> None:
    if run is not None and run.unrecorded:
        output.print_note(f"  {run.unrecorded} events could not be recorded")
    if run is not None and run.recorded:
        output.print_note(
            f"  recorded as {run.recorded}: "
            f"handrail report {run.recorded}{_record_arguments(database, server)}"
        )


def _record_arguments(database: str, server: str) -> str:
    """Return the options that lead another command to the record; a password is not shown."""
    return "".join(
        f" {option} {shlex.quote(value) if urlsplit(value).password is None else 'URL'}"
        for option, value in (("--database", database), ("--server", server))
        if value
    )


def _find_record(database: str, server: str) -> tuple[str, bool]:
    """Return where the run is recorded, and whether it is a server; else it is a database, which is
    made if it is not there.
    """
    configuration = load_settings(database=database, server=server)
    url = server_url(configuration)
    if not url:
        ensure_database(configuration["database"], create=True)
    return url or configuration["database"], bool(url)


def _check_record(url: str, *, is_server: bool) -> None:
    """Check before the start that the run can be recorded: a team may run for hours."""
    from handrail.client.clients import Client
    from handrail.store.urls import open_store

    if not is_server:
        open_store(url).close()
        return
    try:
        with Client(url, patience=PATIENCE_SECONDS) as client:
            me = client.sessions.get_me()
    except ClientError as error:
        raise InputError(describe_error(error)) from None
    if PERSON_LEVELS.get(me.role, -1) < PERSON_LEVELS[RECORDING_ROLE]:
        raise InputError(
            f"{me.name} ({me.role}) may not record guarded runs; set {TOKEN_VARIABLE} to a token "
            f"of the role {RECORDING_ROLE}"
        )


def _read_rules(rules: str) -> StopRules:
    if not rules:
        return StopRules()
    from handrail.replay.rule_overrides import read_overrides

    fields, problems = read_overrides(read_rules(rules))
    if fields is None:
        raise InputError(f"--rules {rules}: {'; '.join(map(str, problems))}")
    return StopRules(**fields)


def _read_input(text: str) -> str:
    """Return the text, or the content of the file that @ names."""
    if not text.startswith("@"):
        return decode_argument(text)
    with file_as_input(f"--input {text}", "name a file with the team's input"):
        return Path(text[1:]).read_text(encoding="utf-8")
