"""The planner's rules: for every standing of a run, whose turn it is."""

import itertools

import pytest

from handrail.kernel.limits import PROFILES, STRICT
from handrail.teams.coding.planning import STEPS, Standing, next_step

YOLO = PROFILES["yolo"]
RED = {"verified": True, "red": ("t",), "worked": True}


@pytest.mark.parametrize(
    ("known", "to"),
    [
        (Standing(), "verifier"),
        (Standing(verified=True, worked=True), "ticket_closer"),
        (Standing(verified=True), "researcher"),
        (Standing(verified=True, visits=2, score=0.5, in_vain=1), "researcher"),
        (Standing(verified=True, visits=1, score=0.8), "ticket_closer"),
        (Standing(**RED), "researcher"),
        (Standing(**RED, visits=1, score=0.9), "coder"),
        (Standing(**RED, visits=1, score=0.5), "researcher"),
        (Standing(**RED, visits=2, score=0.5, in_vain=1), "researcher"),
        (Standing(**RED, visits=3, score=0.5, in_vain=2), "coder"),
        (Standing(**RED, visits=1, score=0.9, idle=1), "coder"),
        (Standing(**RED, visits=1, score=0.9, idle=2), "snitch"),
        (Standing(**RED, visits=1, score=0.9, idle=2, escalated=True), "coder"),
        (Standing(**RED, visits=1, score=0.9, goal_green=True), "coder"),
        (Standing(**RED, visits=1, score=0.9, goal_green=True, idle=1), "ticket_closer"),
        (Standing(**RED, elsewhere="a module is missing", seen=1), "verifier"),
        (Standing(**RED, elsewhere="a module is missing", seen=2), "snitch"),
    ],
)
def test_the_turn_goes_to(known: Standing, to: str) -> None:
    assert next_step(known, STRICT)[0] == to


@pytest.mark.requirement("S2")
def test_the_researcher_is_asked_again_only_while_that_can_be_allowed() -> None:
    """Where there is something to change, the planner never walks into the research rule."""
    for limits in (STRICT, YOLO):
        assert limits.research_limit is not None
        stale = Standing(**RED, visits=9, score=0.1, in_vain=limits.research_limit - 1)
        assert next_step(stale, limits)[0] == "coder"


@pytest.mark.requirement("S13")
def test_strict_gives_the_coder_more_tries_than_yolo() -> None:
    idle = Standing(**RED, visits=1, score=1.0, idle=1)
    assert next_step(idle, STRICT)[0] == "coder"
    assert next_step(idle, YOLO)[0] == "snitch"


def test_every_row_is_of_use_and_every_standing_has_one() -> None:
    used: set[int] = set()
    rows = {id(fits): n for n, (_, _, fits) in enumerate(STEPS)}
    for verified, red, worked, goal, escalated in itertools.product((False, True), repeat=5):
        for elsewhere, seen, visits, score, idle in itertools.product(
            ("", "why"), (1, 2), (0, 1), (0.1, 0.9), (0, 1, 2)
        ):
            known = Standing(
                verified=verified,
                red=("t",) if red else (),
                worked=worked,
                goal_green=goal,
                escalated=escalated,
                elsewhere=elsewhere,
                seen=seen,
                visits=visits,
                score=score,
                idle=idle,
            )
            fits = next(fits for _, _, fits in STEPS if fits(known, STRICT))
            used.add(rows[id(fits)])
            assert next_step(known, STRICT)[0]
    assert used == set(range(len(STEPS)))
