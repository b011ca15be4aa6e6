"""`handrail guard MODULE:OBJECT`: somebody's own team, run under guard as it is."""

import shlex
import traceback
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from handrail.cli import tables, words
from handrail.cli.asking import PATIENCE, said, server_of
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
from handrail.client.clients import TOKEN_VARIABLE, Client
from handrail.client.errors import ClientError
from handrail.guard import Guard, GuardedRun
from handrail.guard.anything import WrongInputError, around
from handrail.guard.errors import Stopped
from handrail.kernel.definition import LEVELS, StopRules
from handrail.kernel.other_rules import read_given
from handrail.kernel.report import Report
from handrail.kernel.shown import Shown
from handrail.store.port import StoreError
from handrail.store.urls import open_store

TELLS = "operator"
"""The least role that may tell a server of a guarded run."""


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
        where, is_server = _record(wanted)
        guard = Guard(_rules(wanted.rules), record=where)
        team = imported(wanted.target, "team:app", "a team")
        start = around(team, guard, wanted.name or wanted.target)
        given = _input(wanted.given)
        (_ask_server if is_server else _open_database)(where)
    except (InputError, StoreError, ValueError) as error:
        complain("guard", error)
        return WRONG_INPUT
    try:
        result = start(given)
    except Stopped as stop:
        _tell(wanted, stop.run, stop.partial, as_json=as_json)
        return FAILED
    except WrongInputError as error:
        complain("guard", error)
        return WRONG_INPUT
    except Exception as error:  # whatever somebody's team raises
        raised = f"{type(error).__name__}: {error}"
        complain("guard", f"{wanted.target} raised {raised} ({_where(error)})")
        if guard.last is not None:
            _tell_record(wanted, guard.last)
        return FAILED
    _tell(wanted, guard.last, result, as_json=as_json)
    return 0


def _tell(wanted: Wanted, run: GuardedRun | None, result: object, *, as_json: bool) -> None:
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
    _tell_record(wanted, run)


def _where(error: Exception) -> str:
    """Where in somebody's own code, if it was there."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if not {"site-packages", "handrail"} & {*Path(one.filename).parts}]
    last = (own or frames)[-1]
    return f"{Path(last.filename).name}, line {last.lineno}"


def _tell_record(wanted: Wanted, run: GuardedRun) -> None:
    if run.unrecorded:
        tables.note(f"  {run.unrecorded} events of it could not be recorded")
    if run.recorded:
        look_at = f"handrail report {run.recorded}{_there(wanted)}"
        tables.note(f"  on record as {run.recorded}: {look_at}")


def _there(wanted: Wanted) -> str:
    """The options that lead another command to the record; a password is not shown."""
    named = (("--database", wanted.database), ("--server", wanted.server))
    return "".join(
        f" {option} {shlex.quote(value) if urlsplit(value).password is None else 'URL'}"
        for option, value in named
        if value
    )


def _record(wanted: Wanted) -> tuple[str, bool]:
    """Where the run is recorded, and whether it is a server; else it is a database, which is made
    if it is not there."""
    found = settings(database=wanted.database, server=wanted.server)
    server = server_of(found)
    if not server:
        look(found["database"], make=True)
    return server or found["database"], bool(server)


def _open_database(url: str) -> None:
    """A team may run for hours: that nothing can be recorded is found out before it does."""
    open_store(url).close()


def _ask_server(url: str) -> None:
    """Likewise. Raises `InputError`."""
    try:
        with Client(url, patience=PATIENCE) as client:
            me = client.me()
    except ClientError as error:
        raise InputError(said(error)) from None
    if LEVELS.get(me.role, -1) < LEVELS[TELLS]:
        told = f"{me.name} ({me.role}) may not record guarded runs"
        raise InputError(f"{told}; set {TOKEN_VARIABLE} to a token of the role {TELLS}")


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
