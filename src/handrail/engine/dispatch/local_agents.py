"""Agents that are functions in this process: the decorator, and their registration."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from uuid_utils import uuid7

from handrail.engine.clock import Clock
from handrail.engine.commit.committer import GroupCommitter
from handrail.engine.commit.projection import encode
from handrail.engine.dispatch.local_executor import AgentFunction, FunctionSlot, LocalExecutor
from handrail.engine.notifier import AgentPresenceChanged, ChangeNotifier
from handrail.engine.settings import EngineSettings
from handrail.engine.store_access import StoreAccess
from handrail.kernel.agent_lifecycle import Trigger
from handrail.store.rows import AgentRow, StoreError, iso

CAPACITY_DEFAULT = 100
"""Dispatches that a function works on at once, unless it sets its own capacity."""


class LocalAgents:
    """Registers functions of this process as agents."""

    def __init__(
        self,
        access: StoreAccess,
        committer: GroupCommitter,
        executor: LocalExecutor,
        notifier: ChangeNotifier,
        clock: Clock,
        settings: EngineSettings,
        engine_id: str,
        spawn: Callable[[Coroutine[Any, Any, None]], Awaitable[None]],
    ) -> None:
        self._access, self._store, self._committer = access, access.store, committer
        self._executor, self._listeners = executor, notifier.listeners
        self._clock, self._settings, self._engine_id = clock, settings, engine_id
        self._spawn = spawn
        """Runs a coroutine that fails the engine if it fails."""

    def decorator(
        self, *roles: str, name: str = "", capacity: int = CAPACITY_DEFAULT, trusted: bool = False
    ) -> Callable[[AgentFunction], AgentFunction]:
        """Decorate a function that works as these roles. `trusted`: its evidence counts as
        measured."""

        def register(function: AgentFunction) -> AgentFunction:
            self.add(function, *roles, name=name, capacity=capacity, trusted=trusted)
            return function

        return register

    def add(
        self,
        function: AgentFunction,
        *roles: str,
        name: str = "",
        capacity: int = CAPACITY_DEFAULT,
        trusted: bool = False,
        only: Iterable[str] = (),
    ) -> Awaitable[None]:
        """Add a function of this process that works as these roles, as soon as the database has its
        row; awaiting that is optional. `only` names the definitions that it works on."""
        assert roles, "an agent works as some role"
        assert capacity > 0, "an agent has room for at least one dispatch"
        base_name = name or getattr(function, "__name__", "agent")
        row = AgentRow(
            id=f"{base_name}@{self._engine_id[-8:]}",
            roles=encode(roles).decode(),
            capacity=capacity,
            enabled=True,
            session=uuid7().hex,
            engine=self._engine_id,
            beat_at=iso(self._clock()),
        )
        slot = FunctionSlot(
            row.id, roles, row.session, capacity, function, self._executor, trusted=trusted
        )
        slot.definitions = frozenset(only)
        if not self._store.inline:
            return self._spawn(self._register(row, slot))
        self._store.agents.put(row)
        self._activate(slot)
        joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        joined.set_result(None)
        return joined

    async def _register(self, row: AgentRow, slot: FunctionSlot) -> None:
        """Register the function; wait for an unavailable database as long as the engine does."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.store_patience
        while True:
            try:
                await self._access.call(self._store.agents.put, row)
                break
            except StoreError:
                if loop.time() > deadline:
                    raise
                await asyncio.sleep(self._settings.pulse)
        self._activate(slot)

    def _activate(self, slot: FunctionSlot) -> None:
        self._committer.matcher.add(slot)
        self._committer.wake()
        if self._listeners:
            presence = AgentPresenceChanged(
                slot.agent, Trigger.AGENT_STARTS, self._clock(), slot.session, in_process=True
            )
            self._listeners.notify(presence)
