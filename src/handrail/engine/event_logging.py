"""The logs of runs, channels and agents: listeners that write lines for what is on disk.

A run has a line for every event. The table in `log_events.py` says which fields a line has, and
where an event has them. `_SPECIAL_LINES` has what the table cannot say: fields that come from the
run, and events that become other lines than one of their own name.

A channel has a line for every transition of an agent (T12), and for doubtful or announced events.

An agent has a line for every change of its state, by `kernel/agent_lifecycle.py`. An agent is
OFFLINE if it is disabled, gone or silent, ACTIVE while it holds a dispatch, else IDLE; a claim
passes through QUEUED. The state of each is in memory, from what this engine committed and heard,
and from a periodic look at all agents.

Several engines on one database: each logs what it committed or heard itself, so a change is logged
once. An event proves the state before it (an agent that reports was ACTIVE). A look logs nothing
but updates memory, with one exception: no engine hears that an agent without work fell silent, so
the oldest engine that is alive logs it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from handrail.engine.commit.channel_change import ChannelStreamChange, Noticed
from handrail.engine.commit.run_change import RunChange
from handrail.engine.log_events import (
    AGENT_EVENTS,
    CHANNEL_EVENTS,
    RUN_EVENTS,
    LogEventSpec,
    LogMessage,
)
from handrail.engine.notifier import AgentPresenceChanged, EngineClosed, EngineNotification
from handrail.kernel.agent_lifecycle import (
    LOG_NAMES,
    LOST_TRIGGERS,
    TRANSITIONS,
    AgentState,
    Trigger,
)
from handrail.kernel.channel.events import ChannelWarned, Transitioned
from handrail.kernel.run.events import (
    Claimed,
    Ended,
    Faulted,
    Lost,
    Moved,
    Patched,
    Reported,
    RunEvent,
    TimedOut,
)
from handrail.kernel.run.state import CLAIMED, Run, dispatch_id
from handrail.store.rows import StoreError
from handrail.views.agents import AgentView
from handrail.views.history import event_transitions

if TYPE_CHECKING:
    from handrail.engine.engine import Engine

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
                    _write(
                        run_log,
                        RUN_EVENTS[name].level,
                        LogMessage(name, {"execution_id": run.id, "seq": seq, **fields}, event.at),
                    )


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
        "trigger": LOG_NAMES[trigger],
        "channel": channel,
    }
    _write(
        agents_log,
        AGENT_EVENTS["state_transition"].level,
        LogMessage("state_transition", fields, at),
    )


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


AGENTS_MAX = 100_000
REFRESH_SECONDS = 5.0

OFFLINE, IDLE, ACTIVE = AgentState.OFFLINE, AgentState.IDLE, AgentState.ACTIVE
END_TRIGGERS: dict[type, tuple[Trigger, ...]] = {
    Reported: (Trigger.RESULT,),
    Faulted: (Trigger.RESULT,),
    TimedOut: (Trigger.TIMEOUT, Trigger.REMOVED),
}
"""Triggers of a dispatch's end, other than its loss."""


class _AgentRecord(msgspec.Struct):
    """The state of an agent in memory."""

    state: AgentState
    held: set[str] = set()
    last_heard: datetime | None = None
    session: str = ""
    in_process: bool = False
    version: int = 0


