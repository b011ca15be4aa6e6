"""An event as it is shown: in streams, in the history of a run or a bead, in the audit log.

    {execution_id, seq, type, at, actor, …the event's own fields}

`actor` is who did it: a person, an agent, or "engine". Which field of an event names them is a row
of ACTORS; an event whose row names no field, or leaves it empty, is the engine's own doing.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from handrail.kernel.run.events import RunEvent

EventView = dict[str, Any]

ENGINE_ACTOR = "engine"
ACTOR_FIELDS: dict[str, str] = {
    "started": "filed_by",
    "offered": "",
    "claimed": "agent",
    "reported": "agent",
    "faulted": "agent",
    "lost": "",
    "timed_out": "",
    "handed_off": "source",
    "moved": "by",
    "asked": "",
    "answered": "by",
    "reasked": "",
    "paused": "by",
    "resumed": "by",
    "patched": "by",
    "migrated": "by",
    "clocks_pushed": "",
    "heard_of": "",
    "warned": "",
    "ended": "by",
}
HUMAN_ACT_TYPES = frozenset(
    {"started", "moved", "answered", "paused", "resumed", "patched", "migrated"}
    | {"archived", "memory_corrected", "memory_removed"}
)
"""Events that are a person's act if somebody is named; the last are not of a run."""


def event_view(execution_id: str, seq: int, event: RunEvent | Mapping[str, Any]) -> EventView:
    """An event of a run, or its JSON form."""
    fields: Mapping[str, Any] = (
        event if isinstance(event, Mapping) else msgspec.to_builtins(event)  # pyright: ignore[reportUnknownMemberType]
    )
    event_type = fields["type"]
    actor = fields.get(ACTOR_FIELDS.get(event_type, ""), "") or ENGINE_ACTOR
    head = {"execution_id": execution_id, "seq": seq, "type": event_type, "at": fields["at"]}
    return {**head, "actor": actor, **fields}


def is_human_act_or_end(event: EventView) -> bool:
    """Whether a person did it, or a run ended by it."""
    event_type = event["type"]
    return event_type == "ended" or (
        event_type in HUMAN_ACT_TYPES and event["actor"] != ENGINE_ACTOR
    )
