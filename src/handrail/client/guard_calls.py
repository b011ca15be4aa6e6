"""The calls about guarded runs: a program elsewhere tells a server what its guard sees."""

from collections.abc import Sequence
from datetime import datetime

from handrail.client.call import Call, path, send
from handrail.client.endpoint import endpoint
from handrail.kernel.decision import Value
from handrail.kernel.limits import Limits
from handrail.kernel.run.events import Ended, HandedOff, Reported
from handrail.kernel.run.state import Stop

Seen = Reported | HandedOff | Ended


class Heard(Value):
    """How a guarded run stands on record. `question` is the id of the one that was just asked."""

    id: str
    status: str
    stop: Stop | None = None
    question: str = ""


def begin(
    team: str,
    limits: Limits,
    *,
    title: str = "",
    agent: str = "",
    paths: Sequence[str] | None = None,
    key: str = "",
) -> Call[Heard]:
    body = {"team": team, "limits": limits, "title": title, "agent": agent, "paths": paths}
    return send("POST", "/guarded-runs", Heard, body, key=key)


def told(execution_id: str, events: Sequence[Seen], at: datetime, *, key: str = "") -> Call[Heard]:
    body = {"events": events, "at": at}
    return send("POST", path("guarded-runs", execution_id, "events"), Heard, body, key=key)


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
    ) -> Call[Heard]:
        """A run that goes on elsewhere, under a guard. `agent` has the turn first."""
        return begin(team, limits, title=title, agent=agent, paths=paths)

    @endpoint
    def tell_guarded_run(
        self, execution_id: str, events: Sequence[Seen], at: datetime
    ) -> Call[Heard]:
        """What its guard has seen since; `at` is what the teller's clock says now."""
        return told(execution_id, events, at)

    @endpoint
    def ask_for_guarded_run(self, execution_id: str, question: str, seconds: float) -> Call[Heard]:
        """A question to a person; unanswered, the run ends after so many seconds."""
        body = {"question": question, "seconds": seconds}
        return send("POST", path("guarded-runs", execution_id, "question"), Heard, body)
