"""`handrail guard MODULE:OBJECT`: run the user's own team under guard, as it is."""

import shlex
import traceback
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from handrail.cli import formatting, output
from handrail.cli.api import PATIENCE_SECONDS, describe_error, server_url
from handrail.cli.database import (
    EXIT_FAILED,
    EXIT_WRONG_INPUT,
    InputError,
    ensure_database,
    load_settings,
    print_error,
)
from handrail.cli.replay import read_rules
from handrail.cli.why import stop_lines
from handrail.cli.worker import import_object
from handrail.client.clients import TOKEN_VARIABLE, Client
from handrail.client.errors import ClientError
from handrail.guard import Guard, GuardedRun
from handrail.guard.detection import TeamInputError, wrap_team
from handrail.guard.errors import StoppedError
from handrail.kernel.definition.model import PERSON_LEVELS, StopRules
from handrail.replay.rule_overrides import read_overrides
from handrail.store.engine_store import StoreError
from handrail.store.urls import open_store
from handrail.views.report import RunReport
from handrail.views.view_types import View

RECORDING_ROLE = "operator"
"""The least role that may report a guarded run to a server."""


class GuardOutput(View):
    """The output of --json. `result` is the team's own, as a text; after a stop, the partial
    one.
    """

    run: str
    result: str
    report: RunReport


class GuardOptions(NamedTuple):
    """The command's options as given."""

    target: str
    input_text: str
    name: str = ""
    rules: str = ""
    database: str = ""
    server: str = ""


def guard_team(options: GuardOptions, *, as_json: bool) -> int:
    """Run and print; return the exit code."""
    try:
        record_url, is_server = _record_target(options)
        guard = Guard(_read_rules(options.rules), record=record_url)
        team = import_object(options.target, "team:app", "a team")
        run_team = wrap_team(team, guard, options.name or options.target)
        team_input = _read_input(options.input_text)
        (_check_server_access if is_server else _check_database)(record_url)
    except (InputError, StoreError, ValueError) as error:
        print_error("guard", error)
        return EXIT_WRONG_INPUT
    try:
        result = run_team(team_input)
    except StoppedError as stop:
        _print_result(options, stop.run, stop.partial, as_json=as_json)
        return EXIT_FAILED
    except TeamInputError as error:
        print_error("guard", error)
        return EXIT_WRONG_INPUT
    except Exception as error:  # any error of the user's team
        error_text = f"{type(error).__name__}: {error}"
        print_error("guard", f"{options.target} raised {error_text} ({_user_location(error)})")
        if guard.last is not None:
            _print_record_location(options, guard.last)
        return EXIT_FAILED
    _print_result(options, guard.last, result, as_json=as_json)
    return 0


def _print_result(
    options: GuardOptions, run: GuardedRun | None, result: object, *, as_json: bool
) -> None:
    """Print the team's own result, why it ended, and where it is on record."""
    assert run is not None, "a guarded team has had a run"
    report = run.report()
    if as_json:
        output.print_json(GuardOutput(run=run.recorded, result=str(result), report=report))
        return
    if result is not None:
        print(formatting.printable(str(result)))
    output.print_note(formatting.printable(report.why))
    for line in stop_lines(report.stop):
        output.print_note(f"  {formatting.printable(line)}")
    _print_record_location(options, run)


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


def _print_record_location(options: GuardOptions, run: GuardedRun) -> None:
    if run.unrecorded:
        output.print_note(f"  {run.unrecorded} events of it could not be recorded")
    if run.recorded:
        command = f"handrail report {run.recorded}{_record_arguments(options)}"
        output.print_note(f"  on record as {run.recorded}: {command}")


def _record_arguments(options: GuardOptions) -> str:
    """Return the options that lead another command to the record; a password is not shown."""
    options_given = (("--database", options.database), ("--server", options.server))
    return "".join(
        f" {option} {shlex.quote(value) if urlsplit(value).password is None else 'URL'}"
        for option, value in options_given
        if value
    )


def _record_target(options: GuardOptions) -> tuple[str, bool]:
    """Return where the run is recorded, and whether it is a server; else it is a database, which is
    made if it is not there.
    """
    configuration = load_settings(database=options.database, server=options.server)
    server = server_url(configuration)
    if not server:
        ensure_database(configuration["database"], create=True)
    return server or configuration["database"], bool(server)


def _check_database(url: str) -> None:
    """Check before the start that the run can be recorded: a team may run for hours."""
    open_store(url).close()


def _check_server_access(url: str) -> None:
    """Check the server's access likewise. Raises `InputError`."""
    try:
        with Client(url, patience=PATIENCE_SECONDS) as client:
            me = client.get_me()
    except ClientError as error:
        raise InputError(describe_error(error)) from None
    if PERSON_LEVELS.get(me.role, -1) < PERSON_LEVELS[RECORDING_ROLE]:
        message = f"{me.name} ({me.role}) may not record guarded runs"
        raise InputError(f"{message}; set {TOKEN_VARIABLE} to a token of the role {RECORDING_ROLE}")


def _read_rules(rules: str) -> StopRules:
    if not rules:
        return StopRules()
    fields, problems = read_overrides(read_rules(rules))
    if fields is None:
        raise InputError(f"--rules {rules}: {'; '.join(map(str, problems))}")
    return StopRules(**fields)


def _read_input(text: str) -> str:
    """Return the text, or the content of the file that @ names."""
    if not text.startswith("@"):
        return formatting.decode_argument(text)
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"--input {text}: {reason}; name a file with the team's input") from None
