"""A primary and its standby, shared by the tests of a process. A test may do to them what it likes:
the next one finds them healed, with a database of its own."""

from collections.abc import Iterator

import pytest
from tests.failover.replicated_database import Pair

from handrail.testing.replica import Replica


@pytest.fixture(scope="session")
def replicas() -> Iterator[Pair]:
    with Replica(tcp=True) as first, Replica(tcp=True) as second:
        first.start()
        yield Pair(first, second)
        first.kill()
        second.kill()


@pytest.fixture
def pair(replicas: Pair) -> Pair:
    replicas.heal()
    return replicas
