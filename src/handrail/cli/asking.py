"""Commands that ask the API: of a server, or of the database itself, in the same words.

With a database, the application that a server would serve runs in this process, on an engine that
only visits: nothing happens by itself because somebody looked. The local user is an admin there,
for whoever has the database has everything.
"""

import asyncio
import getpass
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple

from handrail.cli.database import FAILED, WRONG_INPUT, InputError, complain, look, settings
from handrail.client.clients import TOKEN_VARIABLE, AsyncClient, Client
from handrail.client.errors import ClientError, Unreachable
from handrail.server.configuration import BY_DEFAULT, Configuration
from handrail.store.port import StoreError

PATIENCE = 3.0
"""Seconds that a server which does not answer is tried again; somebody waits for the answer."""
INTERRUPTED = 130
NO_TOKEN = "none"  # noqa: S105 - with a database none is asked for, whatever the environment has
OURS = (429, 500, 502, 503, 504)
"""Answers that say: not now. Every other no is about what was asked."""


class Where(NamedTuple):
    """What was said about where to ask, and how to print; `make`: the database may be made."""

    command: str
    database: str = ""
    server: str = ""
    as_json: bool = False
    make: bool = False


Asker = Callable[[AsyncClient], Awaitable[int | None]]


def ask(where: Where, do: Asker) -> int:
    """Does it and says in one line what went wrong; the exit code."""
    try:
        return asyncio.run(_asked(where, do)) or 0
    except InputError as error:
        complain(where.command, error)
        return WRONG_INPUT
    except ClientError as error:
        complain(where.command, said(error))
        away = isinstance(error, Unreachable) or error.status in OURS
        return FAILED if away else WRONG_INPUT
    except StoreError as error:
        complain(where.command, error)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


async def _asked(where: Where, do: Asker) -> int | None:
    async with speaking(where) as client:
        return await do(client)


@asynccontextmanager
async def speaking(where: Where) -> AsyncGenerator[AsyncClient]:
    """A client of the server or the database that is meant."""
    found = settings(database=where.database, server=where.server)
    server = server_of(found)
    if server:
        async with _client(server, PATIENCE) as client:
            yield client
    else:
        async with _visiting(found, make=where.make) as client:
            yield client


@asynccontextmanager
async def patient(where: Where, client: AsyncClient, seconds: float) -> AsyncGenerator[AsyncClient]:
    """A client of the same server that waits so long for it; a database is there, or it is not."""
    server = server_of(settings(database=where.database, server=where.server))
    if not server:
        yield client
        return
    async with _client(server, seconds) as waiting:
        yield waiting


def _client(server: str, patience: float) -> Client:
    try:
        return Client(server, patience=patience)
    except ValueError as error:  # no address
        raise InputError(str(error)) from error


def server_of(found: Configuration) -> str:
    """The server to ask; empty if it is the database."""
    server, database = found.given["server"], found.given["database"]
    if server.rank == database.rank != BY_DEFAULT:
        told = f"{server.origin} and {database.origin} both say where to look"
        raise InputError(f"{told}; leave one of them out")
    return server.value if server.rank > database.rank else ""


@asynccontextmanager
async def _visiting(found: Configuration, *, make: bool) -> AsyncGenerator[AsyncClient]:
    url = found["database"]
    try:
        look(url, make=make)  # before a second is spent on imports
    except StoreError as error:
        raise InputError(str(error)) from error
    from handrail.engine.opening import open as open_engine
    from handrail.server.access import Caller
    from handrail.server.local import URL, local_transport

    try:
        opening = open_engine(url, settings=found.engine, visit=True)
        engine = await opening.__aenter__()
    except StoreError as error:
        raise InputError(str(error)) from error
    try:
        caller = Caller(name=local_user(), role="admin")
        with _quiet():
            async with (
                local_transport(engine, caller, found.server) as transport,
                Client(URL, NO_TOKEN, transport=transport) as client,
            ):
                yield client
    finally:
        await opening.__aexit__(None, None, None)


@contextmanager
def _quiet() -> Generator[None]:
    """What a server would log is told by the command itself; only a mistake of ours is not."""
    log = logging.getLogger("handrail")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def local_user() -> str:
    """Whoever is at the keyboard, as the system knows them."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "local"


def said(error: ClientError) -> str:
    """What went wrong, without the call that it went wrong in: nobody at a terminal made one."""
    if isinstance(error, Unreachable):
        return error.detail
    detail = error.detail or error.title
    places = [f"{one.path}: {one.message}" for one in error.errors if one.message not in detail]
    told = [detail, *places]
    if error.status == 401 and not os.environ.get(TOKEN_VARIABLE):
        where = "where the server's database is: `handrail token create --database URL`"
        return f"the server wants a token, and {TOKEN_VARIABLE} is not set; make one {where}"
    if error.status == 401:
        told.append(f"set {TOKEN_VARIABLE} to a valid one")
    return "; ".join(told)
