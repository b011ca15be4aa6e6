"""The stream of all events, as server-sent events.

A position is the `id` of an event in its stream: in a run its number, in the feed of everything
"COMMIT-EVENT". The header `Last-Event-ID`, which browsers send by themselves, overrides `after`.
"""

# pyright: reportReturnType=false
# A declaration has no body.

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from handrail.api.access import VIEWER
from handrail.api.operation import C_co, CallGroup, event_stream
from handrail.kernel.decision import Value

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


class EventCalls(CallGroup[C_co]):
    subject = "events"

    @event_stream("/events", query=PositionQuery, access=VIEWER)
    def follow(self, after: str = "") -> StreamEvent:
        """Follow all events from now on, or from the one after position `after`, without end."""
