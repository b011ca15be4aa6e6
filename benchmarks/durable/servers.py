"""A private PostgreSQL for as long as the benchmark runs, and a fresh database for each turn.

It is the one of the tests (`handrail.testing.postgres`), with PostgreSQL's own default of memory,
and answers on a unix socket only. That commits wait for the disk is asked of it, not assumed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.durable.common import MissingError, Postgres
from handrail.testing.postgres import PostgresError, PostgresServer

SETTINGS = {"shared_buffers": "128MB"}
MUST_BE_ON = ("fsync", "synchronous_commit", "full_page_writes")


class Server:
    """Hands out fresh databases."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        with self.connected() as connection:
            for setting in MUST_BE_ON:
                (value,) = connection.execute(f"SHOW {setting}").fetchone()
                if value != "on":
                    raise MissingError(f"PostgreSQL runs with {setting} {value}")
            (self.version,) = connection.execute("SHOW server_version").fetchone()

    def connected(self) -> Any:
        import psycopg

        return psycopg.connect(self.server.url(), autocommit=True)

    @contextmanager
    def database(self) -> Iterator[Postgres]:
        url = self.server.create_database()
        try:
            yield Postgres(url, self.server.pid)
        finally:
            self.server.drop_database(url)
            with self.connected() as connection:
                connection.execute("CHECKPOINT")  # its dirty pages are not the next one's cost


@contextmanager
def postgres() -> Iterator[Server]:
    """Raises MissingError if it is not installed or does not start."""
    server = PostgresServer(settings=SETTINGS)
    try:
        import psycopg  # noqa: F401 - only to see that it is there

        server.start()
    except ModuleNotFoundError as error:
        raise MissingError(f"{error.name} is not installed") from error
    except PostgresError as error:
        raise MissingError(str(error).splitlines()[0]) from error
    try:
        yield Server(server)
    finally:
        server.close()
