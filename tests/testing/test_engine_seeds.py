"""The simulator's worlds through the real engine on SQLite: the same histories, and all on disk."""

import os

import pytest

from handrail.engine.keeper import Keeper
from handrail.testing.simulate import run_seed, run_seeds
from handrail.testing.through_engine import ON_FILE, SIDE_BY_SIDE, run_group

SEEDS = 2_000 if os.environ.get("HANDRAIL_LONG") else 150


@pytest.mark.heavy
@pytest.mark.requirement("L4.3", "L4.4", "L4.6", "L8.6", "L8.7", "K1", "K2", "K21")
def test_every_seed_has_the_same_history_through_the_engine_as_without():
    through = run_seeds(0, SEEDS, processes=2, through="engine")
    assert through.all_ended, through.table()
    plain = run_seeds(0, SEEDS, processes=2)
    for figure in ("ended", "events", "stretches", "rules", "statuses", "shapes"):
        assert getattr(through, figure) == getattr(plain, figure), figure


def test_each_seed_of_a_group_ends_as_it_does_alone():
    first = SIDE_BY_SIDE * ON_FILE  # a group with a file
    seeds = range(first, first + SIDE_BY_SIDE)
    assert run_group(seeds) == [run_seed(seed) for seed in seeds]


def test_an_engine_that_forgets_is_found_out(monkeypatch: pytest.MonkeyPatch):
    """A write that is said to be on disk, and is not."""
    real = Keeper._written

    async def forgets(self: Keeper, writes):
        if any(write.entry.seq > 10 for write in writes):
            return [True] * len(writes)
        return await real(self, writes)

    monkeypatch.setattr(Keeper, "_written", forgets)
    failures = [result.failure for result in run_group(range(SIDE_BY_SIDE)) if result.failure]
    assert failures
    assert all("the stored run is the run" in failure for failure in failures)
