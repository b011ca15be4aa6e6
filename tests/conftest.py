"""What all tests share: examples are the same on every machine, and new ones in the long form."""

import gc
import os
import sys

import pytest
from hypothesis import settings
from tests.applications import keep

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
    it again after every few tests. Servers of tests have the applications of those before them."""
    if server := sys.modules.get("handrail.server.app"):
        keep(server)
    gc.collect()
    gc.freeze()
