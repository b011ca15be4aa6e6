"""How often the tools that have a limit were called in a stretch.

A call counts by its tool's name. A command that agents report counts for the tool that it is, or
that it begins with: `pytest -q tests` is a call of `pytest`. Where a host shows tool calls, they
count, and the commands beside them are the same calls once more. A call counts whatever came of it.
"""

from collections.abc import Mapping

from handrail.kernel.decision import Value
from handrail.kernel.result import Evidence
from handrail.kernel.stop.findings import FindingKind

STEPS_KEPT = 50


class ToolCount(Value):
    """The calls of one tool: all of the stretch, and those of the last steps that had any."""

    calls: int = 0
    by_step: tuple[tuple[int, int], ...] = ()
    """Pairs of a step and its calls."""

    def add(self, step: int, calls: int) -> "ToolCount":
        by_step = (*self.by_step[1 - STEPS_KEPT :], (step, calls))
        return ToolCount(calls=self.calls + calls, by_step=by_step)

    def needed_steps(self, limit: int) -> tuple[int, ...]:
        """Return the steps without which the calls would be within the limit."""
        return tuple(step for step, calls in self.by_step if self.calls - calls <= limit)


def add_tool_calls(
    counts: dict[str, ToolCount], limits: Mapping[str, int], step: int, evidence: Evidence
) -> dict[str, ToolCount]:
    """Return the counts after the evidence of a step."""
    names = [finding.tool for finding in evidence.findings if finding.kind is FindingKind.CALL]
    names = names or [check.command for check in evidence.checks]
    for tool in limits:
        calls = sum(is_call_of(tool, name) for name in names)
        if calls:
            counts = {**counts, tool: counts.get(tool, ToolCount()).add(step, calls)}
    return counts


def is_call_of(tool: str, call: str) -> bool:
    """Whether a call's name, or a command, counts for the tool."""
    return call == tool or call.startswith(f"{tool} ")
