"""The agents' side of an engine: functions in this process, and workers that come for work."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from uuid_utils import uuid7

from handrail.engine.core import Core, Refused
from handrail.engine.desk import Seat
from handrail.engine.dispatch import Dispatch
from handrail.engine.project import encode
from handrail.engine.returned import checked
from handrail.engine.staff import AgentFunction, Function
from handrail.kernel.decision import Refusal
from handrail.kernel.result import Result
from handrail.kernel.run import commands as c
from handrail.kernel.run.machine import Run
from handrail.store.port import AgentRow, iso

CAPACITY = 100
"""Dispatches that a function works on at once, unless it says otherwise."""


class WithAgents(Core):
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
    ) -> None:
        """A function of this process works as these roles from now on."""
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
        self.store.put_agent(row)
        seat = Function(
            agent_id, roles, session, capacity, function, trusted=trusted, staff=self.staff
        )
        self.desk.add(seat)
        self.keeper.wake()

    async def register(self, agent_id: str, roles: Sequence[str], capacity: int = 1) -> str:
        """An agent outside of this process; gives its session. What it had claimed in an earlier
        one is lost."""
        session = uuid7().hex
        row = AgentRow(
            id=agent_id,
            roles=encode(tuple(roles)).decode(),
            capacity=capacity,
            enabled=True,
            session=session,
            engine=None,
            beat_at=iso(self.clock()),
        )
        await self._io(self.store.put_agent, row)
        return session

    async def heartbeat(self, session: str) -> bool:
        """The agent is alive, and with it all that it has claimed; False if the session is over."""
        return await self._io(self.store.beat, session, iso(self.clock()))

    async def claim(self, session: str, wait: float = 0) -> Dispatch | None:
        """The next dispatch for a registered agent, waiting for one so many seconds."""
        agents = await self._io(self.store.agents)
        row = next((one for one in agents if one.session == session and one.enabled), None)
        if row is None:
            told = "this session is over, or its agent is disabled"
            raise Refused(Refusal(code="no_session", message=told, hint="register again"))
        await self.heartbeat(session)
        got: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()

        def begin(run_id: str, fence: int) -> None:
            if not got.done():
                got.set_result((run_id, fence))

        roles = tuple(msgspec.json.decode(row.roles, type=list[str]))
        seat = Seat(row.id, roles, session, 1, begin)
        self.desk.add(seat)
        self.keeper.wake()
        try:
            await self.keeper.turned()  # what is on offer now
            if not got.done() and wait > 0:
                await asyncio.wait((got,), timeout=wait)
            if not got.done():
                seat.free = 0  # from here on nobody can give it anything
                await self.keeper.turned()  # but a claim may be on its way to disk
        finally:
            self.desk.remove(seat)
        return self._dispatch(*got.result()) if got.done() else None

    async def report(
        self, run_id: str, fence: int, agent: str, result: Result | str, *, trusted: bool = False
    ) -> Run:
        """The result of a dispatch. One that is late, doubled or foreign is refused, changes
        nothing, and is kept as a note."""
        given = checked(result, agent, trusted=trusted)
        if isinstance(given, Result):
            command = c.Report(fence=fence, agent=agent, result=given)
        else:
            command = c.Report(fence=fence, agent=agent, malformed=given)
        try:
            return await self.command(run_id, command)
        except Refused as refused:
            await self._io(self.store.add_note, self._note(run_id, command, refused.refusal.code))
            raise
