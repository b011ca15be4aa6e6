"""Which database a command means, and what is said when it cannot be used."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from handrail.cli.words import clean
from handrail.store.port import StoreError
from handrail.store.records import Records
from handrail.store.urls import SQLITE, open_records, sqlite_path

DEFAULT_FILE = Path(".handrail/handrail.db")
DEFAULT_URL = f"sqlite:///{DEFAULT_FILE}"
VARIABLE = "HANDRAIL_DATABASE"
FAILED, WRONG_INPUT = 1, 2


class InputError(Exception):
    """Wrong usage: the message says what is wrong, where, and what to do."""


def database_url(given: str) -> str:
    """As given, else as the environment says, else the one in this folder."""
    return given or os.environ.get(VARIABLE, "") or DEFAULT_URL


@contextmanager
def records(given: str, *, read_only: bool = True, make: bool = False) -> Generator[Records]:
    """The database for as long as a command takes. It has to exist, unless it may be made."""
    url = database_url(given)
    try:
        _look(url, make=make)
        store = open_records(url, read_only=read_only)
    except StoreError as error:
        if make and "malformed" in str(error):
            told = f"{database_url(given)} is too damaged to be opened"
            raise InputError(f"{told}; move it away, and restore again") from error
        raise InputError(str(error)) from error
    try:
        yield store
    finally:
        store.close()


def _look(url: str, *, make: bool) -> None:
    if not url.startswith(SQLITE):
        return
    file = Path(sqlite_path(url))
    if str(file) == ":memory:":
        raise StoreError("a database in memory is gone when its process ends; name a file")
    if make:
        if url == DEFAULT_URL:
            file.parent.mkdir(exist_ok=True)
        return
    if not file.exists():
        raise StoreError(f"there is no database {file}; name one with --database or {VARIABLE}")


def complain(command: str, error: Exception) -> None:
    """One line on standard error."""
    told = " ".join(clean(str(error)).split())
    print(f"handrail {command}: {told}", file=sys.stderr)
