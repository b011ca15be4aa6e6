"""Who hears of changes, after their commit: callers that wait, and listeners. In memory.

A listener is a function that is called on the engine's loop, so it is short, and waits for nothing.
It cannot break the engine: an exception is logged, once for each listener, and the listener is
called again the next time. An engine without listeners pays for one look at an empty list.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from handrail.engine.commit.channel_change import ChannelStreamChange
from handrail.engine.commit.run_change import RunChange
from handrail.engine.log_events import log_event
from handrail.kernel.agent_lifecycle import Trigger
from handrail.kernel.run.decision_builder import CancelDispatch
from handrail.kernel.run.state import Run

T = TypeVar("T")
log = logging.getLogger("handrail.engine")

ANY_STREAM = ""
"""The waiters' key for every run."""
TURN_KEY_PREFIX = "turn:"
"""The waiters' key of an agent's turns begins with this; the agent's id follows."""


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
                    log_event(
                        log,
                        "listener_failed",
                        listener=getattr(listener, "__qualname__", type(listener).__qualname__),
                        reason=str(error),
                        error=error,
                    )


class KeyedWaiters(Generic[T]):
    """Futures by key. `notify` wakes all who wait for the key at that moment, and no later
    waiter."""

    def __init__(self) -> None:
        self._futures: dict[str, set[asyncio.Future[T]]] = {}

    def notify(self, key: str, value: T) -> None:
        for future in self._futures.pop(key, ()):
            if not future.done():
                future.set_result(value)

    def keys(self) -> set[str]:
        """The keys with waiters."""
        return set(self._futures)

    def fail_all(self, error: BaseException) -> None:
        """Fail all waiters: the engine has stopped."""
        for key in list(self._futures):
            for future in self._futures.pop(key):
                if not future.done():
                    future.set_exception(error)

    @contextmanager
    def subscribe(self, key: str) -> Generator[asyncio.Future[T]]:
        """A future for the next `notify`. Subscribe before reading, so that no change is missed."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._futures.setdefault(key, set()).add(future)
        try:
            yield future
        finally:
            futures = self._futures.get(key)
            if futures is not None:
                futures.discard(future)
                if not futures:
                    del self._futures[key]
            future.cancel()


class ChangeNotifier:
    """Notifies of committed changes."""

    def __init__(self) -> None:
        self.listeners = Listeners()
        self.changes: KeyedWaiters[None] = KeyedWaiters()
        """Waiters for a change: of a run or channel by its stream, of anything by ANY_STREAM."""
        self.ends: KeyedWaiters[Run] = KeyedWaiters()
        """Waiters for the end of a run."""
        self.cancel_hooks: list[Callable[[str, int], None]] = []
        """Parts of the engine that stop a cancelled dispatch, before anybody hears of it."""
        self.channel_hooks: list[Callable[[ChannelStreamChange], None]] = []
        self.foreign_commit_hooks: list[Callable[[], Awaitable[None]]] = []
        """Parts of the engine that refresh what they have in memory after others' commits."""
        self.has_peers = False
        """Whether other engines are alive: then a run may end without this engine's knowledge."""
        self.is_watched = False
        """Whether maintenance looks for the commits of other engines again and again."""

    def run_changed(self, change: RunChange) -> None:
        for effect in change.effects:
            if isinstance(effect, CancelDispatch):
                for cancel in self.cancel_hooks:
                    cancel(change.stream, effect.fence)
        self.changes.notify(change.stream, None)
        self.changes.notify(ANY_STREAM, None)
        if change.run is not None and change.run.has_ended:
            self.ends.notify(change.stream, change.run)
        if self.listeners:
            self.listeners.notify(change)

    def channel_changed(self, change: ChannelStreamChange) -> None:
        self.changes.notify(change.stream, None)
        self.changes.notify(ANY_STREAM, None)
        for hook in self.channel_hooks:
            hook(change)
        if self.listeners:
            self.listeners.notify(change)

    def fail_all(self, error: BaseException) -> None:
        """Fail all waiters: the engine has stopped."""
        self.changes.fail_all(error)
        self.ends.fail_all(error)