class AgentLogger:
    """For `engine.listeners`. `lease` is how long an agent may be silent."""

    def __init__(self, lease: float) -> None:
        self.lease = timedelta(seconds=lease)
        self._records: dict[str, _AgentRecord] = {}
        self._version = 0

    def __call__(self, notification: EngineNotification) -> None:
        if isinstance(notification, RunChange):
            if not notification.plan.is_guarded:  # its agents work elsewhere, under any names
                self._on_run_changed(notification)
        elif isinstance(notification, AgentPresenceChanged):
            self._on_presence_changed(notification)
        elif isinstance(notification, EngineClosed):
            for name, record in self._records.items():
                if record.in_process and record.state is not OFFLINE:
                    self._transition(name, record, notification.at, LOST_TRIGGERS[record.state])

    # Events of runs

    def _on_run_changed(self, change: RunChange) -> None:
        before = change.before.run.positions.values() if change.before is not None else ()
        held = {position.fence: position.agent for position in before if position.phase is CLAIMED}
        for event in change.events:
            if isinstance(event, Claimed):
                held[event.fence] = event.agent
                self._on_claimed(event.agent, dispatch_id(change.stream, event.fence), event.at)
            elif isinstance(event, Reported | Faulted | TimedOut | Lost):
                agent = held.pop(event.fence, "")
                if agent:
                    self._on_dispatch_over(agent, dispatch_id(change.stream, event.fence), event)
        if held and change.run is not None:
            still_claimed = {
                position.fence
                for position in change.run.positions.values()
                if position.phase is CLAIMED
            }
            for fence in held.keys() - still_claimed:
                self._on_dispatch_done(
                    held[fence],
                    dispatch_id(change.stream, fence),
                    change.events[-1].at,
                    (Trigger.REMOVED,),
                )

    def _on_claimed(self, agent: str, dispatch: str, at: datetime) -> None:
        record = self._record_of(agent, IDLE)
        if not record.held:
            record.state = IDLE
            self._transition(agent, record, at, Trigger.ASSIGNED, Trigger.TURN_GRANTED)
        record.held.add(dispatch)

    def _on_dispatch_over(
        self, agent: str, dispatch: str, event: Reported | Faulted | TimedOut | Lost
    ) -> None:
        if not isinstance(event, Lost):
            self._on_dispatch_done(agent, dispatch, event.at, END_TRIGGERS[type(event)])
            return
        record = self._record_of(agent, ACTIVE)
        if record.in_process or (
            record.last_heard is not None and event.at - record.last_heard < self.lease
        ):
            if dispatch in record.held:  # it handed the dispatch back
                self._on_dispatch_done(agent, dispatch, event.at, (Trigger.TURN_COMPLETE_SOLO,))
        elif record.state is not OFFLINE:
            record.held.clear()
            record.state = ACTIVE
            self._transition(agent, record, event.at, Trigger.AGENT_CRASHES)

    def _on_dispatch_done(
        self, agent: str, dispatch: str, at: datetime, triggers: tuple[Trigger, ...]
    ) -> None:
        record = self._record_of(agent, ACTIVE)
        record.held.discard(dispatch)
        if not record.held and record.state is not OFFLINE:
            record.state = ACTIVE
            self._transition(agent, record, at, *triggers)

    # Presence of agents

    def _on_presence_changed(self, presence: AgentPresenceChanged) -> None:
        record = self._record_of(presence.agent, OFFLINE)
        if presence.trigger is Trigger.AGENT_STARTS:
            self._on_started(presence, record)
        elif presence.trigger is Trigger.AGENT_STOPS:
            self._on_gone(presence.agent, record, presence.at)
            del self._records[presence.agent]
        else:
            record.held.clear()
            self._transition(presence.agent, record, presence.at, presence.trigger)

    def _on_started(self, presence: AgentPresenceChanged, record: _AgentRecord) -> None:
        if record.session not in ("", presence.session):  # another session
            self._on_gone(presence.agent, record, presence.at)
        record.last_heard, record.session, record.in_process = (
            presence.at,
            presence.session,
            presence.in_process,
        )
        if record.state is OFFLINE:
            self._transition(presence.agent, record, presence.at, Trigger.AGENT_STARTS)

    def _on_gone(self, agent: str, record: _AgentRecord, at: datetime) -> None:
        record.held.clear()
        if record.state is not OFFLINE:
            self._transition(agent, record, at, LOST_TRIGGERS[record.state])

    # Looking at all agents

    def version(self) -> int:
        """For `refresh`: later events are newer than the agents it gets."""
        return self._version

    def refresh(
        self, agents: Iterable[AgentView], at: datetime, version: int, *, log_silent: bool
    ) -> None:
        """Update all agents as they were at `version`. `log_silent`: this engine logs silent
        agents."""
        present: set[str] = set()
        for view in agents:
            present.add(view.id)
            record = self._records.get(view.id)
            if record is None or record.version <= version:
                self._refresh_agent(view, at, log_silent=log_silent)
        for name in [
            agent
            for agent, record in self._records.items()
            if agent not in present and record.version <= version
        ]:
            del self._records[name]

    def _refresh_agent(self, view: AgentView, at: datetime, *, log_silent: bool) -> None:
        record = self._record_of(view.id, view.state)
        is_silent = view.state is OFFLINE and view.enabled and not view.current_work
        if is_silent and log_silent and record.state is not OFFLINE:
            record.held.clear()
            self._transition(view.id, record, at, LOST_TRIGGERS[IDLE])
        elif view.state is not OFFLINE or not view.current_work:
            record.state = view.state  # else its claims are about to be lost, which is logged then
        record.held = set(view.current_work)
        record.in_process = record.in_process and view.in_process

    def _record_of(self, agent: str, state: AgentState) -> _AgentRecord:
        """The record of an agent; a new agent gets that state."""
        record = self._records.get(agent)
        if record is None:
            record = self._records[agent] = _AgentRecord(state)
            if len(self._records) > AGENTS_MAX:
                del self._records[next(iter(self._records))]
        self._version += 1
        record.version = self._version
        return record

    def _transition(
        self, agent: str, record: _AgentRecord, at: datetime, *triggers: Trigger
    ) -> None:
        """Apply triggers by the table; a trigger without an entry for the state changes nothing."""
        for trigger in triggers:
            old = record.state
            record.state = TRANSITIONS.get((old, trigger), old)
            if record.state is not old:
                log_transition(agent, old, record.state, trigger, None, at)


async def watch_agents(engine: "Engine", logger: AgentLogger) -> None:
    """Look at all agents periodically, until cancelled. The first look only fills the memory."""
    log_silent = False
    while True:
        try:
            await refresh_agents(engine, logger, log_silent=log_silent)
            log_silent = True
        except StoreError:
            pass  # the engine reports this itself
        await asyncio.sleep(REFRESH_SECONDS)


async def refresh_agents(engine: "Engine", logger: AgentLogger, *, log_silent: bool = True) -> None:
    version = logger.version()
    agents = await engine.agents.list()
    log_silent = log_silent and await engine.is_oldest()
    logger.refresh(agents, engine.clock(), version, log_silent=log_silent)
