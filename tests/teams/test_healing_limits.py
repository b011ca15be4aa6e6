"""The stop rules of `auto-bug-workflow`: three reworks of one failure reach the CEO, and what goes
round by way of a new proposal, with nothing new in it, is stopped."""

from itertools import count

import pytest
from tests.engine.interactive_runs import run_to_end
from tests.kernel.driven_run import red

from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.services.runs import ApprovalPrompt, InteractiveRun
from handrail.kernel.result import Evidence, Result
from handrail.teams import HEALING_DEFINITION_ID, load_builtin
from handrail.teams.scripted import fail, succeed
from handrail.views.steps import steps

SAME, OTHER, BACK = "aaaaaaaa", "abcdefgh", "abababab"
BOUND = 84
"""Dispatches that the certificate allows; what is stopped is stopped long before."""


def healed(commits: str, errors: str, *, refused: int = 0) -> InteractiveRun:
    """Verification always fails, with the next of these errors; apply commits the next of these,
    except at its `refused`th turn, when the patch does not fit and another one is proposed."""
    turns, committed, failed = count(1), iter(commits), iter(errors)

    def qa(dispatch: Dispatch) -> Result:
        if dispatch.node == "triage":
            return succeed("reproduced")
        return fail("red", evidence=red(stderr=f"AssertionError: {next(failed)}"))

    def manager(dispatch: Dispatch) -> Result:
        if next(turns) == refused:
            return fail("the patch conflicts")
        return succeed("committed", evidence=Evidence(files={"shop.py": next(committed) * 40}))

    def answer(request: ApprovalPrompt) -> str | None:
        return "ok" if request.approval.kind == "approval" else None

    staff = {
        "qa-engineer": qa,
        "backend-engineer": lambda dispatch: succeed("proposed"),
        "engineering-manager": manager,
    }
    trusted = frozenset({"qa-engineer"})
    return run_to_end(
        load_builtin(HEALING_DEFINITION_ID),
        staff,
        answer=answer,
        trusted=trusted,
        title="IndexError",
    )


def applied(local: InteractiveRun) -> int:
    return [step.place for step in steps(local.events)].count("apply")


@pytest.mark.requirement("L11.7", "L11.8")
def test_three_reworks_of_one_failure_reach_the_ceo_and_no_rule_comes_before():
    local = healed(SAME, SAME)
    (question,) = local.run.pending_approvals.values()
    assert (question.kind, question.step_id) == ("escalation", "verification")
    assert applied(local) == 4


@pytest.mark.requirement("S3", "S4", "S10")
@pytest.mark.parametrize(
    ("rule", "commits", "errors"),
    [("same_error", OTHER, SAME), ("no_change", SAME, OTHER), ("oscillation", BACK, OTHER)],
)
def test_a_loop_by_way_of_another_proposal_is_stopped(rule: str, commits: str, errors: str):
    """A new proposal begins the reworks of the verification anew; what was seen counts on."""
    local = healed(commits, errors, refused=4)
    stop = local.run.stop
    assert stop is not None
    assert (stop.rule, local.run.terminal_status) == (rule, "aborted_stuck")
    assert applied(local) == 6
    assert len(steps(local.events)) < BOUND / 3
