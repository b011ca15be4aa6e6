"""What a guarded loop meets when a rule ends it: one base, a child for each kind of reason."""

from typing import TYPE_CHECKING

from handrail.kernel.rules import StopRule
from handrail.kernel.run.state import Stop

if TYPE_CHECKING:
    from handrail.guard import GuardedRun


class Stopped(Exception):  # noqa: N818 - a run that stops is no error of the host program
    """The run was ended by a stop rule. `stop` has rule, limit, what was seen and the evidence;
    `partial`, where an adapter raises it, what there is of the framework's own result."""

    def __init__(self, stop: Stop, run: "GuardedRun", partial: object = None) -> None:
        super().__init__(f"{stop.rule}: {stop.reason}")
        self.stop, self.run, self.partial = stop, run, partial


class LoopDetected(Stopped):
    """The agents go in circles: the same pattern, or the same way too often, without progress."""


class NoProgress(Stopped):
    """The same error, no change, back and forth, or research that finds nothing better."""


class LimitReached(Stopped):
    """A hard limit: handoffs, steps or running time."""


class BudgetSpent(Stopped):
    """Tokens or cost are used up."""


class ConstraintViolated(Stopped):
    """A path or a command that the run must never touch."""


KINDS: dict[StopRule, type[Stopped]] = {
    StopRule.CONSTRAINT: ConstraintViolated,
    StopRule.BUDGET: BudgetSpent,
    StopRule.RESEARCH_EXHAUSTED: NoProgress,
    StopRule.SAME_ERROR: NoProgress,
    StopRule.NO_CHANGE: NoProgress,
    StopRule.OSCILLATION: NoProgress,
    StopRule.REPEATED_PATTERN: LoopDetected,
    StopRule.MAX_EDGE: LoopDetected,
    StopRule.MAX_HANDOFFS: LimitReached,
    StopRule.MAX_STEPS: LimitReached,
    StopRule.MAX_DURATION: LimitReached,
}


def stopped(stop: Stop, run: "GuardedRun", partial: object = None) -> Stopped:
    return KINDS.get(stop.rule, Stopped)(stop, run, partial)
