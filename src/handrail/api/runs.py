"""The stream of all events, as server-sent events.

A position is the `id` of an event in its stream: in a run its number, in the feed of everything
"COMMIT-EVENT". The header `Last-Event-ID`, which browsers send by themselves, overrides `after`.

Runs: started, listed, shown, explained, replayed, and overridden by people.

Guarded runs: a program elsewhere reports what its guard sees.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta

from handrail.api.beads import TITLE_CHARS_MAX
from handrail.api.operation import VIEWER, Access, C_co, CallGroup, Repeat, event_stream, operation
from handrail.api.shared import (
    JSON,
    MARKDOWN,
    NAME_CHARS_MAX,
    AuthoredBody,
    DateTime,
    DefinitionId,
    Document,
    NulFreeText,
    PageQuery,
)
from handrail.kernel.decision import Value
from handrail.kernel.definition.limits import Limits
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.run.events import GuardedEvent
from handrail.kernel.run.guarded import ASK_SECONDS_MAX
from handrail.kernel.run.state import RunStatus, Stop
from handrail.replay.replay_report import REPLAYED_RUNS_MAX, ReplayResults
from handrail.views.guarded_run import GuardedRunStatus
from handrail.views.report import RunReport
from handrail.views.run_view import (
    RUN_IDS_MAX,
    NoteView,
    RunDetails,
    RunExplanation,
    RunItem,
    RunSummary,
    RunView,
)
from handrail.views.steps import StepDetails
from handrail.views.view_types import Page, TransitionView

# pyright: reportReturnType=false
# A declaration has no body.


POSITION_CHARS_MAX = 40
LAST_EVENT_TYPE = "ended"
"""The type of a run's last event."""
LAST_EVENT_ID_HEADER = "Last-Event-ID"


class PositionQuery(Value):
    after: (
        Annotated[
            str,
            Meta(
                max_length=POSITION_CHARS_MAX,
                description="As Last-Event-ID; 0 is the beginning.",
            ),
        ]
        | None
    ) = None


class StreamEvent(Value):
    """An event of a stream. `data` is the full event, as in the history."""

    id: str
    """The position in the stream; pass it as `after` to continue there."""
    type: str
    at: datetime
    execution_id: str = ""
    """Empty for an event of no run: see `stream` in the data."""
    seq: int = 0
    actor: str = ""
    data: dict[str, Any] = {}


class EventCalls(CallGroup[C_co], subject="events"):
    """The stream of all events."""

    @event_stream("/events", query=PositionQuery, access=VIEWER)
    def follow(self, after: str = "") -> StreamEvent:
        """Follow all events from now on, or from the one after position `after`, without end."""


# pyright: reportReturnType=false
# A declaration has no body.


VERSION_MAX = 2**31 - 1
REPLAY_SECONDS_MAX = 600.0
"""The longest that replaying recorded runs may take."""
OverrideAction = Literal["move", "close", "pause", "resume", "migrate"]
RunStatusName = Literal["running", "waiting", "paused", "ended"]


class NewRun(AuthoredBody, kw_only=True):
    """Defaults: the definition of the last run, from its start."""

    workflow_id: NulFreeText | None = None
    from_node: NulFreeText | None = None


class RunQuery(PageQuery):
    status: Annotated[RunStatus | None, Meta(description="Runs with this status.")] = None
    terminal_status: Annotated[TerminalStatus | None, Meta(description="Runs that ended so.")] = (
        None
    )
    workflow_id: DefinitionId | None = None
    q: (
        Annotated[
            str,
            Meta(
                max_length=200,
                description="Part of the title, or the start of the id of the run or its bead.",
            ),
        ]
        | None
    ) = None
    since: Annotated[DateTime, Meta(description="Begun at this time or later.")] | None = None
    ended_since: Annotated[DateTime, Meta(description="Ended at this time or later.")] | None = None
    ended_before: Annotated[DateTime, Meta(description="Ended before this time.")] | None = None


class RunIdsQuery(Value):
    ids: Annotated[
        str,
        Meta(
            max_length=100 * RUN_IDS_MAX,
            description=f"Of runs, {RUN_IDS_MAX} at most, with commas between.",
        ),
    ]


class WaitQuery(Value):
    wait: Annotated[
        float, Meta(ge=0, description="Answer at the end of the run, or after so many seconds.")
    ] = 0


