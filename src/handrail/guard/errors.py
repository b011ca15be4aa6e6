"""The errors that end a guarded loop: one base, and a subclass for each kind of reason."""

from typing import TYPE_CHECKING

from handrail.kernel.run.state import Stop
from handrail.kernel.stop.rules import StopRule

if TYPE_CHECKING:
    from handrail.guard.run import GuardedRun


class StoppedError(Exception):
    """A stop rule ended the run.

    `stop` has rule, limit, what was seen and the evidence; `partial`, where an adapter raises it,
    the framework's own result so far.
    """

    def __init__(self, stop: Stop, run: "GuardedRun", partial: object = None) -> None:
        super().__init__(f"{stop.rule}: {stop.reason}")
        self.stop, self.run, self.partial = stop, run, partial


class LoopDetectedError(StoppedError):
    """The agents go in circles: the same pattern, or the same edge too often, without progress."""


class NoProgressError(StoppedError):
    """The same error, no change, back and forth, or research that finds nothing better."""


class LimitReachedError(StoppedError):
    """A hard limit: handoffs, steps or running time."""


class BudgetSpentError(StoppedError):
    """Tokens or cost are used up."""


class ConstraintViolatedError(StoppedError):
    """A path or a command that the run must never touch."""


Stopped = StoppedError
LoopDetected = LoopDetectedError
NoProgress = NoProgressError
LimitReached = LimitReachedError
BudgetSpent = BudgetSpentError
ConstraintViolated = ConstraintViolatedError
"""The names that programs catch: a stop is what they asked for, not a mistake of theirs."""

ERROR_BY_RULE: dict[StopRule, type[StoppedError]] = {
    StopRule.CONSTRAINT: ConstraintViolatedError,
    StopRule.BUDGET: BudgetSpentError,
    StopRule.RESEARCH_EXHAUSTED: NoProgressError,
    StopRule.SAME_ERROR: NoProgressError,
    StopRule.NO_CHANGE: NoProgressError,
    StopRule.OSCILLATION: NoProgressError,
    StopRule.REPEATED_PATTERN: LoopDetectedError,
    StopRule.MAX_EDGE: LoopDetectedError,
    StopRule.MAX_HANDOFFS: LimitReachedError,
    StopRule.MAX_STEPS: LimitReachedError,
    StopRule.MAX_DURATION: LimitReachedError,
}


def stop_error(stop: Stop, run: "GuardedRun", partial: object = None) -> StoppedError:
    return ERROR_BY_RULE.get(stop.rule, StoppedError)(stop, run, partial)
