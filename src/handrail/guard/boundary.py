"""Keep errors of the guard itself away from the program that it guards.

Everything that the guard does for a program can fail: a value has no text, a server is away, the
guard has a bug. Such an error is counted, logged once for a run, recorded as the warning
`guard_error`, and goes no further; with `Guard(on_error="raise")` it is raised. If the guard has
missed something by it, the run is unguarded from then on: rules that compare steps cannot judge a
run of which they do not know everything, so only the hard limits stop it.

The hard limits are judged here, by counts that need nothing of what failed. The recorded events
hold what the guard has seen. A step that was lost counts as one. An error in a hook counts as a
step each time that the same hook fails, since frameworks call a hook once in a step; hooks of tools
do not count. So a run of which nothing can be recorded any more ends, too.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from handrail.guard.errors import StoppedError, exception_text
from handrail.kernel.result import Usage
from handrail.kernel.run.events import GUARD_ERROR, HandedOff, Reported, Warned
from handrail.kernel.run.state import Stop, build_stop
from handrail.kernel.stop.ledger import Ledger
from handrail.kernel.stop.rules import RULES_BY_NAME, FiredRule, RuleContext, StopRule

if TYPE_CHECKING:
    from handrail.guard.adapter import RunWatch
    from handrail.guard.run import GuardedRun

log = logging.getLogger("handrail.guard")

OnError = Literal["record", "raise"]
"""What becomes of an error of the guard itself."""
HARD_RULES = (StopRule.BUDGET, StopRule.MAX_HANDOFFS, StopRule.MAX_STEPS, StopRule.MAX_DURATION)
NO_USAGE = Usage()
ONLY_HARD_LIMITS = "only the hard limits judge the run from here on"


class HardCounts:
    """What the hard limits count, of the recorded events and of what was lost."""

    def __init__(self, run: "GuardedRun") -> None:
        self._run, self._events_counted = run, 0
        self.steps = self.handoffs = self.tokens = 0
        self.cost: int | float = 0
        self.failures: dict[str, int] = defaultdict(int)
        """By hook, how often it failed in this stretch."""
        self._visited: set[str] = set()
        self._has_result = False

    def begin_stretch(self) -> None:
        """Count from here on: a person let the run go on."""
        self.count_events()
        self.steps = self.handoffs = 0
        self.failures.clear()

    def count_events(self) -> None:
        events = self._run.events
        for event in events[self._events_counted :]:
            if isinstance(event, Reported):
                self.steps += 1
                self.tokens += event.result.usage.tokens
                self.cost += event.result.usage.cost
                self._has_result = True
            elif isinstance(event, HandedOff) and event.accepted:
                self.steps += not self._has_result
                is_free = self._run.limits.free_visits and event.target not in self._visited
                self._visited.add(event.target)
                self.handoffs += not is_free
                self._has_result = False
        self._events_counted = len(events)

    def judge(self, pending: Usage, seconds: float) -> list[FiredRule]:
        """Return the hard rules that are broken; `pending` is used, and in no event yet."""
        self.count_events()
        ledger = Ledger(
            steps=max(self.steps, *self.failures.values(), 0) - 1,  # the last is the one more
            handoffs=self.handoffs - 1,
            tokens=self.tokens + pending.tokens,
            cost=self.cost + pending.cost,
            budgets={state.name: state for state in self._run.budgets.states},
        )
        limits = self._run.limits
        ctx = RuleContext(ledger, limits, source="an agent", target="another", ran=seconds)
        rows = (RULES_BY_NAME[rule] for rule in HARD_RULES)
        judges = (row.on_result or row.on_handoff or row.on_step for row in rows)
        all_fired = [judge(ctx) for judge in judges if judge is not None]
        return [replace(fired, evidence=()) for fired in all_fired if fired is not None]


class GuardErrors:
    """The errors of one run's guard, and what the guard missed by them."""

    def __init__(
        self,
        run: "GuardedRun",
        *,
        raises: bool,
        clock: Callable[[], datetime],
        elapsed: Callable[[datetime], float],
        end: Callable[[Stop, datetime], Stop],
    ) -> None:
        self._run, self._raises = run, raises
        self._clock, self._elapsed, self._end = clock, elapsed, end
        self._began = time.monotonic()
        self.counts = HardCounts(run)
        self.count = 0
        """Errors so far."""
        self.unguarded = ""
        """Why only the hard limits judge the run; empty while all rules do."""

    def note(self, error: Exception, what: str) -> None:
        """Absorb an error by which the rules have missed nothing."""
        self._absorb(error, what, missed=False)

    def absorbing(self, what: str, *, missed: bool = False) -> "AbsorbingBlock":
        """Absorb an error inside the block."""
        return AbsorbingBlock(self, what, missed=missed)

    def lose(
        self,
        error: Exception,
        what: str,
        *,
        steps: int = 0,
        handoffs: int = 0,
        usage: Usage = NO_USAGE,
    ) -> None:
        """Absorb an error by which the rules have missed what the figures say, and perhaps more."""
        counts = self.counts
        counts.steps += steps
        counts.handoffs += handoffs
        counts.tokens += usage.tokens
        counts.cost += usage.cost
        self._absorb(error, what, missed=True)

    def lose_hook(self, error: Exception, hook: str, *, is_step: bool) -> None:
        """Absorb an error in a hook, which may have missed anything."""
        if is_step:
            self.counts.failures[hook] += 1
        self._absorb(error, f"{hook} failed", missed=True)

    def _absorb(self, error: Exception, what: str, *, missed: bool) -> None:
        if self._raises:
            raise error
        self.count += 1
        if self.count == 1:
            log.error("the guard of a run has an error of its own: %s", what, exc_info=error)
        try:
            self._record(error, what, missed=missed and not self.unguarded)
        except Exception:  # there is no other place to say it in
            self.unguarded = self.unguarded or what

    def _record(self, error: Exception, what: str, *, missed: bool) -> None:
        if not missed and self.count > 1:
            return  # one of a kind tells what is wrong, the count how often
        text = self._run.recorded_text(exception_text(error))
        message = f"{what}: {type(error).__name__}" + (f": {text}" if text else "")
        if missed:
            self.unguarded = message = f"{message}; {ONLY_HARD_LIMITS}"
        self._run.events.append(
            Warned(at=self._now(), code=GUARD_ERROR, message=message, unguarded=missed)
        )

    def _now(self) -> datetime:
        try:
            return self._clock()
        except Exception:  # the clock may be the program's
            return datetime.now(UTC)

    def _seconds(self) -> float:
        try:
            return self._elapsed(self._clock())
        except Exception:  # as above
            return time.monotonic() - self._began

    def judge(self, pending: Usage = NO_USAGE) -> Stop | None:
        """Return the stop of a run that is unguarded, and end it if a hard limit is reached."""
        run = self._run
        if run.stop is not None or run.dry_run or not self.unguarded:
            return run.stop
        try:
            fired = self.counts.judge(pending, self._seconds())
            if fired:
                run.stop = build_stop(fired, "", Ledger(), run.limits.profile)
                self._end(run.stop, self._now())
        except StoppedError:
            raise
        except Exception:  # whatever is wrong, the program goes on
            log.exception("the hard limits of an unguarded run could not be judged")
        return run.stop


class AbsorbingBlock:
    """A block that an error inside does not leave. Each run begins and ends with some of them, so
    it is no generator.
    """

    __slots__ = ("_errors", "_missed", "_what")

    def __init__(self, errors: GuardErrors, what: str, *, missed: bool) -> None:
        self._errors, self._what, self._missed = errors, what, missed

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool:
        if not isinstance(error, Exception) or isinstance(error, StoppedError):
            return False
        if self._missed:
            self._errors.lose(error, self._what)
        else:
            self._errors.note(error, self._what)
        return True


class HookBoundary:
    """The block in which a hook of an adapter works: errors inside it go no further.

    It has no state, so blocks may be nested. A stop is raised after it, not inside.
    """

    def __init__(self, watch: "RunWatch", *, is_step: bool) -> None:
        self._watch, self._is_step = watch, is_step

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        errors = self._watch.run.errors
        if error is None:
            if errors.unguarded:
                self._watch.judge_hard_limits()
            return False
        if not isinstance(error, Exception) or isinstance(error, StoppedError):
            return False
        hook = trace.tb_frame.f_code.co_qualname if trace is not None else ""
        errors.lose_hook(error, hook, is_step=self._is_step)
        self._watch.judge_hard_limits()
        return True
