"""Guarded runs: a program elsewhere reports what its guard sees."""

# pyright: reportReturnType=false
# A declaration has no body.

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Meta

from handrail.api.access import Access
from handrail.api.beads import TITLE_CHARS_MAX
from handrail.api.operation import C_co, CallGroup, operation
from handrail.api.shared import NAME_CHARS_MAX, NulFreeText
from handrail.kernel.decision import Value
from handrail.kernel.definition.limits import Limits
from handrail.kernel.run.events import GuardedEvent
from handrail.kernel.run.guarded import ASK_SECONDS_MAX
from handrail.views.guarded_run import GuardedRunStatus

EVENTS_MAX, PATHS_MAX = 1_000, 10_000
ANSWER_SECONDS_MIN = 0.1
URL_SAFE_PATTERN = r"^[^/\\]*[^/\\.\s][^/\\]*$"


class NewGuardedRun(Value):
    """`team` is the name of the definition, `agent` acts first."""

    team: Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=URL_SAFE_PATTERN)]
    limits: Limits
    agent: Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=r"\S")]
    title: Annotated[NulFreeText, Meta(max_length=TITLE_CHARS_MAX)] = ""
    paths: Annotated[tuple[NulFreeText, ...], Meta(max_length=PATHS_MAX)] | None = None


class GuardedEvents(Value):
    """Results, handoffs and the end, in order; `at` is the time by the caller's clock."""

    events: Annotated[tuple[GuardedEvent, ...], Meta(max_length=EVENTS_MAX)]
    at: Annotated[datetime, Meta(tz=True)]


class NewGuardedApproval(Value):
    """Without an answer, the run ends after `seconds`."""

    question: Annotated[NulFreeText, Meta(min_length=1)]
    seconds: Annotated[float, Meta(ge=ANSWER_SECONDS_MIN, le=ASK_SECONDS_MAX)]


class GuardedRunCalls(CallGroup[C_co]):
    subject = "guarded_runs"

    @operation(
        "POST",
        "/guarded-runs",
        body=NewGuardedRun,
        access=Access(
            people="operator",
            restriction="a guarded team is everybody's, and shows what was seen of it",
        ),
        status=201,
        problems=(409,),
    )
    def begin(
        self,
        team: str,
        limits: Limits,
        *,
        agent: str = "",
        title: str = "",
        paths: Sequence[str] | None = None,
        key: str = "",
    ) -> GuardedRunStatus:
        """Begin the record of a run elsewhere, under a guard. `agent` acts first."""

    @operation(
        "POST",
        "/guarded-runs/{execution_id}/events",
        body=GuardedEvents,
        access=Access(people="operator", restriction="only who began the guarded run tells of it"),
        problems=(403, 404, 409),
    )
    def record(
        self, execution_id: str, events: Sequence[GuardedEvent], at: datetime, *, key: str = ""
    ) -> GuardedRunStatus:
        """Record new events of the guard; none are a sign of life. `at` is the current time by the
        caller's clock. 409 once the run has ended here."""

    @operation(
        "POST",
        "/guarded-runs/{execution_id}/question",
        body=NewGuardedApproval,
        access=Access(people="operator", restriction="only who began the guarded run asks for it"),
        problems=(403, 404, 409),
    )
    def request_approval(
        self, execution_id: str, question: str, seconds: float
    ) -> GuardedRunStatus:
        """Ask a person; the run waits, and without an answer ends after `seconds`."""
