"""Agents that are functions in this process, and what is said for all agents: results."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from uuid_utils import uuid7

from handrail.engine.desk import Seat
from handrail.engine.listeners import AgentHeard
from handrail.engine.outside import WithOutside
from handrail.engine.project import encode
from handrail.engine.staff import AgentFunction, Function
from handrail.kernel.lifecycle import Trigger
from handrail.store.port import AgentRow, StoreError, iso

CAPACITY = 100
"""Dispatches that a function works on at once, unless it says otherwise."""


class WithAgents(WithOutside):
    """An engine that agents can turn to."""

    def agent(
        self, *roles: str, name: str = "", capacity: int = CAPACITY, trusted: bool = False
    ) -> Callable[[AgentFunction], AgentFunction]:
        """Decorates a function that works as these roles. `trusted`: what it says it measured, it
        has."""

        def register(function: AgentFunction) -> AgentFunction:
            self.add_agent(function, *roles, name=name, capacity=capacity, trusted=trusted)
            return function

        return register

    def add_agent(
        self,
        function: AgentFunction,
        *roles: str,
        name: str = "",
        capacity: int = CAPACITY,
        trusted: bool = False,
        only: Iterable[str] = (),
    ) -> Awaitable[None]:
        """A function of this process works as these roles, as soon as the database knows of it;
        that may be awaited, and need not be. `only` names the definitions that it works."""
        assert roles, "an agent works as some role"
        assert capacity > 0, "an agent has room for at least one dispatch"
        called = name or getattr(function, "__name__", "agent")
        agent_id = f"{called}@{self.id[-8:]}"
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
        seat = Function(
            agent_id, roles, session, capacity, function, trusted=trusted, staff=self.staff
        )
        seat.only = frozenset(only)
        if not self.store.inline:
            return self._spawn(self._join(row, seat))
        self.store.put_agent(row)
        self._sit(seat)
        joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        joined.set_result(None)
        return joined

    async def _join(self, row: AgentRow, seat: Seat) -> None:
        """A database that is away is waited for, as long as the engine does."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.settings.store_patience
        while True:
            try:
                await self._io(self.store.put_agent, row)
                break
            except StoreError:
                if loop.time() > until:
                    raise
                await asyncio.sleep(self.settings.pulse)
        self._sit(seat)

    def _sit(self, seat: Seat) -> None:
        self.desk.add(seat)
        self.keeper.wake()
        if self.listeners:
            there = Trigger.AGENT_STARTS, self.clock()
            self.listeners.tell(AgentHeard(seat.agent, *there, seat.session, in_process=True))
