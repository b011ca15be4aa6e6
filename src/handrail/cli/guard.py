"""`handrail guard MODULE:OBJECT`: somebody's own team, run under guard as it is."""

from pathlib import Path
from typing import NamedTuple

from handrail.cli import tables, words
from handrail.cli.asking import server_of
from handrail.cli.database import (
    FAILED,
    WRONG_INPUT,
    InputError,
    complain,
    look,
    settings,
)
from handrail.cli.replay import rules_of
from handrail.cli.why import stopped
from handrail.cli.worker import imported
from handrail.guard import Guard, GuardedRun
from handrail.guard.anything import around
from handrail.guard.errors import Stopped
from handrail.kernel.definition import StopRules
from handrail.kernel.other_rules import read_given
from handrail.kernel.report import Report
from handrail.kernel.shown import Shown
from handrail.store.port import StoreError


class Guarded(Shown):
    """What --json prints. `result` is the team's own, as a text; after a stop, what there is."""

    run: str
    result: str
    report: Report


class Wanted(NamedTuple):
    """The command's options as given."""

    target: str
    given: str
    name: str = ""
    rules: str = ""
    database: str = ""
    server: str = ""


def guard_team(wanted: Wanted, *, as_json: bool) -> int:
    """Runs and prints; the exit code."""
    try:
        guard = Guard(_rules(wanted.rules), record=_record(wanted))
        team = imported(wanted.target, "team:app", "a team")
        start = around(team, guard, wanted.name or wanted.target)
        given = _input(wanted.given)
    except (InputError, StoreError, ValueError) as error:
        complain("guard", error)
        return WRONG_INPUT
    try:
        result = start(given)
    except Stopped as stop:
        _tell(stop.run, stop.partial, as_json=as_json)
        return FAILED
    except Exception as error:  # whatever somebody's team raises
        complain("guard", f"{wanted.target} raised {type(error).__name__}: {error}")
        return FAILED
    _tell(guard.last, result, as_json=as_json)
    return 0


def _tell(run: GuardedRun | None, result: object, *, as_json: bool) -> None:
    """The team's own result, why it ended, and where it is on record."""
    assert run is not None, "a guarded team has had a run"
    report = run.report()
    if as_json:
        tables.print_json(Guarded(run=run.recorded, result=str(result), report=report))
        return
    if result is not None:
        print(words.clean(str(result)))
    tables.note(words.clean(report.why))
    for line in stopped(report.stop):
        tables.note(f"  {words.clean(line)}")
    if run.unrecorded:
        tables.note(f"  {run.unrecorded} events of it could not be recorded")
    if run.recorded:
        tables.note(f"  on record as {run.recorded}: handrail report {run.recorded}")


def _record(wanted: Wanted) -> str:
    """Where the run is recorded: a server, or a database, which is made if it is not there."""
    found = settings(database=wanted.database, server=wanted.server)
    server = server_of(found)
    if not server:
        look(found["database"], make=True)
    return server or found["database"]


def _rules(given: str) -> StopRules:
    if not given:
        return StopRules()
    fields, problems = read_given(rules_of(given))
    if fields is None:
        raise InputError(f"--rules {given}: {'; '.join(map(str, problems))}")
    return StopRules(**fields)


def _input(given: str) -> str:
    """The text, or what is in the file that @ names."""
    if not given.startswith("@"):
        return words.typed(given)
    try:
        return Path(given[1:]).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"--input {given}: {why}; name a file with the team's input") from None
