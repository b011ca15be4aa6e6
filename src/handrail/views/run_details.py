"""A run with everything that a page shows beside it, and why it stopped or waits."""

from datetime import datetime

from handrail.kernel.decision import Value
from handrail.views.beads import BeadView
from handrail.views.report import RunReport
from handrail.views.run_view import RunView
from handrail.views.steps import StepDetails
from handrail.views.view_types import StopView, View


class WaitReason(Value):
    """One open position of a run. `code` is for programs, `message` and `hint` for people."""

    place: str
    code: str
    message: str
    since: datetime
    hint: str = ""


class RunExplanation(View):
    """Why a run stopped, or what each of its open positions waits for; `next` says what to do."""

    status: str
    terminal_status: str | None
    why: str
    """In one sentence."""
    next: str
    stop: StopView | None
    waiting: tuple[WaitReason, ...]
    notes: tuple[str, ...]
    """Further notes: a newer version of the run's definition."""


class RunDetails(View):
    """The details of a run. The report holds the transitions; its own steps are those in
    `steps`."""

    run: RunView
    bead: BeadView
    steps: tuple[StepDetails, ...]
    report: RunReport
    why: RunExplanation
