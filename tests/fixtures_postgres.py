"""A pytest plugin: a real PostgreSQL for the session, and a fresh database for each test.

Under xdist each worker process has a server of its own; it is started by the first test that asks.
A test that crashes a server should start its own `PostgresServer`; if it does crash the shared one,
the next test finds it started again.
"""

from collections.abc import Iterator

import pytest

from handrail.testing.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server that the tests of this process share."""
    with PostgresServer() as server:
        yield server
        server.crash()  # nobody wants the data, and to write it down in order takes seconds


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database that only this test uses."""
    if not postgres_server.running:
        postgres_server.start()
    url = postgres_server.create_database()
    yield url
    if postgres_server.running:
        postgres_server.drop_database(url)
