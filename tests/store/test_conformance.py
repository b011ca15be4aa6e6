"""The conformance suite over every store that is shipped."""

from collections.abc import Callable, Iterator

import pytest

from handrail.store.postgres.store import PostgresStore
from handrail.store.sqlite.store import SqliteStore
from handrail.store.store import Store
from handrail.testing.conformance_channels import ChannelConformance
from handrail.testing.conformance_commits import CommitConformance, SharedEngineStoreConformance
from handrail.testing.conformance_notifications import NotificationsConformance
from handrail.testing.conformance_rows import EngineRowsConformance
from handrail.testing.conformance_store import ListsConformance, SmallWritesConformance
from handrail.testing.conformance_ticket_memory import TicketMemoryConformance

pytest_plugins = ["tests.fixtures_postgres"]

proves = pytest.mark.requirement
proves("L4.1")(EngineRowsConformance.test_definitions_are_found_by_id_and_version_and_name)
proves("L4.1")(EngineRowsConformance.test_a_version_of_a_definition_never_changes)
proves("L12.1")(CommitConformance.test_runs_are_listed_by_id_in_pages_and_by_bead_and_status)


class EverySuite(
    CommitConformance,
    EngineRowsConformance,
    ListsConformance,
    SmallWritesConformance,
    NotificationsConformance,
    TicketMemoryConformance,
    ChannelConformance,
):
    """All suites that every store must pass."""


class TestSqliteFile(EverySuite):
    """Two connections to one file, as two processes would have."""

    @pytest.fixture
    def store(self, database: str) -> Iterator[Store]:
        store = SqliteStore(database)
        yield store
        store.close()

    @pytest.fixture
    def second(self, database: str, store: Store) -> Iterator[Store]:
        second = SqliteStore(database)
        yield second
        second.close()


class TestPostgres(EverySuite, SharedEngineStoreConformance):
    """Two connections to one database, as two engines on two machines have."""

    @pytest.fixture
    def url(self, emptied: Callable[[], str]) -> str:
        return emptied()

    @pytest.fixture
    def store(self, url: str) -> Iterator[Store]:
        store = PostgresStore(url)
        yield store
        store.close()

    @pytest.fixture
    def second(self, url: str, store: Store) -> Iterator[Store]:
        second = PostgresStore(url)
        yield second
        second.close()


class TestSqliteInMemory(EverySuite):
    """It dies with its connection, so there is only the one."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        store = SqliteStore(":memory:")
        yield store
        store.close()

    @pytest.fixture
    def second(self, store: Store) -> Store:
        return store

    def test_a_connection_hears_that_another_has_written(self, store: Store, second: Store) -> None:
        """There is no other one."""
        assert store is second
        assert store.engines.find_dead() == []
