"""Who listens to an engine: told of every run and agent that changed, after the commit.

A listener is a function that is called on the engine's loop, so it is short, and waits for nothing.
It cannot break the engine: what it raises is logged, once for each listener, and it is called again
the next time. An engine without listeners pays for one look at an empty list.
"""

import logging
from collections.abc import Callable
from datetime import datetime

import msgspec

from handrail.engine.channel_work import ChannelWork
from handrail.engine.vocabulary import tell
from handrail.engine.works import RunWork
from handrail.kernel.lifecycle import Trigger

log = logging.getLogger("handrail.engine")


class AgentHeard(msgspec.Struct, frozen=True):
    """Something about an agent that is no event of a run: it came, went, or gave a sign of life
    (`AGENT_STARTS`: it is there, whatever it was before)."""

    agent: str
    trigger: Trigger
    at: datetime
    session: str = ""
    """In another stay nothing is left of what it had claimed."""
    in_process: bool = False
    """A function of this engine."""


class EngineClosed(msgspec.Struct, frozen=True):
    """It closed in good order, and its functions went with it."""

    at: datetime


class Committed(msgspec.Struct, frozen=True):
    """A commit that went well: how many streams it changed, and how long it took."""

    writes: int
    seconds: float


Heard = RunWork | ChannelWork | AgentHeard | EngineClosed | Committed
Listener = Callable[[Heard], None]


class Listeners:
    def __init__(self) -> None:
        self._all: list[Listener] = []
        self._failed: list[Listener] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, listener: Listener) -> None:
        self._all.append(listener)

    def remove(self, listener: Listener) -> None:
        for known in (self._all, self._failed):
            if listener in known:
                known.remove(listener)

    def tell(self, heard: Heard) -> None:
        for listener in tuple(self._all):
            try:
                listener(heard)
            except Exception as error:
                if listener not in self._failed:
                    self._failed.append(listener)
                    called = getattr(listener, "__qualname__", type(listener).__qualname__)
                    tell(log, "listener_failed", listener=called, reason=str(error), error=error)
