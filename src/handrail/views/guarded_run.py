"""The status of a guarded run, as its program sees it."""

import msgspec

from handrail.kernel.decision import Value
from handrail.kernel.run.state import Run, Stop


class GuardedRunStatus(Value):
    """The recorded status of a guarded run. `question` is the id of the new approval."""

    id: str
    status: str
    stop: Stop | None = None
    question: str = ""


decode_guarded_run_status = msgspec.json.Decoder(GuardedRunStatus).decode


def guarded_run_status(run: Run, *, with_question: bool = False) -> GuardedRunStatus:
    """Show the run to its program; `with_question`: with the approval that it opened last."""
    return GuardedRunStatus(
        id=run.id,
        status=run.status,
        stop=run.stop,
        question=f"{run.id}.q{run.approvals_opened}" if with_question else "",
    )
