"""What all tests share: examples are the same on every machine, and new ones in the long form."""

import gc
import os

import pytest
from hypothesis import settings

pytest.register_assert_rewrite(
    "handrail.testing.conformance_commits",
    "handrail.testing.conformance_store",
    "handrail.testing.conformance_rows",
    "handrail.testing.row_factories",
)
settings.register_profile("same", derandomize=True, database=None)
settings.register_profile("new", derandomize=False)
settings.load_profile("new" if os.environ.get("HANDRAIL_LONG") else "same")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What was imported and collected is there to the end: the garbage collector need not look at
    it again after every few tests."""
    gc.collect()
    gc.freeze()
