"""Open a client of the API for a command: of a server, or of the database itself, in the same way.

With a database, the application that a server would serve runs in this process, on an engine
without maintenance: looking changes nothing. The local user is an admin there, because access to
the database is access to everything.
"""

import getpass
import logging
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from handrail.cli.command import InputError, as_input_error
from handrail.cli.database import ensure_database, load_settings
from handrail.store.rows import StoreError

if TYPE_CHECKING:
    from handrail.client.clients import AsyncClient
    from handrail.server.configuration import Configuration

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
    from handrail.server.configuration import RANK_DEFAULT

    server, database = configuration.values["server"], configuration.values["database"]
    if server.rank == database.rank != RANK_DEFAULT:
        message = f"{server.origin} and {database.origin} are both set"
        raise InputError(f"{message}; remove one of them")
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
