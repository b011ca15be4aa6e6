"""The public form of an event: in streams, in the history of a run or a bead, in the audit log.

    {execution_id, seq, type, at, actor, …the event's own fields}

`actor` is a person, an agent, or "engine". ACTOR_FIELDS maps an event type to the field with the
actor's name; without such a field, or if it is empty, the actor is the engine.
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
ACTS_OF_NO_RUN = frozenset(
    {"archived", "memory_corrected", "memory_removed"}
    | {"token_created", "token_revoked", "sign_in_created", "session_revoked", "definition_stored"}
    | {"budget_set", "budget_deleted", "webhook_created", "webhook_removed"}
    | {"bead_filed", "bead_changed", "file_attached"}
)
HUMAN_ACT_TYPES = ACTS_OF_NO_RUN | frozenset(
    {"started", "moved", "answered", "paused", "resumed", "patched", "migrated"}
)
"""Events that are a person's act if they name an actor."""


def event_view(execution_id: str, seq: int, event: RunEvent | Mapping[str, Any]) -> EventView:
    """Return the view of a run's event, or of its JSON form."""
    fields: Mapping[str, Any] = (
        event if isinstance(event, Mapping) else msgspec.to_builtins(event)  # pyright: ignore[reportUnknownMemberType]
    )
    event_type = fields["type"]
    actor = fields.get(ACTOR_FIELDS.get(event_type, ""), "") or ENGINE_ACTOR
    head = {"execution_id": execution_id, "seq": seq, "type": event_type, "at": fields["at"]}
    return {**head, "actor": actor, **fields}


def is_human_act_or_end(event: EventView) -> bool:
    """Whether a person caused the event, or it ended a run."""
    event_type = event["type"]
    return event_type == "ended" or (
        event_type in HUMAN_ACT_TYPES and event["actor"] != ENGINE_ACTOR
    )
