"""Profiles `strict` and `yolo` stop where they stopped, in whole runs: of the simulator, of the
corpus of good runs, of the built-in teams. `tests/scenarios` compares all of its runs, too.
"""

import os

import pytest
from tests.corpus.record import GOOD, read
from tests.kernel.frozen_histories import Comparison, compare_history

from handrail.teams import BUILTIN_IDS, load_builtin
from handrail.testing.scripted_runs import hand_to, play
from handrail.testing.simulator import history

SEEDS = 20_000 if os.environ.get("HANDRAIL_LONG") else 800


def totals(comparisons: list[Comparison]) -> tuple[int, int]:
    return sum(c.moments for c in comparisons), sum(c.fired for c in comparisons)


@pytest.mark.parametrize("first", range(0, SEEDS, 100))
def test_the_simulator_s_runs_stop_where_they_stopped(first: int) -> None:
    seeds = range(first, first + 100)  # the frozen rules know no budgets that runs share
    comparisons = [compare_history(history(seed, budgets=False)) for seed in seeds]
    moments, fired = totals(comparisons)
    assert moments > 100
    assert fired, "the histories reach the rules"


def test_the_good_runs_stop_where_they_stopped() -> None:
    moments, fired = totals([compare_history(read(name).events) for name in GOOD])
    assert moments > 100
    assert not fired


@pytest.mark.parametrize("name", BUILTIN_IDS)
def test_a_built_in_definition_stops_where_it_stopped(name: str) -> None:
    document = load_builtin(name)
    histories = [play(document).events]
    if document["kind"] == "team":
        agents = {agent["id"]: agent["hands_off_to"] for agent in document["agents"]}
        for pick in (0, -1):  # always to the first, and always to the last
            scripts = {agent: [hand_to(to[pick], "again")] for agent, to in agents.items() if to}
            histories.append(play(document, scripts).events)
    moments, fired = totals([compare_history(events) for events in histories])
    assert moments
    assert bool(fired) == (document["kind"] == "team")