class OverrideRequest(AuthoredBody, kw_only=True):
    """`move` needs `node`, `migrate` needs `version`; the run goes to `node`, else stays."""

    action: OverrideAction
    reason: Annotated[str, Meta(pattern=r"^\s*[^\s\x00][^\x00]*$")]  # no ambiguity: linear
    node: NulFreeText | None = None
    version: Annotated[int, Meta(ge=1, le=VERSION_MAX)] | None = None


class ReplayRequest(Value):
    """`rules`: fields of `stop_rules`, which override those of the definition, or the name of a
    profile."""

    ids: Annotated[tuple[NulFreeText, ...], Meta(min_length=1, max_length=REPLAYED_RUNS_MAX)]
    rules: dict[str, Any] | NulFreeText


class RunCalls(CallGroup[C_co], subject="runs"):
    """Beads going through definitions."""

    @operation(
        "POST",
        "/beads/{bead_id}/executions",
        body=NewRun,
        is_body_optional=True,
        access=Access(
            people="operator",
            restriction="an operator does not begin behind an approval; a ceo begins anywhere",
        ),
        status=201,
        problems=(404, 409),
    )
    def start(
        self,
        bead_id: str,
        *,
        workflow_id: str | None = None,
        from_node: str | None = None,
        key: str = "",
    ) -> RunView:
        """Start another run of the bead, or its first. 409 while a run of it is active."""

    @operation("GET", "/executions", query=RunQuery, access=VIEWER)
    def list(
        self,
        *,
        status: RunStatusName | None = None,
        terminal_status: str | None = None,
        workflow_id: str | None = None,
        q: str | None = None,
        since: datetime | str | None = None,
        ended_since: datetime | str | None = None,
        ended_before: datetime | str | None = None,
        limit: int | None = None,
        cursor: str = "",
    ) -> Page[RunItem]:
        """List runs, the newest first. `q` matches part of the title or the start of an id;
        `since` compares with the run's start."""

    @operation("GET", "/executions/summaries", query=RunIdsQuery, access=VIEWER)
    def list_summaries(self, ids: Sequence[str]) -> Page[RunSummary]:
        """Return the steps, remaining limits and cost of these runs, at most 100. Unknown runs are
        left out."""

    @operation("GET", "/executions/{execution_id}", query=WaitQuery, access=VIEWER, problems=(404,))
    def get(self, execution_id: str, *, wait: float = 0) -> RunView:
        """Return the run; with `wait`, when it ends or after that many seconds."""

    @operation("GET", "/executions/{execution_id}/whole", access=VIEWER, problems=(404,))
    def get_details(self, execution_id: str) -> RunDetails:
        """Return the run with its bead, steps, report and explanation, as of one moment."""

    @operation("GET", "/executions/{execution_id}/transitions", access=VIEWER, problems=(404,))
    def list_transitions(self, execution_id: str) -> tuple[TransitionView, ...]:
        """List the run's transitions in order, and who caused each."""

    @operation("GET", "/executions/{execution_id}/steps", access=VIEWER, problems=(404,))
    def list_steps(self, execution_id: str) -> Page[StepDetails]:
        """List every dispatch with its full result."""

    @operation("GET", "/executions/{execution_id}/notes", access=VIEWER, problems=(404,))
    def list_notes(self, execution_id: str) -> Page[NoteView]:
        """List refused attempts, the first 100: late, doubled and foreign results, answers to what
        is settled, forged names. They changed nothing and are kept as evidence."""

    @operation(
        "GET",
        "/executions/{execution_id}/report",
        access=VIEWER,
        media_types=(JSON, MARKDOWN),
        problems=(404,),
    )
    def get_report(self, execution_id: str) -> RunReport:
        """Return the report: what happened, and why the run stopped. With `Accept: text/markdown`
        it is a text for people."""

    @operation(
        "GET",
        "/executions/{execution_id}/report",
        access=VIEWER,
        media_types=(MARKDOWN,),
        is_variant=True,
    )
    def get_report_markdown(self, execution_id: str) -> str:
        """Return the report as Markdown."""

    @operation("GET", "/executions/{execution_id}/why", access=VIEWER, problems=(404,))
    def explain(self, execution_id: str) -> RunExplanation:
        """Explain why the run stopped, waits, or is not worked on, and what to do about it."""

    @operation(
        "POST",
        "/executions/{execution_id}/override",
        body=OverrideRequest,
        access=Access(
            people="operator",
            restriction="an operator only closes runs of beads it filed; a ceo does anything",
        ),
        problems=(404, 409),
    )
    def override(
        self,
        execution_id: str,
        action: OverrideAction,
        reason: str,
        *,
        node: str | None = None,
        version: int | None = None,
    ) -> RunView:
        """Move, close, pause, resume or migrate the run, with a reason."""

    @operation(
        "POST",
        "/executions/replay",
        body=ReplayRequest,
        access=VIEWER,
        repeat=Repeat.MEMORY,
        seconds_max=REPLAY_SECONDS_MAX,
    )
    def replay(self, ids: Sequence[str], rules: Document | str) -> ReplayResults:
        """Replay these runs under other stop rules, or under a profile: where each would have
        stopped, by which rule, and what would have been saved. No agent is run, and nothing is
        changed."""

    @event_stream(
        "/executions/{execution_id}/events",
        query=PositionQuery,
        access=VIEWER,
        problems=(404,),
        empty="There will be no more events.",
        last_type=LAST_EVENT_TYPE,
    )
    def follow(self, execution_id: str, after: int | None = None) -> StreamEvent:
        """Follow the run's events, from the one after `after` to the last. 204 once all were
        seen."""


