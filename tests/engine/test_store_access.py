"""How services reach the store of an engine that has failed."""

import asyncio

import pytest

from handrail.engine.environment import StoreAccess
from handrail.store.rows import CommitOutcomeUnknownError, StoreError
from handrail.store.urls import open_store


def raise_error(error: Exception) -> None:
    raise error


async def call_in_failed_engine(error: Exception) -> None:
    access = StoreAccess(open_store("sqlite://"))
    access.failure = RuntimeError("a loop died")
    try:
        await access.call(raise_error, error)
    finally:
        access.close()


def test_a_failed_engine_is_a_better_explanation_than_its_store() -> None:
    with pytest.raises(StoreError, match="the engine has failed: a loop died"):
        asyncio.run(call_in_failed_engine(StoreError("no connection")))


def test_a_commit_that_may_be_on_disk_stays_one_when_the_engine_has_failed() -> None:
    with pytest.raises(CommitOutcomeUnknownError, match="broke"):
        asyncio.run(call_in_failed_engine(CommitOutcomeUnknownError("broke")))
