"""The log of runs: a listener that writes a line for every event that is on disk.

Which fields a line has, and where an event has them, is the table's business (`vocabulary.py`).
What the table cannot say stands in `_MORE`: fields that come from the run, and events that become
other lines than one of their own name.
"""

import logging
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, get_args

from handrail.engine.listeners import Heard
from handrail.engine.vocabulary import RUNS, Line, Said
from handrail.engine.works import RunWork
from handrail.kernel.history import passages
from handrail.kernel.run.events import Ended, Moved, Patched, RunEvent
from handrail.kernel.run.machine import Run

log = logging.getLogger("handrail.run")

Fields = dict[str, Any]


class RunLines:
    """For `engine.listeners`."""

    def __call__(self, heard: Heard) -> None:
        if not isinstance(heard, RunWork) or heard.run is None:
            return
        least, run = log.getEffectiveLevel(), heard.run
        for seq, event in enumerate(heard.events, run.seq - len(heard.events) + 1):
            if _LEVELS[type(event)] >= least:
                for name, fields in lines(run, event):
                    said(name, {"execution_id": run.id, "seq": seq, **fields}, event)


def said(name: str, fields: Fields, event: RunEvent) -> None:
    level = RUNS[name].level
    if log.isEnabledFor(level):
        log.handle(record(log.name, level, Said(name, fields, event.at)))


def record(logger: str, level: int, line: Said) -> logging.LogRecord:
    """Without a look at who called, which costs more than the rest."""
    return logging.LogRecord(logger, level, "", 0, line, None, None)


def lines(run: Run, event: RunEvent) -> Iterator[tuple[str, Fields]]:
    """The lines that one event becomes; `run` is as it stands after its commit."""
    more = _MORE.get(type(event))
    if more is not None:
        yield from more(run, event)
    else:
        name = type(event).__struct_config__.tag
        yield str(name), _read(str(name), event)


def _read(name: str, event: RunEvent) -> Fields:
    names, read = _READERS[name]
    return dict(zip(names, read(event), strict=True))


def _ended(run: Run, event: Ended) -> Iterator[tuple[str, Fields]]:
    yield (
        "ended",
        {
            **_read("ended", event),
            "bead_id": run.bead_id,
            "workflow_id": run.definition_id,
            "final_agent": run.final_agent,
            "seconds": (event.at - run.started_at).total_seconds(),
            "steps": run.ledger.steps,
        },
    )
    if event.stop.pattern:
        yield "loop_detected", _read("loop_detected", event)


def _moved(_: Run, event: Moved) -> Iterator[tuple[str, Fields]]:
    for source, target, outcome, reason, actor in passages(event):
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


def _patched(_: Run, event: Patched) -> Iterator[tuple[str, Fields]]:
    yield "patched", {**_read("patched", event), "keys": sorted({*event.patch, *event.files})}


_MORE: dict[type[RunEvent], Callable[[Run, Any], Iterator[tuple[str, Fields]]]] = {
    Ended: _ended,
    Moved: _moved,
    Patched: _patched,
}


def _reader(line: Line) -> tuple[tuple[str, ...], Callable[[RunEvent], tuple[Any, ...]]]:
    """The names of what an event has, and a function that reads it all."""
    pairs = [field.split("=") if "=" in field else (field, field) for field in line.fields]
    names, paths = zip(*((name, path) for name, path in pairs if path), strict=True)
    read = attrgetter(*paths)
    return names, read if len(paths) > 1 else lambda event: (read(event),)


_READERS = {name: _reader(line) for name, line in RUNS.items() if name != "moved"}
_LEVELS = {kind: RUNS[str(kind.__struct_config__.tag)].level for kind in get_args(RunEvent)}
_LEVELS[Ended] = RUNS["loop_detected"].level
"""The highest level of the lines that an event becomes."""
