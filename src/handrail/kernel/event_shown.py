"""An event as it is shown: in streams, in the history of a run or a bead, in the audit log.

    {execution_id, seq, type, at, actor, …the event's own fields}

`actor` is who did it: a person, an agent, or "engine". Which field of an event names them is a row
of ACTORS; an event whose row names no field, or leaves it empty, is the engine's own doing.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from handrail.kernel.run.events import RunEvent

ShownEvent = dict[str, Any]

ENGINE = "engine"
ACTORS: dict[str, str] = {
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
PEOPLE = frozenset(
    {"started", "moved", "answered", "paused", "resumed", "patched", "migrated"}
    | {"archived", "memory_corrected", "memory_removed"}
)
"""Events that are a person's act if somebody is named; the last are not of a run."""


def shown_event(execution_id: str, seq: int, event: RunEvent | Mapping[str, Any]) -> ShownEvent:
    """An event of a run, or its JSON form."""
    fields: Mapping[str, Any] = (
        event if isinstance(event, Mapping) else msgspec.to_builtins(event)  # pyright: ignore[reportUnknownMemberType]
    )
    kind = fields["type"]
    who = fields.get(ACTORS.get(kind, ""), "") or ENGINE
    head = {"execution_id": execution_id, "seq": seq, "type": kind, "at": fields["at"]}
    return {**head, "actor": who, **fields}


def is_act_or_end(shown: ShownEvent) -> bool:
    """Whether a person did it, or a run ended by it."""
    kind = shown["type"]
    return kind == "ended" or (kind in PEOPLE and shown["actor"] != ENGINE)
