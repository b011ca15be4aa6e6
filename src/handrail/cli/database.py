"""Find the database that a command means, and explain when it cannot be used."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from handrail.cli.command import InputError, as_input_error
from handrail.store.rows import StoreError

if TYPE_CHECKING:
    from handrail.server.configuration import Configuration
    from handrail.store.maintenance import MaintenanceStore

DATABASE_VARIABLE = "HANDRAIL_DATABASE"


def load_settings(**flags: object) -> "Configuration":
    """Load all settings of this process; an empty flag counts as absent."""
    from handrail.server.configuration import BadSettingError, load_configuration

    set_flags = {name: value for name, value in flags.items() if value not in (None, "")}
    with as_input_error(BadSettingError):
        return load_configuration(os.environ, Path.cwd(), set_flags)


@contextmanager
def open_database(
    database: str, *, read_only: bool = True, create: bool = False
) -> Generator["MaintenanceStore"]:
    """Open the database for the time of a command. It has to exist, unless it may be made."""
    from handrail.store.urls import open_maintenance_store

    url = load_settings(database=database)["database"]
    try:
        ensure_database(url, create=create)
        store = open_maintenance_store(url, read_only=read_only)
    except StoreError as error:
        damaged = f"{url} is too damaged to be opened; move it away, and restore again"
        is_damaged = create and "malformed" in str(error)
        raise InputError(damaged if is_damaged else str(error)) from error
    try:
        yield store
    finally:
        store.close()


def ensure_database(url: str, *, create: bool) -> None:
    """Check that there is such a database, as far as that shows without opening it."""
    from handrail.server.setting_table import DATABASE_DEFAULT
    from handrail.store.urls import SQLITE_PREFIX, sqlite_path

    if not url.startswith(SQLITE_PREFIX):
        return
    file = Path(sqlite_path(url))
    if str(file) == ":memory:":
        raise StoreError("a database in memory is gone when its process ends; name a file")
    if create and url == DATABASE_DEFAULT:
        _make_folder(file.parent)
    elif not create and not file.exists():
        hint = "`handrail serve` makes one here; else " if url == DATABASE_DEFAULT else ""
        message = (
            f"there is no database {file}; {hint}name one with --database or {DATABASE_VARIABLE}"
        )
        raise StoreError(message)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        message = f"the folder {folder} cannot be made here: {error.strerror}"
        raise StoreError(
            f"{message}; name a database with --database or {DATABASE_VARIABLE}"
        ) from error
