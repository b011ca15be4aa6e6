"""Agents that are functions in this process: the decorator, and their registration."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from uuid_utils import uuid7

from handrail.engine.commit.projection import encode
from handrail.engine.dispatch.local_executor import AgentFunction, FunctionSlot
from handrail.engine.dispatch.matcher import AgentSlot
from handrail.engine.dispatch.remote import WithRemoteAgents
from handrail.engine.listeners import AgentPresenceChanged
from handrail.kernel.agent_lifecycle import Trigger
from handrail.store.engine_store import AgentRow, StoreError, iso

CAPACITY_DEFAULT = 100
"""Dispatches that a function works on at once, unless it sets its own capacity."""


class WithLocalAgents(WithRemoteAgents):
    """An engine with agents, local and remote."""

    def agent(
        self, *roles: str, name: str = "", capacity: int = CAPACITY_DEFAULT, trusted: bool = False
    ) -> Callable[[AgentFunction], AgentFunction]:
        """Decorate a function that works as these roles. `trusted`: its evidence counts as
        measured."""

        def register(function: AgentFunction) -> AgentFunction:
            self.add_agent(function, *roles, name=name, capacity=capacity, trusted=trusted)
            return function

        return register

    def add_agent(
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
        agent_id = f"{base_name}@{self.id[-8:]}"
        session = uuid7().hex
        row = AgentRow(
            id=agent_id,
            roles=encode(roles).decode(),
            capacity=capacity,
            enabled=True,
            session=session,
            engine=self.id,
            beat_at=iso(self.clock()),
        )
        slot = FunctionSlot(
            agent_id,
            roles,
            session,
            capacity,
            function,
            trusted=trusted,
            executor=self.local_executor,
        )
        slot.definitions = frozenset(only)
        if not self.store.inline:
            return self._spawn(self._register_slot(row, slot))
        self.store.put_agent(row)
        self._activate_slot(slot)
        joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        joined.set_result(None)
        return joined

    async def _register_slot(self, row: AgentRow, slot: AgentSlot) -> None:
        """Register the slot; wait for an unavailable database as long as the engine does."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.settings.store_patience
        while True:
            try:
                await self._call_store(self.store.put_agent, row)
                break
            except StoreError:
                if loop.time() > deadline:
                    raise
                await asyncio.sleep(self.settings.pulse)
        self._activate_slot(slot)

    def _activate_slot(self, slot: AgentSlot) -> None:
        self.matcher.add(slot)
        self.committer.wake()
        if self.listeners:
            presence = Trigger.AGENT_STARTS, self.clock()
            self.listeners.notify(
                AgentPresenceChanged(slot.agent, *presence, slot.session, in_process=True)
            )
