"""Two thousand simulated runs (ten thousand in the long form): each ends within its bounds."""

import os

import pytest

from handrail.testing.simulator import run_seeds

SEEDS = 10_000 if os.environ.get("HANDRAIL_LONG") else 2_000


@pytest.mark.heavy
@pytest.mark.requirement("S15", "K1", "K2", "K14", "K15", "K16", "K20", "K21", "K26", "K27")
def test_every_simulated_run_ends_and_breaks_no_rule():
    summary = run_seeds(0, SEEDS, processes=2)
    assert summary.all_ended, summary.table()
    assert len(summary.rules) >= 12, summary.rules
    assert len(summary.statuses) == 5, summary.statuses
