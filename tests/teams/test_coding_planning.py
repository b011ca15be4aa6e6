"""The planner's rules: for every standing of a run, whose turn it is."""

import itertools

import pytest

from handrail.kernel.definition.limits import PROFILES, STRICT
from handrail.teams.coding.planning import NEXT_STEP_RULES, CodingStatus, next_step

YOLO = PROFILES["yolo"]
RED = {"verified": True, "red": ("t",), "was_worked_on": True}


@pytest.mark.parametrize(
    ("known", "to"),
    [
        (CodingStatus(), "verifier"),
        (CodingStatus(verified=True, was_worked_on=True), "ticket_closer"),
        (CodingStatus(verified=True), "researcher"),
        (
            CodingStatus(verified=True, research_visits=2, research_score=0.5, fruitless_visits=1),
            "researcher",
        ),
        (CodingStatus(verified=True, research_visits=1, research_score=0.8), "ticket_closer"),
        (CodingStatus(**RED), "researcher"),
        (CodingStatus(**RED, research_visits=1, research_score=0.9), "coder"),
        (CodingStatus(**RED, research_visits=1, research_score=0.5), "researcher"),
        (
            CodingStatus(**RED, research_visits=2, research_score=0.5, fruitless_visits=1),
            "researcher",
        ),
        (CodingStatus(**RED, research_visits=3, research_score=0.5, fruitless_visits=2), "coder"),
        (CodingStatus(**RED, research_visits=1, research_score=0.9, unchanged_turns=1), "coder"),
        (CodingStatus(**RED, research_visits=1, research_score=0.9, unchanged_turns=2), "snitch"),
        (
            CodingStatus(
                **RED, research_visits=1, research_score=0.9, unchanged_turns=2, escalated=True
            ),
            "coder",
        ),
        (CodingStatus(**RED, research_visits=1, research_score=0.9, goal_met=True), "coder"),
        (
            CodingStatus(
                **RED, research_visits=1, research_score=0.9, goal_met=True, unchanged_turns=1
            ),
            "ticket_closer",
        ),
        (CodingStatus(**RED, external_cause="a module is missing", failure_count=1), "verifier"),
        (CodingStatus(**RED, external_cause="a module is missing", failure_count=2), "snitch"),
    ],
)
def test_the_turn_goes_to(known: CodingStatus, to: str) -> None:
    assert next_step(known, STRICT)[0] == to


@pytest.mark.requirement("S2")
def test_the_researcher_is_asked_again_only_while_that_can_be_allowed() -> None:
    """Where there is something to change, the planner never walks into the research rule."""
    for limits in (STRICT, YOLO):
        assert limits.research_limit is not None
        stale = CodingStatus(
            **RED, research_visits=9, research_score=0.1, fruitless_visits=limits.research_limit - 1
        )
        assert next_step(stale, limits)[0] == "coder"


@pytest.mark.requirement("S13")
def test_strict_gives_the_coder_more_tries_than_yolo() -> None:
    idle = CodingStatus(**RED, research_visits=1, research_score=1.0, unchanged_turns=1)
    assert next_step(idle, STRICT)[0] == "coder"
    assert next_step(idle, YOLO)[0] == "snitch"


def test_every_row_is_of_use_and_every_standing_has_one() -> None:
    used: set[int] = set()
    rows = {id(fits): n for n, (_, _, fits) in enumerate(NEXT_STEP_RULES)}
    for verified, red, worked, goal, escalated in itertools.product((False, True), repeat=5):
        for elsewhere, seen, visits, score, idle in itertools.product(
            ("", "why"), (1, 2), (0, 1), (0.1, 0.9), (0, 1, 2)
        ):
            known = CodingStatus(
                verified=verified,
                red=("t",) if red else (),
                was_worked_on=worked,
                goal_met=goal,
                escalated=escalated,
                external_cause=elsewhere,
                failure_count=seen,
                research_visits=visits,
                research_score=score,
                unchanged_turns=idle,
            )
            fits = next(fits for _, _, fits in NEXT_STEP_RULES if fits(known, STRICT))
            used.add(rows[id(fits)])
            assert next_step(known, STRICT)[0]
    assert used == set(range(len(NEXT_STEP_RULES)))
