"""The simulator's worlds through the real engine on SQLite: the same histories, and all on disk."""

import os

import pytest

from handrail.engine.commit.committer import GroupCommitter
from handrail.testing.engine_simulation import GROUPS_PER_FILE_DATABASE, SEEDS_PER_ENGINE, run_group
from handrail.testing.simulator import run_seed, run_seeds, summarize

SEEDS = 2_000 if os.environ.get("HANDRAIL_LONG") else 150


@pytest.mark.heavy
@pytest.mark.requirement("L4.3", "L4.4", "L4.6", "L8.6", "L8.7", "K1", "K2", "K21")
def test_every_seed_has_the_same_history_through_the_engine_as_without():
    through = run_seeds(0, SEEDS, processes=2, through="engine")
    assert through.all_ended, through.table()
    plain = summarize([run_seed(seed, budget_per="run") for seed in range(SEEDS)], 0, 0.0)
    for figure in ("ended", "events", "stretches", "rules", "statuses", "shapes"):
        assert getattr(through, figure) == getattr(plain, figure), figure


def test_each_seed_of_a_group_ends_as_it_does_alone():
    first = SEEDS_PER_ENGINE * GROUPS_PER_FILE_DATABASE  # a group with a file
    seeds = range(first, first + SEEDS_PER_ENGINE)
    assert run_group(seeds) == [run_seed(seed, budget_per="run") for seed in seeds]


def test_an_engine_that_forgets_is_found_out(monkeypatch: pytest.MonkeyPatch):
    """A write that is said to be on disk, and is not."""
    real = GroupCommitter._write_batch

    async def forgets(self: GroupCommitter, writes):
        if any(write.entry.seq > 10 for write in writes):
            return [True] * len(writes)
        return await real(self, writes)

    monkeypatch.setattr(GroupCommitter, "_write_batch", forgets)
    failures = [result.failure for result in run_group(range(SEEDS_PER_ENGINE)) if result.failure]
    assert failures
    assert all("the stored run is the run" in failure for failure in failures)
