"""Which database a command means, and what is said when it cannot be used."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from handrail.cli.words import clean
from handrail.server.configuration import BadSetting, Configuration, configured
from handrail.server.setting_table import DATABASE, NAMED
from handrail.store.port import StoreError
from handrail.store.records import Records
from handrail.store.urls import SQLITE, open_records, sqlite_path

DEFAULT_FILE = Path(sqlite_path(DATABASE))
VARIABLE = NAMED["database"].variable
FAILED, WRONG_INPUT = 1, 2


class InputError(Exception):
    """Wrong usage: the message says what is wrong, where, and what to do."""


def settings(**flags: object) -> Configuration:
    """All settings as this process finds them; a flag that is empty was not given."""
    given = {name: value for name, value in flags.items() if value not in (None, "")}
    try:
        return configured(os.environ, Path.cwd(), given)
    except BadSetting as error:
        raise InputError(str(error)) from error


@contextmanager
def records(given: str, *, read_only: bool = True, make: bool = False) -> Generator[Records]:
    """The database for as long as a command takes. It has to exist, unless it may be made."""
    url = settings(database=given)["database"]
    try:
        look(url, make=make)
        store = open_records(url, read_only=read_only)
    except StoreError as error:
        if make and "malformed" in str(error):
            told = f"{url} is too damaged to be opened"
            raise InputError(f"{told}; move it away, and restore again") from error
        raise InputError(str(error)) from error
    try:
        yield store
    finally:
        store.close()


def look(url: str, *, make: bool) -> None:
    """Whether there is such a database, as far as one can tell without opening it."""
    if not url.startswith(SQLITE):
        return
    file = Path(sqlite_path(url))
    if str(file) == ":memory:":
        raise StoreError("a database in memory is gone when its process ends; name a file")
    if make:
        if url == DATABASE:
            _make(file.parent)
        return
    if not file.exists():
        here = "`handrail serve` makes one here; else " if url == DATABASE else ""
        told = f"there is no database {file}; {here}name one with --database or {VARIABLE}"
        raise StoreError(told)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        told = f"the folder {folder} cannot be made here: {error.strerror}"
        raise StoreError(f"{told}; name a database with --database or {VARIABLE}") from error


def complain(command: str, error: Exception | str) -> None:
    """One line on standard error."""
    told = " ".join(clean(str(error)).split())
    print(f"handrail {command}: {told}", file=sys.stderr)
