"""The calls about guarded runs: a program elsewhere tells a server what its guard sees."""

from collections.abc import Sequence
from datetime import datetime

from handrail.client.call import Call, join_path, json_send
from handrail.client.endpoint import endpoint
from handrail.kernel.decision import Value
from handrail.kernel.definition.limits import Limits
from handrail.kernel.run.events import Ended, HandedOff, Reported
from handrail.kernel.run.state import Stop

GuardedEvent = Reported | HandedOff | Ended


class GuardedRunStatus(Value):
    """How a guarded run stands on record. `question` is the id of the one that was just asked."""

    id: str
    status: str
    stop: Stop | None = None
    question: str = ""


def guarded_run_call(
    team: str,
    limits: Limits,
    *,
    title: str = "",
    agent: str = "",
    paths: Sequence[str] | None = None,
    key: str = "",
) -> Call[GuardedRunStatus]:
    body = {"team": team, "limits": limits, "title": title, "agent": agent, "paths": paths}
    return json_send("POST", "/guarded-runs", GuardedRunStatus, body, key=key)


def guarded_events_call(
    execution_id: str, events: Sequence[GuardedEvent], at: datetime, *, key: str = ""
) -> Call[GuardedRunStatus]:
    body = {"events": events, "at": at}
    return json_send(
        "POST", join_path("guarded-runs", execution_id, "events"), GuardedRunStatus, body, key=key
    )


class GuardCalls:
    @endpoint
    def begin_guarded_run(
        self,
        team: str,
        limits: Limits,
        *,
        title: str = "",
        agent: str = "",
        paths: Sequence[str] | None = None,
    ) -> Call[GuardedRunStatus]:
        """A run that goes on elsewhere, under a guard. `agent` has the turn first."""
        return guarded_run_call(team, limits, title=title, agent=agent, paths=paths)

    @endpoint
    def record_guarded_events(
        self, execution_id: str, events: Sequence[GuardedEvent], at: datetime
    ) -> Call[GuardedRunStatus]:
        """What its guard has seen since; `at` is what the teller's clock says now."""
        return guarded_events_call(execution_id, events, at)

    @endpoint
    def request_guarded_approval(
        self, execution_id: str, question: str, seconds: float
    ) -> Call[GuardedRunStatus]:
        """A question to a person; unanswered, the run ends after so many seconds."""
        body = {"question": question, "seconds": seconds}
        return json_send(
            "POST", join_path("guarded-runs", execution_id, "question"), GuardedRunStatus, body
        )