# pyright: reportReturnType=false
# A declaration has no body.


EVENTS_MAX, PATHS_MAX = 1_000, 10_000
ANSWER_SECONDS_MIN = 0.1
TRACEPARENT_PATTERN = r"^(00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})?$(?!\n)"
URL_SAFE_PATTERN = r"^[^/\\]*[^/\\.\s][^/\\]*$"


class NewGuardedRun(Value):
    """`team` is the name of the definition, `agent` acts first; `carried` is what the guard counted
    in earlier runs of the same thread, as it wrote it; `traceparent` is the program's own span."""

    team: Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=URL_SAFE_PATTERN)]
    limits: Limits
    agent: Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=r"\S")]
    title: Annotated[NulFreeText, Meta(max_length=TITLE_CHARS_MAX)] = ""
    paths: Annotated[tuple[NulFreeText, ...], Meta(max_length=PATHS_MAX)] | None = None
    carried: dict[str, Any] | None = None
    dry_run: bool = False
    traceparent: Annotated[str, Meta(pattern=TRACEPARENT_PATTERN)] = ""


class GuardedEvents(Value):
    """Results, handoffs, warnings and the end, in order; `at` is the time by the caller's clock."""

    events: Annotated[tuple[GuardedEvent, ...], Meta(max_length=EVENTS_MAX)]
    at: Annotated[datetime, Meta(tz=True)]


ASK_OPTIONS_MAX = 10
GuardedOption = Annotated[NulFreeText, Meta(min_length=1, max_length=100)]


class NewGuardedApproval(Value):
    """Without an answer, the run ends after `seconds`. With a `stop` the question is whether the
    run goes on: else it ends by that."""

    question: Annotated[NulFreeText, Meta(min_length=1)]
    seconds: Annotated[float, Meta(ge=ANSWER_SECONDS_MIN, le=ASK_SECONDS_MAX)]
    options: Annotated[tuple[GuardedOption, ...], Meta(max_length=ASK_OPTIONS_MAX)] = ()
    """Answers to choose from; any other text is one as well."""
    stop: Stop | None = None


class GuardedRunCalls(CallGroup[C_co], subject="guarded_runs"):
    """Runs elsewhere, reported by their guard."""

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
        carried: Mapping[str, Any] | None = None,
        dry_run: bool = False,
        traceparent: str = "",
        key: str = "",
    ) -> GuardedRunStatus:
        """Begin the record of a run elsewhere, under a guard. `agent` acts first; `carried` is what
        the guard counted in earlier runs of the same thread; in a `dry_run` no rule
        ends the run. Its spans are below `traceparent`, the program's own."""

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
        self,
        execution_id: str,
        question: str,
        seconds: float,
        stop: Stop | None = None,
        *,
        options: Sequence[str] = (),
    ) -> GuardedRunStatus:
        """Ask a person; the run waits, and without an answer ends after `seconds`. With `stop`, ask
        whether it goes on."""
