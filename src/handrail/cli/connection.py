"""Open what a command works on: a client of the API, or the database, as the settings name it.

A client is one of a server, or of the database itself, in the same way: with a database, the
application that a server would serve runs in this process, on an engine without maintenance, so
that looking changes nothing. The local user is an admin there, because access to the database is
access to everything.
"""

import getpass
import logging
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from handrail.cli.command import InputError, as_input_error
from handrail.store.rows import StoreError

if TYPE_CHECKING:
    from handrail.client.clients import AsyncClient
    from handrail.server.settings import Configuration
    from handrail.store.maintenance import MaintenanceStore

DATABASE_VARIABLE = "HANDRAIL_DATABASE"


def load_settings(**flags: object) -> "Configuration":
    """Load all settings of this process; an empty flag counts as absent."""
    from handrail.server.settings import BadSettingError, load_configuration

    with as_input_error(BadSettingError):
        return load_configuration(
            os.environ,
            Path.cwd(),
            {name: value for name, value in flags.items() if value not in (None, "")},
        )


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
    from handrail.server.settings import DATABASE_DEFAULT
    from handrail.store.urls import SQLITE_PREFIX, sqlite_path

    if not url.startswith(SQLITE_PREFIX):
        return
    file = Path(sqlite_path(url))
    if str(file) == ":memory:":
        raise StoreError("a database in memory is gone when its process ends; name a file")
    if create and url == DATABASE_DEFAULT:
        try:
            file.parent.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"the folder {file.parent} cannot be made here: {error.strerror}; name a database "
                f"with --database or {DATABASE_VARIABLE}"
            ) from error
    elif not create and not file.exists():
        hint = "`handrail serve` makes one here; else " if url == DATABASE_DEFAULT else ""
        raise StoreError(
            f"there is no database {file}; {hint}name one with --database or {DATABASE_VARIABLE}"
        )


PATIENCE_SECONDS = 3.0
"""How long an unreachable server is retried; a person waits for the answer."""
NO_TOKEN = "none"  # noqa: S105 - with a database none is asked for, whatever the environment has


@asynccontextmanager
async def open_client(
    database: str, server: str, *, create: bool = False, patience: float | None = None
) -> AsyncGenerator["AsyncClient"]:
    """Open a client of the server or the database that is meant; `create`: the database may be
    created.
    """
    configuration = load_settings(database=database, server=server)
    url = server_url(configuration)
    if not url:
        async with _open_local_client(configuration, create=create) as client:
            yield client
        return
    from handrail.client.clients import Client

    with as_input_error(ValueError):  # not an address
        server_client = Client(url, patience=PATIENCE_SECONDS if patience is None else patience)
    async with server_client as client:
        yield client


def server_url(configuration: "Configuration") -> str:
    """Return the server to call; empty if it is the database."""
    from handrail.server.settings import RANK_DEFAULT

    server, database = configuration.values["server"], configuration.values["database"]
    if server.rank == database.rank != RANK_DEFAULT:
        raise InputError(f"{server.origin} and {database.origin} are both set; remove one of them")
    return server.value if server.rank > database.rank else ""


@asynccontextmanager
async def _open_local_client(
    configuration: "Configuration", *, create: bool
) -> AsyncGenerator["AsyncClient"]:
    url = configuration["database"]
    with as_input_error(StoreError):
        ensure_database(url, create=create)  # before a second is spent on imports
    from handrail.client.clients import Client
    from handrail.engine.opening import open as open_engine
    from handrail.server.access import Caller
    from handrail.server.local_transport import LOCAL_URL, open_local_transport

    async with AsyncExitStack() as stack:
        with as_input_error(StoreError):
            engine = await stack.enter_async_context(
                open_engine(url, settings=configuration.engine, visit=True)
            )
        stack.enter_context(_log_errors_only())
        caller = Caller(name=local_user(), role="admin")
        transport = await stack.enter_async_context(
            open_local_transport(engine, caller, configuration.server)
        )
        yield await stack.enter_async_context(Client(LOCAL_URL, NO_TOKEN, transport=transport))


@contextmanager
def _log_errors_only() -> Generator[None]:
    """Log errors only: the command itself prints what a server would log, except our own
    mistakes.
    """
    log = logging.getLogger("handrail")
    level_before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level_before)


def local_user() -> str:
    """Return the name of the user at the keyboard, as the system knows it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "local"
