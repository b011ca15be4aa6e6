"""The logs of runs and channels: listeners that write lines for the events that are on disk.

A run has a line for every event. The table in `log_events.py` says which fields a line has, and
where an event has them. `_SPECIAL_LINES` has what the table cannot say: fields that come from the
run, and events that become other lines than one of their own name.

A channel has a line for every transition of an agent (T12), and for doubtful or announced events.
"""

import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from operator import attrgetter
from typing import Any, get_args

from handrail.engine.commit.channel_change import ChannelStreamChange, Noticed
from handrail.engine.commit.stream_change import RunChange
from handrail.engine.log_events import (
    AGENT_EVENTS,
    CHANNEL_EVENTS,
    RUN_EVENTS,
    LogEventSpec,
    LogMessage,
)
from handrail.engine.notifier import EngineNotification
from handrail.kernel.agent_lifecycle import AgentState, Trigger, log_name
from handrail.kernel.channel.events import ChannelWarned, Transitioned
from handrail.kernel.run.events import Ended, Moved, Patched, RunEvent
from handrail.kernel.run.machine import Run
from handrail.views.history import event_transitions

run_log = logging.getLogger("handrail.run")
agents_log = logging.getLogger("handrail.agents")
channels_log = logging.getLogger("handrail.channels")

Fields = dict[str, Any]


class RunLogger:
    """For `engine.listeners`."""

    def __call__(self, notification: EngineNotification) -> None:
        if not isinstance(notification, RunChange) or notification.run is None:
            return
        level_min, run = run_log.getEffectiveLevel(), notification.run
        for seq, event in enumerate(notification.events, run.seq - len(notification.events) + 1):
            if _LEVELS[type(event)] >= level_min:
                for name, fields in _run_lines(run, event):
                    line = LogMessage(
                        name, {"execution_id": run.id, "seq": seq, **fields}, event.at
                    )
                    _write(run_log, RUN_EVENTS[name].level, line)


class ChannelLogger:
    """For `engine.listeners`."""

    def __call__(self, notification: EngineNotification) -> None:
        if not isinstance(notification, ChannelStreamChange):
            return
        channel = notification.channel.id
        for stamped in notification.events:
            match stamped.event:
                case Transitioned(agent_id=agent, from_=old, to=new, trigger=trigger):
                    log_transition(agent, old, new, trigger, channel, stamped.at)
                case ChannelWarned(code=code, agent_id=agent, message=message):
                    fields = {"channel": channel, "code": code, "agent": agent, "message": message}
                    _log_channel_line("channel_warned", fields, stamped.at)
                case Noticed(code=code, text=text):
                    fields = {"channel": channel, "code": code, "text": text}
                    _log_channel_line("channel_noticed", fields, stamped.at)
                case _:
                    pass


def _log_channel_line(name: str, fields: Fields, at: datetime) -> None:
    _write(channels_log, CHANNEL_EVENTS[name].level, LogMessage(name, fields, at))


def log_transition(
    agent: str,
    old: AgentState,
    new: AgentState,
    trigger: Trigger,
    channel: str | None,
    at: datetime,
) -> None:
    """Log that an agent changed its state, in a channel or (None) in all."""
    fields = {
        "agentId": agent,
        "from": old.value,
        "to": new.value,
        "trigger": log_name(trigger),
        "channel": channel,
    }
    level = AGENT_EVENTS["state_transition"].level
    _write(agents_log, level, LogMessage("state_transition", fields, at))


def _write(logger: logging.Logger, level: int, line: LogMessage) -> None:
    """Log a line without looking up the caller, which costs more than the rest."""
    if logger.isEnabledFor(level):
        logger.handle(logging.LogRecord(logger.name, level, "", 0, line, None, None))


def _run_lines(run: Run, event: RunEvent) -> Iterator[tuple[str, Fields]]:
    """The lines that one event becomes; `run` is as it stands after its commit."""
    special = _SPECIAL_LINES.get(type(event))
    if special is not None:
        yield from special(run, event)
    else:
        name = type(event).__struct_config__.tag
        yield str(name), _read_fields(str(name), event)


def _read_fields(name: str, event: RunEvent) -> Fields:
    names, read = _READERS[name]
    return dict(zip(names, read(event), strict=True))


def _ended_lines(run: Run, event: Ended) -> Iterator[tuple[str, Fields]]:
    yield (
        "ended",
        {
            **_read_fields("ended", event),
            "bead_id": run.bead_id,
            "workflow_id": run.definition_id,
            "final_agent": run.final_agent,
            "seconds": (event.at - run.started_at).total_seconds(),
            "steps": run.ledger.steps,
        },
    )
    if event.stop.pattern:
        yield "loop_detected", _read_fields("loop_detected", event)


def _moved_lines(_: Run, event: Moved) -> Iterator[tuple[str, Fields]]:
    for source, target, outcome, reason, actor in event_transitions(event):
        yield (
            "moved",
            {
                "from_node_id": source,
                "to_node_id": target,
                "outcome": outcome,
                "reason": reason,
                "actor": actor,
            },
        )


def _patched_lines(_: Run, event: Patched) -> Iterator[tuple[str, Fields]]:
    yield (
        "patched",
        {**_read_fields("patched", event), "keys": sorted({*event.patch, *event.files})},
    )


_SPECIAL_LINES: dict[type[RunEvent], Callable[[Run, Any], Iterator[tuple[str, Fields]]]] = {
    Ended: _ended_lines,
    Moved: _moved_lines,
    Patched: _patched_lines,
}


def _field_reader(
    spec: LogEventSpec,
) -> tuple[tuple[str, ...], Callable[[RunEvent], tuple[Any, ...]]]:
    """The names of an event's fields, and a function that reads all of them."""
    pairs = [field.split("=") if "=" in field else (field, field) for field in spec.fields]
    names, paths = zip(*((name, path) for name, path in pairs if path), strict=True)
    getter = attrgetter(*paths)
    return names, getter if len(paths) > 1 else lambda event: (getter(event),)


_READERS = {name: _field_reader(line) for name, line in RUN_EVENTS.items() if name != "moved"}
_LEVELS = {kind: RUN_EVENTS[str(kind.__struct_config__.tag)].level for kind in get_args(RunEvent)}
_LEVELS[Ended] = RUN_EVENTS["loop_detected"].level
"""The highest level of the lines that an event becomes."""
