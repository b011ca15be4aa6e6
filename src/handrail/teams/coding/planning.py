"""The planner's rules: what the counters say, and which agent gets the turn then.

`coding_status` reads what was measured, from the run's ledger and from earlier results; nothing
that an agent or a person merely wrote into the bead counts. `NEXT_STEP_RULES` is the table: the
first row that fits names the agent. The stop rules have the last word all the same; these rules
only keep a run from walking into them while there is something better to do.
"""

from collections.abc import Callable

from handrail.engine.dispatch.dispatch import Dispatch
from handrail.kernel.decision import Value
from handrail.kernel.definition.limits import Limits
from handrail.kernel.result import Result
from handrail.kernel.run.events import Reported
from handrail.kernel.stop.ledger import ResearchScores, short_key
from handrail.teams.coding.checks import Checks, external_cause


class CodingStatus(Value):
    """The measured status of a coding run."""

    verified: bool = False
    red: tuple[str, ...] = ()
    """Commands that failed in their last run."""
    goal_met: bool = False
    """Whether there is a functional goal, and it is met."""
    was_worked_on: bool = False
    """Whether something was red before, or files were changed."""
    external_cause: str = ""
    """Why no change of the folder can help."""
    failure_count: int = 0
    """How often the failure occurred since the last progress."""
    research_visits: int = 0
    """Visits of the researcher since a person's last answer."""
    research_score: float = 0.0
    fruitless_visits: int = 0
    """Visits of the researcher without a better score."""
    unchanged_turns: int = 0
    """Turns since the last progress that changed no file."""
    escalated: bool = False
    """Whether the last turn was the snitch's."""


def last_result(dispatch: Dispatch, step_id: str) -> Result | None:
    """Return the last result of that agent."""
    for event in reversed(dispatch.events):
        if isinstance(event, Reported) and event.step_id == step_id:
            return event.result
    return None


def coding_status(dispatch: Dispatch, checks: Checks) -> CodingStatus:
    ledger = dispatch.run.ledger
    measured = ledger.measured.checks
    red = tuple(command for command in checks.commands if measured.get(short_key(command)))
    verdict = last_result(dispatch, "verifier")
    failed = [check for check in verdict.evidence.checks if check.exit_code] if verdict else []
    research = next(iter(ledger.measured.research.values()), ResearchScores(best=0.0))
    counts = [error.seen.count for error in ledger.errors.values() if error.epoch == ledger.epoch]
    reports = [event for event in dispatch.events if isinstance(event, Reported)]
    return CodingStatus(
        verified=all(short_key(command) in measured for command in checks.commands),
        red=red,
        goal_met=bool(checks.goal) and measured.get(short_key(checks.goal)) == "",
        was_worked_on=any(_shows_work(event.result) for event in reports),
        external_cause=next((cause for check in failed if (cause := external_cause(check))), ""),
        failure_count=max(counts, default=0),
        research_visits=len(ledger.measured.research) and research.stale.count + 1,
        research_score=float(research.best),
        fruitless_visits=research.stale.count,
        unchanged_turns=ledger.idle.count,
        escalated=bool(reports) and reports[-1].step_id == "snitch",
    )


def _shows_work(result: Result) -> bool:
    return bool(result.evidence.files) or any(check.exit_code for check in result.evidence.checks)


StepCondition = Callable[[CodingStatus, Limits], bool]


def _or_infinity(limit: int | None) -> float:
    return float("inf") if limit is None else limit


NEXT_STEP_RULES: tuple[tuple[str, str, StepCondition], ...] = (
    ("verifier", "see what is red", lambda s, _: not s.verified),
    ("ticket_closer", "the checks are green", lambda s, _: not s.red and s.was_worked_on),
    (
        "ticket_closer",
        "the checks were green from the start",
        lambda s, most: s.research_score >= most.research_good and not s.red,
    ),
    (
        "researcher",
        "the checks are green, so what the task names must be found first",
        lambda s, _: not s.red,
    ),
    (
        "ticket_closer",
        "the goal is met, and nobody here can mend the rest",
        lambda s, _: s.goal_met and s.unchanged_turns > 0,
    ),
    (
        "snitch",
        "the same failure again, and the cause is not in this folder",
        lambda s, most: (
            bool(s.external_cause) and s.failure_count + 1 >= _or_infinity(most.same_error_limit)
        ),
    ),
    (
        "verifier",
        "the cause is not in this folder; it may be gone by now",
        lambda s, _: bool(s.external_cause),
    ),
    (
        "snitch",
        "the coder has changed nothing, turn after turn",
        lambda s, most: (
            not s.escalated
            and s.unchanged_turns > 0
            and s.unchanged_turns + 1 >= _or_infinity(most.no_change_limit)
        ),
    ),
    ("researcher", "find out where it fails", lambda s, _: not s.research_visits),
    (
        "researcher",
        "not enough is known yet",
        lambda s, most: (
            s.research_score < most.research_good
            and s.fruitless_visits + 1 < _or_infinity(most.research_limit)
            and not s.unchanged_turns
        ),
    ),
    ("coder", "the checks are red", lambda s, _: True),
)
"""(agent, reason, condition), in the order in which they are checked."""


def next_step(status: CodingStatus, limits: Limits) -> tuple[str, str]:
    return next((to, reason) for to, reason, fits in NEXT_STEP_RULES if fits(status, limits))
