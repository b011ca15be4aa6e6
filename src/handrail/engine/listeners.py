"""Listeners of an engine: called with every changed run and agent, after the commit.

A listener is a function that is called on the engine's loop, so it is short, and waits for nothing.
It cannot break the engine: an exception is logged, once for each listener, and the listener is
called again the next time. An engine without listeners pays for one look at an empty list.
"""

import logging
from collections.abc import Callable
from datetime import datetime

import msgspec

from handrail.engine.commit.channel_change import ChannelStreamChange
from handrail.engine.commit.stream_change import RunChange
from handrail.engine.log_events import log_event
from handrail.kernel.agent_lifecycle import Trigger

log = logging.getLogger("handrail.engine")


class AgentPresenceChanged(msgspec.Struct, frozen=True):
    """A change of an agent that is not an event of a run: it came, went, or gave a sign of life
    (`AGENT_STARTS`: it is there, whatever it was before)."""

    agent: str
    trigger: Trigger
    at: datetime
    session: str = ""
    """A new session holds nothing of what the agent had claimed before."""
    in_process: bool = False
    """The agent is a function of this engine."""


class EngineClosed(msgspec.Struct, frozen=True):
    """The engine closed in good order, and its functions with it."""

    at: datetime


class CommitCompleted(msgspec.Struct, frozen=True):
    """A successful commit: how many streams it changed, and how long it took."""

    writes: int
    seconds: float


EngineNotification = (
    RunChange | ChannelStreamChange | AgentPresenceChanged | EngineClosed | CommitCompleted
)
Listener = Callable[[EngineNotification], None]


class Listeners:
    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._reported: list[Listener] = []

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def remove(self, listener: Listener) -> None:
        for registered in (self._listeners, self._reported):
            if listener in registered:
                registered.remove(listener)

    def notify(self, notification: EngineNotification) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(notification)
            except Exception as error:
                if listener not in self._reported:
                    self._reported.append(listener)
                    listener_name = getattr(listener, "__qualname__", type(listener).__qualname__)
                    log_event(
                        log,
                        "listener_failed",
                        listener=listener_name,
                        reason=str(error),
                        error=error,
                    )
