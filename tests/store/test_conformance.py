"""The conformance suite over every store that is shipped."""

from collections.abc import Callable, Iterator

import pytest

from handrail.store.office import Office
from handrail.store.postgres.office import PostgresOffice
from handrail.store.sqlite.office import SqliteOffice
from handrail.testing.conformance import SharedStoreConformance, StoreConformance
from handrail.testing.conformance_channels import ChannelConformance
from handrail.testing.conformance_office import OfficeConformance

pytest_plugins = ["tests.fixtures_postgres"]

proves = pytest.mark.requirement
proves("L4.1")(StoreConformance.test_definitions_are_found_by_id_and_version_and_name)
proves("L4.1")(StoreConformance.test_a_version_of_a_definition_never_changes)
proves("L12.1")(StoreConformance.test_runs_are_listed_by_id_in_pages_and_by_bead_and_status)


class TestSqliteFile(StoreConformance, OfficeConformance, ChannelConformance):
    """Two connections to one file, as two processes would have."""

    @pytest.fixture
    def store(self, database: str) -> Iterator[Office]:
        store = SqliteOffice(database)
        yield store
        store.close()

    @pytest.fixture
    def second(self, database: str, store: Office) -> Iterator[Office]:
        second = SqliteOffice(database)
        yield second
        second.close()


class TestPostgres(SharedStoreConformance, OfficeConformance, ChannelConformance):
    """Two connections to one database, as two engines on two machines have."""

    @pytest.fixture
    def url(self, emptied: Callable[[], str]) -> str:
        return emptied()

    @pytest.fixture
    def store(self, url: str) -> Iterator[Office]:
        store = PostgresOffice(url)
        yield store
        store.close()

    @pytest.fixture
    def second(self, url: str, store: Office) -> Iterator[Office]:
        second = PostgresOffice(url)
        yield second
        second.close()


class TestSqliteInMemory(StoreConformance, OfficeConformance, ChannelConformance):
    """It dies with its connection, so there is only the one."""

    @pytest.fixture
    def store(self) -> Iterator[Office]:
        store = SqliteOffice(":memory:")
        yield store
        store.close()

    @pytest.fixture
    def second(self, store: Office) -> Office:
        return store

    def test_a_connection_hears_that_another_has_written(
        self, store: Office, second: Office
    ) -> None:
        """There is no other one."""
        assert store is second
        assert store.left_behind() == []
