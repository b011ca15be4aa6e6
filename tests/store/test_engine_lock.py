"""Who is alone on a file, and who is dead: the lock that every engine holds."""

import os

import pytest

from handrail.store.rows import StoreError
from handrail.store.sqlite.database import lock_engines


def test_a_look_at_who_is_there_that_fails_gives_the_lock_back(database: str):
    def fails() -> list[str]:
        raise StoreError("the disk says no")

    with pytest.raises(StoreError, match="the disk says no"):
        lock_engines(database, fails)
    descriptor, dead = lock_engines(database, list)
    os.close(descriptor)
    assert dead == []
