"""What a run may hold in sum: each result and each change is small enough by itself, and there are
many of them.

1. The bead's context stays within what one value may be (`plain.py`), whoever adds to it.
2. All results together stay within RESULTS_MAX: each has its share, by how many there can be at
   most. Of definitions with very many dispatches each has RESULT_LEAST all the same.

What is refused for this changes nothing: the dispatch stays open, and a smaller result is taken.
"""

from typing import Any

import msgspec

from handrail.kernel.decision import Refusal
from handrail.kernel.plain import SIZE_MAX, why_not_plain
from handrail.kernel.result import merged
from handrail.kernel.run.book import Book, refuse
from handrail.kernel.run.commands import Report
from handrail.kernel.run.state import Run

RESULTS_MAX = 50_000_000
RESULT_LEAST = 250_000
"""Bytes, as JSON has them."""
SMALL = 50_000
"""What is below this is within all bounds, and needs no closer look."""

_encode = msgspec.json.Encoder().encode


def too_large_a_result(book: Book, command: Report) -> Refusal | None:
    """Why the run cannot hold this result beside all that may come."""
    size = len(_encode(command.result)) + len(command.malformed)
    if size > SMALL:
        dispatches = book.plan.bound(book.run.context.get("task_scope")).dispatches
        share = min(SIZE_MAX, max(RESULT_LEAST, RESULTS_MAX // max(1, dispatches)))
        if size > share:
            told = f"the result has {size:,} bytes; one of {dispatches:,} in this run has {share:,}"
            return refuse(
                "result_too_large", told, "say less, and put the rest where it can be read"
            )
    return too_large_a_context(book.run, command.result.data)


def too_large_a_context(run: Run, added: dict[str, Any]) -> Refusal | None:
    """Why the bead cannot hold this beside what is there."""
    if not added:
        return None
    context = merged(run.context, added)
    if len(_encode(context)) <= SMALL or not (why := why_not_plain(context)):
        return None
    told = f"with this the bead's context cannot be stored: {why}"
    hint = "take something out of it (a null removes a key), or add less"
    return refuse("context_too_large", told, hint)
