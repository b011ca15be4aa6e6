"""The errors that end a guarded loop: one base, and a subclass for each kind of reason."""

import functools
import logging
from typing import TYPE_CHECKING

from handrail.kernel.run.state import Stop
from handrail.kernel.stop.rules import RULES_BY_NAME, RuleKind
from handrail.views.history import stop_view
from handrail.views.stop_explanation import explain_stop

if TYPE_CHECKING:
    from handrail.guard.run import GuardedRun


log = logging.getLogger("handrail.guard")


class StoppedError(Exception):
    """A stop rule ended the run.

    Its text is the reason, then in a line each the limit, what was alike, and the code that changes
    it. `stop` has all of this as fields; `partial`, where an adapter raises it, is the framework's
    own result so far.
    """

    def __init__(self, stop: Stop, run: "GuardedRun", partial: object = None) -> None:
        try:
            text = describe_error(stop)
        except Exception:  # a stop passes, whatever is wrong with its description
            log.exception("a stop could not be described")
            text = f"{stop.rule}: {stop.reason}"
        super().__init__(text)
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

ERROR_BY_KIND: dict[RuleKind, type[StoppedError]] = {
    RuleKind.CONSTRAINT: ConstraintViolatedError,
    RuleKind.BUDGET: BudgetSpentError,
    RuleKind.NO_PROGRESS: NoProgressError,
    RuleKind.LOOP: LoopDetectedError,
    RuleKind.LIMIT: LimitReachedError,
    RuleKind.END: StoppedError,
}


def describe_error(stop: Stop) -> str:
    """Return the text of the error: rule and reason, then what a person needs to act on it."""
    view = stop_view(stop)
    assert view is not None, "there is a stop"
    lines = [f"  {name}: {text}" for name, text in explain_stop(view)]
    return "\n".join([f"{stop.rule}: {stop.reason}", *lines[1:]])  # the first is the rule


def exception_text(error: BaseException) -> str:
    """Return the text of an exception; empty if it has none, or if it cannot be read."""
    try:
        return str(error)
    except Exception:  # of a class of the program's own
        return ""


def stop_error(
    stop: Stop,
    run: "GuardedRun",
    partial: object = None,
    framework_error: type[Exception] | None = None,
) -> StoppedError:
    """Return the stop as an error, if wanted one that is an error of the framework's, too."""
    error_type = ERROR_BY_KIND[RULES_BY_NAME[stop.rule].kind]
    if framework_error is not None:
        error_type = _framework_error_type(error_type, framework_error)
    return error_type(stop, run, partial)


@functools.cache
def _framework_error_type(
    error_type: type[StoppedError], framework_error: type[Exception]
) -> type[StoppedError]:
    fields = {"__repr__": _describe_stop, "__module__": error_type.__module__}
    return type(error_type.__name__, (error_type, framework_error), fields)


def _describe_stop(error: StoppedError) -> str:
    """Return one short line, for a framework's log: the text of a stop has several."""
    return f"{type(error).__name__}('the guarded run is over: {error.stop.rule}')"
