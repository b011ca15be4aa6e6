"""Refuse the call of a model or a tool before it is made, once a limit is reached.

The rules judge what is recorded, and a step is recorded when the next one begins. So money, tokens,
shared budgets and tools with a limit are judged once more before each call, with what is used and
not recorded yet: the open step, and tools that are still at work. No call begins once a budget is
spent, and none of a tool that was called as often as it may be: that one is on record as a call
that failed. Where no such limit is set, nothing is done; where one is, a step is recorded before
the next call begins.

Budgets that other runs share are read again if nothing was spent since the last call: what other
processes have spent by then refuses this call, too.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from handrail.guard.boundary import NO_USAGE
from handrail.guard.prices import add_usages
from handrail.guard.sanitising import safe_name
from handrail.guard.tool_calls import ToolCall
from handrail.kernel.result import Usage
from handrail.kernel.run.state import Stop
from handrail.kernel.stop.ladder import Judge
from handrail.kernel.stop.ledger import Ledger
from handrail.kernel.stop.rules import FiredRule, RuleContext, judge_call
from handrail.kernel.stop.tool_counts import ToolCount, is_call_of

if TYPE_CHECKING:
    from handrail.guard.run import GuardedRun

NOT_MADE = "not called: its limit is reached"


class CallLimits:
    """The limits of one run that refuse calls."""

    def __init__(
        self,
        run: "GuardedRun",
        *,
        clock: Callable[[], datetime],
        catch_up: Callable[[], Ledger],
        judge: Callable[[Judge, RuleContext], list[FiredRule]],
        stop: Callable[[list[FiredRule], str, datetime], Stop | None],
    ) -> None:
        self._run, self._clock, self._catch_up = run, clock, catch_up
        self._judge, self._stop = judge, stop
        limits = run.limits
        self._is_spending_limited = bool(
            run.budgets.states or limits.max_cost is not None or limits.max_tokens is not None
        )
        self.is_set = bool(self._is_spending_limited or limits.tool_limits)
        """Whether calls may be refused: then no step may be put off."""
        self._states = run.budgets.states
        """The shared budgets, as the last call saw them."""
        self._at_work: dict[tuple[str, str], int] = defaultdict(int)
        """By agent and tool with a limit, calls that are begun and not recorded."""
        self._seen = NO_USAGE
        self._seen_calls: Counter[str] = Counter()
        """What answers have used, and by tool with a limit the calls that began, where a framework
        reports them later than it makes them.
        """

    def see_answer(self, usage: Usage) -> None:
        """Count an answer that will be recorded later, by the framework's report of it."""
        self._seen = add_usages(self._seen, usage)

    def see_call(self, tool: str) -> None:
        """Like `see_answer`, for a tool's call."""
        self._seen_calls.update(self._limited_names(tool))

    def end_call(self, agent: str, tool: str) -> None:
        """Count a tool's call as over: it is recorded, or it paused and will be made again."""
        for name in self._limited_names(tool):
            self._at_work[agent, name] = max(0, self._at_work[agent, name] - 1)

    def forget_calls(self) -> None:
        """Count no call as being made: a framework calls a tool again that has asked a person."""
        self._at_work.clear()
        self._seen_calls.clear()

    def judge(
        self, agent: str, tool: str, usage: Usage, calls: Sequence[ToolCall]
    ) -> list[FiredRule]:
        """Return the rules that refuse a call, of a model if `tool` is empty; `usage` and `calls`
        are those of the open step.
        """
        if not tool and not self._is_spending_limited:
            return []
        ledger = self._catch_up()
        if self._is_spending_limited:
            ledger = self._add_spending(ledger, usage)
        wanted = {name: self._calls_of(ledger, name, calls) for name in self._limited_names(tool)}
        ctx = RuleContext(
            replace(ledger, tool_calls={**ledger.tool_calls, **wanted}) if wanted else ledger,
            self._run.limits,
            agent=safe_name(agent),
            step=ledger.steps,
        )
        return self._judge(judge_call, ctx)

    def begin_call(self, agent: str, tool: str) -> None:
        """Count a call as being made, until it is recorded."""
        if not tool:  # an agent that asks its model has no tool at work
            for key in [key for key in self._at_work if key[0] == agent]:
                del self._at_work[key]
        for name in self._limited_names(tool):
            self._at_work[agent, name] += 1

    def end(self, agent: str, tool: str) -> Stop | None:
        """End the run by the limit that refuses the call; the open step is recorded before."""
        fired = self.judge(agent, tool, NO_USAGE, ())
        return self._stop(fired, safe_name(agent), self._clock()) if fired else None

    def _add_spending(self, ledger: Ledger, usage: Usage) -> Ledger:
        """Add what is used and not recorded, and what other runs have spent of shared budgets."""
        counts, budgets = self._run.errors.counts, self._run.budgets
        counts.count_events()
        tokens = max(usage.tokens, self._seen.tokens - counts.tokens)
        cost = max(usage.cost, self._seen.cost - counts.cost)
        if budgets.states and budgets.states is self._states:
            budgets.spend(NO_USAGE, self._clock())
        self._states = budgets.states
        states = {
            state.name: replace(state, tokens=state.tokens + tokens, cost=state.cost + cost)
            for state in budgets.states
        }
        return replace(
            ledger, tokens=ledger.tokens + tokens, cost=ledger.cost + cost, budgets=states
        )

    def _calls_of(self, ledger: Ledger, name: str, calls: Sequence[ToolCall]) -> ToolCount:
        """Return the calls of a tool, with those that are not recorded yet and this one."""
        unrecorded = sum(is_call_of(name, call.tool) for call in calls)
        unrecorded += sum(n for (_, tool), n in self._at_work.items() if tool == name)
        count = ledger.tool_calls.get(name, ToolCount())
        unrecorded = max(unrecorded, self._seen_calls[name] - count.calls)
        return count.add(ledger.steps, unrecorded + 1)

    def _limited_names(self, tool: str) -> list[str]:
        """Return the limits that count the tool's calls."""
        if not tool:
            return []
        tool = safe_name(tool)
        return [name for name in self._run.limits.tool_limits if is_call_of(name, tool)]
