"""The calls about guarded runs: a program elsewhere reports what its guard sees."""

from collections.abc import Sequence
from datetime import datetime

from handrail.client.call import Call, join_path, json_send
from handrail.client.endpoint import endpoint
from handrail.kernel.definition.limits import Limits
from handrail.kernel.run.events import GuardedEvent
from handrail.views.guarded_run import GuardedRunStatus


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
        """Begin the record of a run elsewhere, under a guard. `agent` acts first."""
        return guarded_run_call(team, limits, title=title, agent=agent, paths=paths)

    @endpoint
    def record_guarded_events(
        self, execution_id: str, events: Sequence[GuardedEvent], at: datetime
    ) -> Call[GuardedRunStatus]:
        """Record new events of the guard; `at` is the current time by the caller's clock."""
        return guarded_events_call(execution_id, events, at)

    @endpoint
    def request_guarded_approval(
        self, execution_id: str, question: str, seconds: float
    ) -> Call[GuardedRunStatus]:
        """Ask a person; without an answer, the run ends after `seconds`."""
        body = {"question": question, "seconds": seconds}
        return json_send(
            "POST", join_path("guarded-runs", execution_id, "question"), GuardedRunStatus, body
        )
