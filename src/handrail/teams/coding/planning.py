"""The planner's rules: what the counters say, and whose turn it is then.

`standing` reads what was measured, from the run's ledger and from earlier results; nothing that an
agent or a person merely wrote into the bead counts. `STEPS` is the table: the first row that fits
says to whom the turn goes. The stop rules have the last word all the same; these rules only see to
it that a run does not walk into them while there is something better to do.
"""

from collections.abc import Callable

from handrail.engine.dispatch import Dispatch
from handrail.kernel.decision import Value
from handrail.kernel.ledger import Research, short
from handrail.kernel.limits import Limits
from handrail.kernel.result import Result
from handrail.kernel.run.events import Reported
from handrail.teams.coding.checks import Checks, is_elsewhere


class Standing(Value):
    """What is known of a coding run."""

    verified: bool = False
    red: tuple[str, ...] = ()
    """Commands that failed when they were last run."""
    goal_green: bool = False
    """There is a functional goal, and it is met."""
    worked: bool = False
    """Something was red before, or files were changed."""
    elsewhere: str = ""
    """Why no change of the folder can help."""
    seen: int = 0
    """How often the failure was met since the last progress."""
    visits: int = 0
    """Of the researcher, since a person's last word."""
    score: float = 0.0
    in_vain: int = 0
    """Visits of the researcher that brought nothing better."""
    idle: int = 0
    """Turns since the last progress that changed no file."""
    escalated: bool = False
    """The last turn was the snitch's."""


def last(dispatch: Dispatch, place: str) -> Result | None:
    """What that agent brought back last."""
    for event in reversed(dispatch.past):
        if isinstance(event, Reported) and event.place == place:
            return event.result
    return None


def standing(dispatch: Dispatch, checks: Checks) -> Standing:
    ledger = dispatch.run.ledger
    measured = ledger.measured.checks
    red = tuple(one for one in checks.commands if measured.get(short(one)))
    verdict = last(dispatch, "verifier")
    failed = [one for one in verdict.evidence.checks if one.exit_code] if verdict else []
    sought = next(iter(ledger.measured.research.values()), Research(best=0.0))
    counts = [held.seen.count for held in ledger.errors.values() if held.epoch == ledger.epoch]
    turns = [event for event in dispatch.past if isinstance(event, Reported)]
    return Standing(
        verified=all(short(one) in measured for one in checks.commands),
        red=red,
        goal_green=bool(checks.goal) and measured.get(short(checks.goal)) == "",
        worked=any(_worked(event.result) for event in turns),
        elsewhere=next((why for one in failed if (why := is_elsewhere(one))), ""),
        seen=max(counts, default=0),
        visits=len(ledger.measured.research) and sought.stale.count + 1,
        score=float(sought.best),
        in_vain=sought.stale.count,
        idle=ledger.idle.count,
        escalated=bool(turns) and turns[-1].place == "snitch",
    )


def _worked(result: Result) -> bool:
    return bool(result.evidence.files) or any(one.exit_code for one in result.evidence.checks)


Fits = Callable[[Standing, Limits], bool]


def _most(limit: int | None) -> float:
    return float("inf") if limit is None else limit


STEPS: tuple[tuple[str, str, Fits], ...] = (
    ("verifier", "see what is red", lambda s, _: not s.verified),
    ("ticket_closer", "the checks are green", lambda s, _: not s.red and s.worked),
    (
        "ticket_closer",
        "the checks were green from the start",
        lambda s, most: s.score >= most.research_good and not s.red,
    ),
    (
        "researcher",
        "the checks are green, so what the task names must be found first",
        lambda s, _: not s.red,
    ),
    (
        "ticket_closer",
        "the goal is met, and nobody here can mend the rest",
        lambda s, _: s.goal_green and s.idle > 0,
    ),
    (
        "snitch",
        "the same failure again, and the cause is not in this folder",
        lambda s, most: bool(s.elsewhere) and s.seen + 1 >= _most(most.same_error_limit),
    ),
    (
        "verifier",
        "the cause is not in this folder; it may be gone by now",
        lambda s, _: bool(s.elsewhere),
    ),
    (
        "snitch",
        "the coder has changed nothing, turn after turn",
        lambda s, most: (
            not s.escalated and s.idle > 0 and s.idle + 1 >= _most(most.no_change_limit)
        ),
    ),
    ("researcher", "find out where it fails", lambda s, _: not s.visits),
    (
        "researcher",
        "not enough is known yet",
        lambda s, most: (
            s.score < most.research_good
            and s.in_vain + 1 < _most(most.research_limit)
            and not s.idle
        ),
    ),
    ("coder", "the checks are red", lambda s, _: True),
)
"""(to whom, why, when), in the order in which they are looked at."""


def next_step(known: Standing, most: Limits) -> tuple[str, str]:
    return next((to, why) for to, why, fits in STEPS if fits(known, most))
