"""Who is there: agents outside of this process, known by their id, and what they hold.

An agent's *session* names one stay and is nobody's business but the database's: what was claimed in
one is lost when another begins. Every call of an agent is a sign of life (`seen`).

Rows of agents are kept in memory until others may have written. An old one does no harm: a session
that is over is found when it gives a sign of life, and what is claimed in it is soon offered again.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NoReturn

import msgspec
from uuid_utils import uuid7

from handrail.engine.channel_work import turn_id
from handrail.engine.core import Core
from handrail.engine.listeners import AgentHeard
from handrail.engine.pages import refuse
from handrail.engine.project import encode
from handrail.kernel.lifecycle import AgentState, Trigger
from handrail.kernel.shown import Shown
from handrail.kernel.steps import dispatch_id
from handrail.store.channels import MemberRow
from handrail.store.office import Office
from handrail.store.port import AgentRow, DispatchRow, iso, moment

ID_MAX = 200
ROLES_MAX = 100
CAPACITY_MAX = 10_000
SIGNS_A_HEARTBEAT = 3
"""How often the calls of an agent are written down, at most."""
LINE_HEARTBEATS = 2
"""So many heartbeats after its line was cut an agent that has not called again is gone."""
KNOWN_MAX = 100_000
BUSIEST = (AgentState.ACTIVE, AgentState.WAITING, AgentState.QUEUED, AgentState.IDLE)
"""Of an agent in several channels the first of these that it is anywhere is shown."""


class AgentView(Shown):
    """An agent as it is shown. `state` is OFFLINE if it is disabled or silent, ACTIVE if it holds a
    dispatch or a turn, else WAITING or QUEUED if it is so in some channel, else IDLE."""

    id: str
    roles: tuple[str, ...]
    capacity: int
    enabled: bool
    state: AgentState
    channels: dict[str, AgentState]
    """Its state in each channel that it is a member of."""
    current_work: tuple[str, ...]
    """Ids of the dispatches that it holds, the oldest first, then of its turns in channels."""
    last_seen: datetime
    in_process: bool
    """A function of an engine."""


class WithAttendance(Core):
    """An engine that knows who is there."""

    def __init__(self, store: Office, **made: Any) -> None:  # noqa: ANN401 - as Core
        super().__init__(store, **made)
        self._rows: dict[str, AgentRow] = {}
        self._signs: dict[str, datetime] = {}
        """Session -> when a sign of life was last written here."""

    async def register(
        self, agent_id: str, roles: Sequence[str], capacity: int = 1, *, key: str = ""
    ) -> AgentView:
        """An agent outside of this process is there, as these roles. What it had claimed before is
        lost; under the same `key` it is the same stay, and nothing is. Refused: bad_agent,
        no_roles, bad_capacity, agent_taken."""
        self._check()
        _check_agent(agent_id, roles, capacity)
        same = hashlib.sha256(encode([agent_id, key])).hexdigest()[:32]
        row = AgentRow(
            id=agent_id,
            roles=encode(tuple(dict.fromkeys(roles))).decode(),
            capacity=capacity,
            enabled=True,
            session=same if key else uuid7().hex,
            engine=None,
            beat_at=iso(self.clock()),
        )
        if not await self._io(self.store.register, row):
            told = f"'{agent_id}' is a function of an engine"
            refuse("agent_taken", told, "take another id")
        self._forget(agent_id)
        view = await self.agent_view(agent_id)
        if self.listeners and view.enabled:
            self._tell(agent_id, Trigger.AGENT_STARTS, row.session)
        return view

    async def agents(self) -> list[AgentView]:
        """Everybody, by id."""
        rows, held, members = await self._slowly(
            lambda store: (store.agents(), store.held(), store.memberships())
        )
        by_session: dict[str | None, list[DispatchRow]] = {}
        for one in held:
            by_session.setdefault(one.session, []).append(one)
        by_agent: dict[str, list[MemberRow]] = {}
        for member in members:
            by_agent.setdefault(member.agent_id, []).append(member)
        return [
            self._view(row, by_session.get(row.session, []), by_agent.get(row.id, []))
            for row in rows
        ]

    async def agent_view(self, agent_id: str) -> AgentView:
        """Refused: unknown_agent."""
        row = await self._io(self.store.agent, agent_id)
        if row is None:
            unknown_agent(agent_id)
        held = await self._io(self.store.held, row.session)
        return self._view(row, held, await self._io(self.store.memberships, agent_id))

    async def enable(self, agent_id: str, *, enabled: bool) -> AgentView:
        """One that is disabled is offline, and loses what it has claimed. Refused:
        unknown_agent."""
        self._check()

        def change() -> bool:
            return self.store.enable_agent(agent_id, enabled=enabled)

        if not await self._io(change):
            unknown_agent(agent_id)
        self._forget(agent_id)
        view = await self.agent_view(agent_id)
        if self.listeners and (not enabled or view.state is not AgentState.OFFLINE):
            self._tell(agent_id, Trigger.ENABLED if enabled else Trigger.DISABLED)
        return view

    async def remove(self, agent_id: str) -> None:
        """It is gone, and loses what it has claimed. Refused: unknown_agent, agent_taken."""
        self._check()
        row = await self._io(self.store.agent, agent_id)
        if row is None:
            unknown_agent(agent_id)
        if row.engine is not None:
            told = f"'{agent_id}' is a function of an engine, and goes with it"
            refuse("agent_taken", told, "disable it, or close the engine")
        await self._io(self.store.remove_agent, agent_id)
        self._forget(agent_id)
        if self.listeners:
            self._tell(agent_id, Trigger.AGENT_STOPS)

    async def heartbeat_agent(self, agent_id: str) -> bool:
        """It is alive, and with it all that it has claimed; False if nobody knows it."""
        self._check()
        for _ in range(2):  # a session that is over may be known here still
            row = await self._outsider(agent_id)
            if row is None:
                return False
            if await self._sign(row):
                return True
        return False

    async def line_lost(self, agent_id: str) -> None:
        """The line that it held open was cut. Unless it calls again soon it is gone, and with it
        its turns. What it has claimed it keeps for the lease that it was told."""
        row = await self._outsider(agent_id)
        if row is None or await self._io(self.store.held, row.session):
            return
        settings = self.settings
        spared = settings.lease - LINE_HEARTBEATS * settings.heartbeat
        if spared > 0:
            self._signs.pop(row.session, None)
            early = self.clock() - timedelta(seconds=spared)
            await self._io(self.store.beat, row.session, iso(early))

    async def seen(self, agent_id: str) -> bool:
        """As a heartbeat, for every call of an agent: written now and then, else from memory."""
        row = await self._outsider(agent_id)
        last = self._signs.get(row.session) if row is not None else None
        pause = timedelta(seconds=self.settings.heartbeat / SIGNS_A_HEARTBEAT)
        if last is not None and self.clock() - last < pause:
            return True
        return await self.heartbeat_agent(agent_id)

    async def _outsider(self, agent_id: str) -> AgentRow | None:
        """An agent outside of all engines."""
        row = self._rows.get(agent_id)
        if row is None:
            row = await self._io(self.store.agent, agent_id)
            if row is not None:
                self._rows[agent_id] = row
        return row if row is not None and row.engine is None else None

    async def _sign(self, row: AgentRow) -> bool:
        now = self.clock()
        before = self._signs.get(row.session)
        self._signs[row.session] = now  # those who call meanwhile need not write it too
        try:
            alive = await self._io(self.store.beat, row.session, iso(now))
        except BaseException:
            self._unsign(row.session, before)
            raise
        if not alive:
            self._unsign(row.session, None)
            self._rows.pop(row.id, None)
        elif self.listeners and row.enabled:
            self._tell(row.id, Trigger.AGENT_STARTS, row.session)
        return alive

    def _tell(self, agent_id: str, trigger: Trigger, session: str = "") -> None:
        self.listeners.tell(AgentHeard(agent_id, trigger, self.clock(), session))

    def _unsign(self, session: str, before: datetime | None) -> None:
        self._signs.pop(session, None)
        if before is not None:
            self._signs[session] = before

    def _forget(self, agent_id: str) -> None:
        """Something about it has changed."""
        row = self._rows.pop(agent_id, None)
        if row is not None:
            self._signs.pop(row.session, None)

    def _lease_end(self, row: AgentRow) -> datetime:
        last = self._signs.get(row.session) or moment(row.beat_at)
        return last + timedelta(seconds=self.settings.lease)

    async def _others_wrote(self) -> None:
        self._rows.clear()
        if len(self._signs) > KNOWN_MAX:
            self._signs.clear()
        await super()._others_wrote()

    def _view(
        self, row: AgentRow, held: Sequence[DispatchRow], members: Sequence[MemberRow]
    ) -> AgentView:
        seen = moment(row.beat_at)
        silent = self.clock() - seen > timedelta(seconds=self.settings.offline_after)
        channels = {one.channel_id: AgentState(one.state) for one in members}
        states = {*channels.values(), AgentState.ACTIVE if held else AgentState.IDLE}
        state = next(one for one in BUSIEST if one in states)
        turns = [turn_id(one.channel_id, one.turn) for one in members if one.turn is not None]
        return AgentView(
            id=row.id,
            roles=tuple(msgspec.json.decode(row.roles, type=list[str])),
            capacity=row.capacity,
            enabled=row.enabled,
            state=state if row.enabled and not silent else AgentState.OFFLINE,
            channels=channels,
            current_work=(
                *(dispatch_id(one.execution_id, one.fence) for one in held),
                *turns,
            ),
            last_seen=seen,
            in_process=row.engine is not None,
        )


def _check_agent(agent_id: str, roles: Sequence[str], capacity: int) -> None:
    if not 0 < len(agent_id) <= ID_MAX or not agent_id.isprintable():
        told = f"{agent_id[:40]!r} is no id for an agent: 1 to {ID_MAX} plain characters"
        refuse("bad_agent", told, "take another id")
    if not roles or not all(role and role.isprintable() for role in roles):
        refuse("no_roles", f"agent '{agent_id}' works as no role, or one without a name")
    if len(roles) > ROLES_MAX or any(len(role) > ID_MAX for role in roles):
        told = f"agent '{agent_id}' has more than {ROLES_MAX} roles, or one with a very long name"
        refuse("no_roles", told, "name fewer, shorter ones")
    if not 0 < capacity <= CAPACITY_MAX:
        told = f"agent '{agent_id}' has room for {capacity} dispatches; it is 1 to {CAPACITY_MAX}"
        refuse("bad_capacity", told, "name another capacity")


def unknown_agent(agent_id: str) -> NoReturn:
    told = f"there is no agent '{agent_id}'"
    refuse("unknown_agent", told, "register it first, or look at the list of agents")
