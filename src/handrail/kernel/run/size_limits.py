"""Size limits of a run in sum: each result and each change is small by itself, but there are many.

1. The bead's context stays within the bounds of one value (`json_values.py`), for every writer.
2. All results together stay within RESULTS_BYTES_MAX, divided by the most dispatches of the run.
   With very many dispatches each result still has RESULT_BYTES_MIN.

A refusal for size changes nothing: the dispatch stays open for a smaller result.
"""

from typing import Any

import msgspec

from handrail.kernel.decision import Refusal
from handrail.kernel.json_values import VALUE_BYTES_MAX, find_json_problem
from handrail.kernel.result import merge_patch
from handrail.kernel.run.commands import Report
from handrail.kernel.run.decision_builder import DecisionBuilder, refuse
from handrail.kernel.run.state import Run

RESULTS_BYTES_MAX = 50_000_000
RESULT_BYTES_MIN = 250_000
"""Both count bytes of JSON."""
SMALL_BYTES = 50_000
"""Smaller values are within all bounds and need no further check."""

_encode = msgspec.json.Encoder().encode


def check_result_size(builder: DecisionBuilder, command: Report) -> Refusal | None:
    """Refuse a result that exceeds its share of the run's total."""
    size = len(_encode(command.result)) + len(command.malformed)
    if size > SMALL_BYTES:
        dispatches = builder.plan.bound(builder.run.context.get("task_scope")).dispatches
        share = result_bytes_max(dispatches)
        if size > share:
            message = (
                f"the result has {size:,} bytes; one of {dispatches:,} in this run has {share:,}"
            )
            return refuse(
                "result_too_large", message, "say less, and put the rest where it can be read"
            )
    return check_context_size(builder.run, command.result.data)


def result_bytes_max(dispatches: int) -> int:
    """Return the share of one result, of so many in the run."""
    return min(VALUE_BYTES_MAX, max(RESULT_BYTES_MIN, RESULTS_BYTES_MAX // max(1, dispatches)))


def check_context_size(run: Run, added: dict[str, Any]) -> Refusal | None:
    """Refuse an addition that would make the bead's context too large."""
    if not added:
        return None
    context = merge_patch(run.context, added)
    if len(_encode(context)) <= SMALL_BYTES or not (problem := find_json_problem(context)):
        return None
    message = f"with this the bead's context cannot be stored: {problem}"
    hint = "take something out of it (a null removes a key), or add less"
    return refuse("context_too_large", message, hint)
