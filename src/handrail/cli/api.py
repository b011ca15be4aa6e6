"""Call the API from commands: of a server, or of the database itself, in the same way.

With a database, the application that a server would serve runs in this process, on an engine
without maintenance: looking changes nothing. The local user is an admin there, because access to
the database is access to everything.
"""

import asyncio
import getpass
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple

from handrail.cli.database import (
    EXIT_FAILED,
    EXIT_WRONG_INPUT,
    InputError,
    ensure_database,
    load_settings,
    print_error,
)
from handrail.client.clients import TOKEN_VARIABLE, AsyncClient, Client
from handrail.client.errors import ClientError, UnreachableError
from handrail.server.configuration import RANK_DEFAULT, Configuration
from handrail.store.engine_store import StoreError

PATIENCE_SECONDS = 3.0
"""How long an unreachable server is retried; a person waits for the answer."""
EXIT_INTERRUPTED = 130
NO_TOKEN = "none"  # noqa: S105 - with a database none is asked for, whatever the environment has
RETRY_LATER_STATUSES = (429, 500, 502, 503, 504)
"""Statuses that mean: not now. Every other refusal is about the request."""


class ApiTarget(NamedTuple):
    """Which API to call, and how to print; `create`: the database may be created."""

    command: str
    database: str = ""
    server: str = ""
    as_json: bool = False
    create: bool = False


ApiFunction = Callable[[AsyncClient], Awaitable[int | None]]


def call_api(target: ApiTarget, function: ApiFunction) -> int:
    """Call the function, print errors in one line, and return the exit code."""
    try:
        return asyncio.run(_call_with_client(target, function)) or 0
    except InputError as error:
        print_error(target.command, error)
        return EXIT_WRONG_INPUT
    except ClientError as error:
        print_error(target.command, describe_error(error))
        is_unavailable = isinstance(error, UnreachableError) or error.status in RETRY_LATER_STATUSES
        return EXIT_FAILED if is_unavailable else EXIT_WRONG_INPUT
    except StoreError as error:
        print_error(target.command, error)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


async def _call_with_client(target: ApiTarget, function: ApiFunction) -> int | None:
    async with open_client(target) as client:
        return await function(client)


@asynccontextmanager
async def open_client(target: ApiTarget) -> AsyncGenerator[AsyncClient]:
    """Open a client of the server or the database that is meant."""
    configuration = load_settings(database=target.database, server=target.server)
    server = server_url(configuration)
    if server:
        async with _make_client(server, PATIENCE_SECONDS) as client:
            yield client
    else:
        async with _open_local_client(configuration, create=target.create) as client:
            yield client


@asynccontextmanager
async def open_patient_client(
    target: ApiTarget, client: AsyncClient, seconds: float
) -> AsyncGenerator[AsyncClient]:
    """Open a client that waits longer for the same server; a database exists, or it does not."""
    server = server_url(load_settings(database=target.database, server=target.server))
    if not server:
        yield client
        return
    async with _make_client(server, seconds) as patient_client:
        yield patient_client


def _make_client(server: str, patience: float) -> Client:
    try:
        return Client(server, patience=patience)
    except ValueError as error:  # not an address
        raise InputError(str(error)) from error


def server_url(configuration: Configuration) -> str:
    """Return the server to call; empty if it is the database."""
    server, database = configuration.values["server"], configuration.values["database"]
    if server.rank == database.rank != RANK_DEFAULT:
        message = f"{server.origin} and {database.origin} both say where to look"
        raise InputError(f"{message}; leave one of them out")
    return server.value if server.rank > database.rank else ""


@asynccontextmanager
async def _open_local_client(
    configuration: Configuration, *, create: bool
) -> AsyncGenerator[AsyncClient]:
    url = configuration["database"]
    try:
        ensure_database(url, create=create)  # before a second is spent on imports
    except StoreError as error:
        raise InputError(str(error)) from error
    from handrail.engine.opening import open as open_engine
    from handrail.server.access import Caller
    from handrail.server.local_transport import LOCAL_URL, open_local_transport

    try:
        engine_context = open_engine(url, settings=configuration.engine, visit=True)
        engine = await engine_context.__aenter__()
    except StoreError as error:
        raise InputError(str(error)) from error
    try:
        caller = Caller(name=local_user(), role="admin")
        with _log_errors_only():
            async with (
                open_local_transport(engine, caller, configuration.server) as transport,
                Client(LOCAL_URL, NO_TOKEN, transport=transport) as client,
            ):
                yield client
    finally:
        await engine_context.__aexit__(None, None, None)


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


def describe_error(error: ClientError) -> str:
    """Describe the error without the API call in which it occurred: the user made none."""
    if isinstance(error, UnreachableError):
        return error.detail
    detail = error.detail or error.title
    field_errors = [
        f"{error_item.path}: {error_item.message}"
        for error_item in error.errors
        if error_item.message not in detail
    ]
    parts = [detail, *field_errors]
    if error.status == 401 and not os.environ.get(TOKEN_VARIABLE):
        how = "where the server's database is: `handrail token create --database URL`"
        return f"the server wants a token, and {TOKEN_VARIABLE} is not set; make one {how}"
    if error.status == 401:
        parts.append(f"set {TOKEN_VARIABLE} to a valid one")
    return "; ".join(parts)
