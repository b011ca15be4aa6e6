"""A guarded run in the program's own OpenTelemetry trace.

The run is a span below the one that was current when it began; stops, nudges, redirects and
approvals are its events.

Rules
1. Nothing of OpenTelemetry is imported: a program that has traces has imported it.
2. What happened is read from the run's events at its end, so that no step costs more.
3. No texts of agents, tools and people: names, numbers, rules, and the reason of the stop as it is
   recorded.
"""

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from handrail.guard.prices import add_usages
from handrail.kernel.result import Usage
from handrail.kernel.run.events import Ended, HandedOff, Reported, RunEvent, Warned
from handrail.telemetry.spans import (
    COMPLETED,
    GOOD_STATUSES,
    Attribute,
    nonempty_attributes,
    stop_attributes,
    truncate,
    usage_attributes,
)

EVENTS_MAX = 100
"""Of one span, beside its stop: OpenTelemetry keeps 128 by default."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RunSpan:
    """The span of one run."""

    def __init__(self, api: Any, span: Any) -> None:
        self._api, self._span = api, span

    @property
    def sampled_traceparent(self) -> str:
        """The span as the W3C header names it; empty if nobody will see it."""
        context = self._span.get_span_context()
        if not context.trace_flags.sampled:
            return ""
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def add_approval(self, by: str, *, answered: bool) -> None:
        """Note that a person was asked, or the program's own function (`by` is empty)."""
        decision = "answered" if answered else "unanswered"
        attributes = {"handrail.decision": decision, "handrail.answered_by": by}
        self._span.add_event("handrail.approval", nonempty_attributes(attributes))

    def end(self, events: Sequence[RunEvent], recorded: str) -> None:
        """End the span with what the run's events say."""
        ended = events[-1]
        if self._span.is_recording():
            for name, at, attributes in islice(_notable(events), EVENTS_MAX):
                self._span.add_event(name, attributes, _nanoseconds(at))
            self._span.set_attributes(_usage_attributes(events))
            self._span.set_attribute("handrail.run.id", recorded)
            if isinstance(ended, Ended):
                self._describe_end(ended)
        self._span.end(_nanoseconds(ended.at))

    def _describe_end(self, ended: Ended) -> None:
        attributes = stop_attributes(ended.stop)
        if ended.stop.rule != COMPLETED:
            self._span.add_event("handrail.stop", attributes, _nanoseconds(ended.at))
        self._span.set_attributes({"handrail.terminal_status": ended.status.value, **attributes})
        if ended.status not in GOOD_STATUSES:
            self._span.set_attribute("error.type", ended.stop.rule.value)
            reason = truncate(ended.stop.reason)
            self._span.set_status(self._api.Status(self._api.StatusCode.ERROR, reason))


def begin_span(team: str, at: datetime) -> RunSpan | None:
    """Begin the span of a run; None if the program has no traces."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    attributes = {"gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": team}
    span = api.get_tracer("handrail").start_span(
        f"invoke_workflow {team}", attributes=attributes, start_time=_nanoseconds(at)
    )
    return RunSpan(api, span) if span.get_span_context().is_valid else None


def _notable(events: Sequence[RunEvent]) -> Iterator[tuple[str, datetime, dict[str, Attribute]]]:
    for event in events:
        if isinstance(event, Warned):
            yield _describe_warning(event)
        elif isinstance(event, HandedOff) and event.proposed:
            attributes = {
                "handrail.from": event.source,
                "handrail.proposed": event.proposed[0],
                "handrail.to": event.target,
                "handrail.stop.rule": event.rule.value if event.rule is not None else "",
            }
            yield "handrail.redirect", event.at, nonempty_attributes(attributes)


def _describe_warning(event: Warned) -> tuple[str, datetime, dict[str, Attribute]]:
    nudge = event.nudge
    if nudge is not None:
        attributes = {
            "handrail.stop.rule": nudge.rule.value,
            "handrail.stop.limit": nudge.limit,
            "handrail.stop.seen": nudge.count,
        }
        return "handrail.nudge", event.at, nonempty_attributes(attributes)
    rule = event.rule.value if event.rule is not None else ""
    attributes = {"handrail.warning": event.code, "handrail.stop.rule": rule}
    return "handrail.warning", event.at, nonempty_attributes(attributes)


def _usage_attributes(events: Sequence[RunEvent]) -> dict[str, Attribute]:
    """Return what the whole run has used, by the names of the GenAI conventions."""
    usage, steps = Usage(), 0
    for event in events:
        if isinstance(event, Reported):
            usage, steps = add_usages(usage, event.result.usage), steps + 1
    return nonempty_attributes(usage_attributes(usage) | {"handrail.steps": steps})


def _nanoseconds(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1) * 1_000
