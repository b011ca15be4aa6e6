"""The certificate is exact: for random small definitions, an adversary that tries everything.

Each test takes HUNDRED definitions, a third of them with parallel blocks. A definition with more
than STATES_MAX states is not small and is left out; how many were is printed by `-rP`.
"""

import os
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from tests.kernel.adversary import FIGURES, TooBigError, explore, oracle
from tests.kernel.driven_run import NOON, chain, edge, node, team, workflow

from handrail.kernel.definition.limits import ASKS_MAX
from handrail.kernel.run import commands as c
from handrail.kernel.run.decide import decide
from handrail.kernel.run.evolve import replay
from handrail.kernel.run.measure import measure
from handrail.kernel.run.state import Person
from handrail.testing.random_definitions import random_team, random_workflow

HUNDRED = 100
CHUNKS = 200 if os.environ.get("HANDRAIL_LONG") else 20
STATES_MAX = 500


def small_definitions(first_seed: int) -> Iterator[tuple[dict[str, Any], bool]]:
    """Endless, and whether agents may ask. Of ten four have a parallel block, and four are teams
    with redirects; one is any team."""
    for seed in range(first_seed, first_seed + 1_000_000):
        rng = Random(seed)
        kind = seed % 10
        if kind == 0:
            yield random_team(rng, agents=rng.randint(1, 3)), True
        elif kind < 5:
            yield _redirecting(rng), False
        elif kind < 9:
            yield _forked(rng), seed % 3 == 0
        else:
            yield random_workflow(rng, size=rng.randint(1, 5), forks=False), seed % 3 == 0


def _redirecting(rng: Random) -> dict[str, Any]:
    while True:  # with handoffs enough that a rule can be against one
        document = random_team(rng, agents=rng.randint(2, 3))
        if _has_redirect(document) and document["stop_rules"]["max_handoffs"] not in (0, 1):
            return document


def _forked(rng: Random) -> dict[str, Any]:
    while True:  # two of three draws have a block
        document = random_workflow(rng, size=rng.randint(2, 5), forks=True)
        if _has_block(document):
            return document


def _has_block(document: dict[str, Any]) -> bool:
    return any(n.get("config", {}).get("parallel") for n in document.get("nodes", ()))


def _has_redirect(document: dict[str, Any]) -> bool:
    return any("when_exhausted" in agent for agent in document.get("agents", ()))


@pytest.mark.requirement("K1", "K3", "K7", "K8", "K11", "K12", "K13", "K19", "K20", "K23", "K26")
@pytest.mark.heavy
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_figure_not_flagged_is_reached_and_none_is_exceeded(chunk: int) -> None:
    explored = forked = redirecting = redirected = too_big = 0
    for document, asks in small_definitions(chunk * 1_000_000):
        try:
            found = explore(document, limit=STATES_MAX, asks=asks)
        except TooBigError:
            too_big += 1
            continue
        bound = oracle(document).bound()
        for figure in FIGURES:
            most, seen = getattr(bound, figure), found.most[figure]
            assert seen <= most, (figure, most, seen, document)
            counts_asks = figure == "asks" or (figure == "dispatches" and "agents" in document)
            unasked = ASKS_MAX if counts_asks and not asks else 0
            assert seen >= most - unasked or not bound.tight[figure], (
                figure,
                most,
                seen,
                document,
            )
        explored += 1
        forked += _has_block(document)
        redirecting += _has_redirect(document)
        redirected += found.redirects > 0
        if explored == HUNDRED:
            break
    print(f"{explored} explored, {forked} with blocks, {too_big} too big")
    print(f"{redirecting} with redirects, {redirected} in which they happen")
    assert explored == HUNDRED
    assert forked >= HUNDRED // 3
    assert redirecting >= 0.3 * HUNDRED
    assert redirected > 0


@pytest.mark.requirement("K14")
@pytest.mark.parametrize("seed", range(200))
def test_no_move_of_a_person_lifts_the_measure_above_that_of_the_start(seed: int) -> None:
    rng = Random(seed)
    document = random_workflow(rng, size=6, forks=True)
    if seed % 5 == 0:
        document = random_team(rng, agents=4)
    plan = oracle(document)
    started = decide(plan, None, c.Start(run_id="r", bead_id="b"), NOON)
    most = measure(plan, replay(started.events[:1]))
    run = replay(started.events)
    if run.has_ended:
        return
    by = Person(name="ana", role="ceo")
    for place in [n["id"] for n in document.get("nodes") or document["agents"]]:
        moved = decide(plan, run, c.Move(by=by, step_id=place, reason="try"), NOON)
        after = run
        for event in moved.events:
            after = replay([event], after)
            assert measure(plan, after) <= most


@pytest.mark.requirement("K8", "L11.7")
def test_rework_to_one_target_adds_up_and_rework_to_nested_targets_multiplies() -> None:
    both = chain(
        node("apply", max_attempts=1),
        node("verify", max_attempts=1, on_failure={"rework": "apply", "max": 3}),
        node("security", max_attempts=1, on_failure={"rework": "apply", "max": 2}),
    )
    assert explore(both, limit=5_000).most["dispatches"] == oracle(both).bound().dispatches
    nested = chain(
        node("x", max_attempts=1),
        node("y", max_attempts=1),
        node("v", max_attempts=1, on_failure={"rework": "y", "max": 3}),
        node("z", max_attempts=1, on_failure={"rework": "x", "max": 2}),
    )
    assert (
        explore(nested, limit=5_000).most["dispatches"] == oracle(nested).bound().dispatches == 30
    )


@pytest.mark.requirement("K11")
def test_a_block_that_is_done_again_pays_for_both_branches_each_round() -> None:
    document = workflow(
        node("s", "start"),
        node("p", max_attempts=1),
        node("f", "decision", parallel=True),
        node("a", max_attempts=3, on_failure={"rework": "p", "max": 2}),
        node("b", max_attempts=3, on_failure={"rework": "p", "max": 2}),
        node("m", "merge"),
        node("e", "end"),
        edges=[
            edge("s", "p"),
            edge("p", "f"),
            edge("f", "a"),
            edge("f", "b"),
            edge("a", "m"),
            edge("b", "m"),
            edge("m", "e"),
        ],
    )
    found = explore(document, limit=5_000, asks=False)
    assert found.most["dispatches"] == oracle(document).bound().dispatches == 35


@pytest.mark.requirement("K20", "H3.3")
def test_a_team_makes_exactly_as_many_handoffs_as_its_limits_allow() -> None:
    document = team(
        {"a": ["b"], "b": ["a"]},
        terminator="a",
        stop_rules={"max_handoffs": 3, "max_steps": 6, "protocol_error_limit": 2},
    )
    assert explore(document, limit=5_000).most["handoffs"] == oracle(document).bound().handoffs == 3
