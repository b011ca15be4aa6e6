"""The log of runs: a listener that writes a line for every event that is on disk.

The table in `log_events.py` says which fields a line has, and where an event has them.
`_SPECIAL_LINES` has what the table cannot say: fields that come from the run, and events that
become other lines than one of their own name.
"""

import logging
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, get_args

from handrail.engine.commit.stream_change import RunChange
from handrail.engine.listeners import EngineNotification
from handrail.engine.log_events import RUN_EVENTS, LogEventSpec, LogMessage
from handrail.kernel.run.events import Ended, Moved, Patched, RunEvent
from handrail.kernel.run.machine import Run
from handrail.views.history import event_transitions

log = logging.getLogger("handrail.run")

Fields = dict[str, Any]


class RunLogger:
    """For `engine.listeners`."""

    def __call__(self, notification: EngineNotification) -> None:
        if not isinstance(notification, RunChange) or notification.run is None:
            return
        level_min, run = log.getEffectiveLevel(), notification.run
        for seq, event in enumerate(notification.events, run.seq - len(notification.events) + 1):
            if _LEVELS[type(event)] >= level_min:
                for name, fields in log_lines(run, event):
                    log_run_line(name, {"execution_id": run.id, "seq": seq, **fields}, event)


def log_run_line(name: str, fields: Fields, event: RunEvent) -> None:
    level = RUN_EVENTS[name].level
    if log.isEnabledFor(level):
        log.handle(make_record(log.name, level, LogMessage(name, fields, event.at)))


def make_record(logger: str, level: int, message: LogMessage) -> logging.LogRecord:
    """Make a record without looking up the caller, which costs more than the rest."""
    return logging.LogRecord(logger, level, "", 0, message, None, None)


def log_lines(run: Run, event: RunEvent) -> Iterator[tuple[str, Fields]]:
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
