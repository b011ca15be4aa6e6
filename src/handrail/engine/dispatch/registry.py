"""The registry of agents outside of this process: their ids, their presence, and what they hold.

An agent's *session* names one stay and is internal to the database: what an agent claimed in one
session is lost when another begins. Every call of an agent is a sign of life (`note_activity`).

Rows of agents are cached until other engines may have written. An old row does no harm: a session
that is over is detected at its next sign of life, and what it claims is soon offered again.

The channels of an agent that comes or goes get to know it from here: an agent that registers again
begins anew, has lost its turns, is IDLE, and is not queued until somebody assigns it (T4).
"""

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from handrail.engine.commit.channel_change import CHANNEL_STREAM_PREFIX, ChannelRequest, turn_id
from handrail.engine.environment import Clock, StoreAccess
from handrail.engine.errors import refuse, refuse_unknown, require_known
from handrail.engine.ids import uuid7
from handrail.engine.notifier import AgentPresenceChanged, ChangeNotifier
from handrail.engine.settings import EngineSettings
from handrail.kernel.agent_lifecycle import AgentState, Trigger
from handrail.kernel.channel import events as ev
from handrail.kernel.run.state import dispatch_id
from handrail.store.rows import AgentRow, ChannelMemberRow, DispatchRow, encode, iso, parse_iso
from handrail.views.agents import AgentView

if TYPE_CHECKING:
    from handrail.engine.commit.committer import GroupCommitter

AGENT_ID_CHARS_MAX = 200
ROLES_MAX = 100
UNKNOWN_AGENT_HINT = "register it first, or look at the list of agents"
CAPACITY_MAX = 10_000
SIGNS_PER_HEARTBEAT = 3
"""How often, at most, the calls of an agent are written down within a heartbeat."""
DISCONNECT_GRACE_HEARTBEATS = 2
"""Heartbeats after which a disconnected agent that has not called again is gone."""
CACHED_SESSIONS_MAX = 100_000
STATES_BUSIEST_FIRST = (AgentState.ACTIVE, AgentState.WAITING, AgentState.QUEUED, AgentState.IDLE)
"""An agent in several channels is shown in the first of these states that it has in any."""


class AgentService:
    """Agents outside of this process, and a list of all agents."""

    def __init__(
        self,
        access: StoreAccess,
        committer: "GroupCommitter",
        notifier: ChangeNotifier,
        update_presence: Callable[[], Awaitable[None]],
        clock: Clock,
        settings: EngineSettings,
    ) -> None:
        self._access, self._store, self._committer = access, access.store, committer
        self._listeners, self._update_presence = notifier.listeners, update_presence
        self._clock, self._settings = clock, settings
        self._rows: dict[str, AgentRow] = {}
        self._last_signs: dict[str, datetime] = {}
        """Session -> when this engine last wrote a sign of life."""

    async def register(
        self, agent_id: str, roles: Sequence[str], capacity: int = 1, *, key: str = ""
    ) -> AgentView:
        """Register an agent outside of this process with these roles. It loses what it had claimed
        before; under the same `key` its session continues, and it loses nothing. Refused:
        bad_agent, no_roles, bad_capacity, agent_taken."""
        self._access.check_open()
        _check_agent(agent_id, roles, capacity)
        before = await self._access.call(self._store.agents.get, agent_id)
        keyed_session = hashlib.sha256(encode([agent_id, key])).hexdigest()[:32]
        row = AgentRow(
            id=agent_id,
            roles=encode(tuple(dict.fromkeys(roles))).decode(),
            capacity=capacity,
            enabled=True,
            session=keyed_session if key else uuid7().hex,
            engine=None,
            beat_at=iso(self._clock()),
        )
        if not await self._access.call(self._store.agents.register, row):
            refuse(
                "agent_taken",
                f"agent '{agent_id}' is a function inside an engine",
                "take another id",
            )
        self._drop_row(agent_id)
        view = await self.get(agent_id)
        if view.enabled:
            self._notify(agent_id, Trigger.AGENT_STARTS, row.session)
        if not view.channels or before is None or before.session == row.session:
            return view
        await self._execute_on_channels(
            view.channels,
            ev.TakeOffline(agent_id=agent_id, detail="it registered again"),
            ev.BringOnline(agent_id=agent_id),
        )
        return await self.get(agent_id)

    async def get(self, agent_id: str) -> AgentView:
        """Return one agent. Refused: unknown_agent."""
        row = require_agent(await self._access.call(self._store.agents.get, agent_id), agent_id)
        held = await self._access.call(self._store.dispatches.list_claimed, row.session)
        members = await self._access.call(self._store.channels.list_memberships, agent_id)
        return self._view(row, held, members)

    async def enable(self, agent_id: str, *, enabled: bool) -> AgentView:
        """Enable or disable an agent. A disabled agent is offline, and loses what it has claimed.
        Refused: unknown_agent."""
        self._access.check_open()
        if not await self._access.call(self._store.agents.set_enabled, agent_id, enabled=enabled):
            refuse_unknown("unknown_agent", agent_id, UNKNOWN_AGENT_HINT)
        self._drop_row(agent_id)
        view = await self.get(agent_id)
        if not enabled or view.state is not AgentState.OFFLINE:
            self._notify(agent_id, Trigger.ENABLED if enabled else Trigger.DISABLED)
        if not view.channels:
            return view
        await self._update_presence()
        return await self.get(agent_id)

    async def remove(self, agent_id: str) -> None:
        """Remove an agent; it loses what it has claimed. Refused: unknown_agent, agent_taken."""
        self._access.check_open()
        row = require_agent(await self._access.call(self._store.agents.get, agent_id), agent_id)
        if row.engine is not None:
            refuse(
                "agent_taken",
                f"agent '{agent_id}' is a function inside an engine and is removed "
                "when that engine closes",
                "disable it, or close the engine",
            )
        await self._access.call(self._store.agents.remove, agent_id)
        self._drop_row(agent_id)
        self._notify(agent_id, Trigger.AGENT_STOPS)
        members = await self._access.call(self._store.channels.list_memberships, agent_id)
        await self._execute_on_channels(
            [member.channel_id for member in members],
            ev.TakeOffline(agent_id=agent_id, detail="it was removed"),
        )

    async def _execute_on_channels(
        self, channels: Iterable[str], *commands: ev.ChannelCommand
    ) -> None:
        for channel_id in channels:
            for command in commands:
                await self._committer.execute(
                    CHANNEL_STREAM_PREFIX + channel_id, ChannelRequest(command=command)
                )

    async def heartbeat(self, agent_id: str) -> bool:
        """Keep the agent and all its claims alive; False if the agent is unknown."""
        self._access.check_open()
        for _ in range(2):  # the cached session may be over
            row = await self.find_remote(agent_id)
            if row is None:
                return False
            if await self._write_heartbeat(row):
                return True
        return False

    async def disconnected(self, agent_id: str) -> None:
        """The agent's open connection was cut. Unless it calls again soon it is gone, and its turns
        with it. It keeps its claims for the lease that it was given."""
        row = await self.find_remote(agent_id)
        if row is None or await self._access.call(self._store.dispatches.list_claimed, row.session):
            return
        settings = self._settings
        spared_seconds = settings.lease - DISCONNECT_GRACE_HEARTBEATS * settings.heartbeat
        if spared_seconds > 0:
            self._last_signs.pop(row.session, None)
            await self._access.call(
                self._store.agents.heartbeat,
                row.session,
                iso(self._clock() - timedelta(seconds=spared_seconds)),
            )

    async def note_activity(self, agent_id: str) -> bool:
        """Record a call of an agent as a heartbeat: written now and then, else in memory."""
        row = await self.find_remote(agent_id)
        last = self._last_signs.get(row.session) if row is not None else None
        interval = timedelta(seconds=self._settings.heartbeat / SIGNS_PER_HEARTBEAT)
        if last is not None and self._clock() - last < interval:
            return True
        return await self.heartbeat(agent_id)

    async def find_remote(self, agent_id: str) -> AgentRow | None:
        """The row of an agent outside of all engines."""
        row = self._rows.get(agent_id)
        if row is None:
            row = await self._access.call(self._store.agents.get, agent_id)
            if row is not None:
                self._rows[agent_id] = row
        return row if row is not None and row.engine is None else None

    def lease_expires_at(self, row: AgentRow) -> datetime:
        """When the agent loses what it holds, unless it gives a sign of life before."""
        last = self._last_signs.get(row.session) or parse_iso(row.beat_at)
        return last + timedelta(seconds=self._settings.lease)

    async def on_foreign_commits(self) -> None:
        """Forget what other engines may have changed."""
        self._rows.clear()
        if len(self._last_signs) > CACHED_SESSIONS_MAX:
            self._last_signs.clear()

    async def _write_heartbeat(self, row: AgentRow) -> bool:
        now = self._clock()
        before = self._last_signs.get(row.session)
        self._last_signs[row.session] = now  # concurrent calls need not write it too
        try:
            alive = await self._access.call(self._store.agents.heartbeat, row.session, iso(now))
        except BaseException:
            self._restore_sign(row.session, before)
            raise
        if not alive:
            self._restore_sign(row.session, None)
            self._rows.pop(row.id, None)
        elif row.enabled:
            self._notify(row.id, Trigger.AGENT_STARTS, row.session)
        return alive

    def _notify(self, agent_id: str, trigger: Trigger, session: str = "") -> None:
        if self._listeners:
            self._listeners.notify(AgentPresenceChanged(agent_id, trigger, self._clock(), session))

    def _restore_sign(self, session: str, before: datetime | None) -> None:
        self._last_signs.pop(session, None)
        if before is not None:
            self._last_signs[session] = before

    def _drop_row(self, agent_id: str) -> None:
        """Drop the cached row of a changed agent."""
        row = self._rows.pop(agent_id, None)
        if row is not None:
            self._last_signs.pop(row.session, None)

    def _view(
        self, row: AgentRow, held: Sequence[DispatchRow], members: Sequence[ChannelMemberRow]
    ) -> AgentView:
        last_seen = parse_iso(row.beat_at)
        is_silent = self._clock() - last_seen > timedelta(seconds=self._settings.offline_after)
        channels = {member.channel_id: AgentState(member.state) for member in members}
        states = {*channels.values(), AgentState.ACTIVE if held else AgentState.IDLE}
        state = next(state for state in STATES_BUSIEST_FIRST if state in states)
        turns = [
            turn_id(member.channel_id, member.turn) for member in members if member.turn is not None
        ]
        return AgentView(
            id=row.id,
            roles=tuple(msgspec.json.decode(row.roles, type=list[str])),
            capacity=row.capacity,
            enabled=row.enabled,
            state=state if row.enabled and not is_silent else AgentState.OFFLINE,
            channels=channels,
            current_work=(
                *(dispatch_id(dispatch.execution_id, dispatch.fence) for dispatch in held),
                *turns,
            ),
            last_seen=last_seen,
            in_process=row.engine is not None,
        )

    async def list(self) -> list[AgentView]:
        """All agents, by id."""
        rows, held, members = await self._access.query(
            lambda store: (
                store.agents.list(),
                store.dispatches.list_claimed(),
                store.channels.list_memberships(),
            )
        )
        by_session: dict[str | None, list[DispatchRow]] = {}
        for dispatch in held:
            by_session.setdefault(dispatch.session, []).append(dispatch)
        by_agent: dict[str, list[ChannelMemberRow]] = {}
        for member in members:
            by_agent.setdefault(member.agent_id, []).append(member)
        return [
            self._view(row, by_session.get(row.session, []), by_agent.get(row.id, []))
            for row in rows
        ]


def _check_agent(agent_id: str, roles: Sequence[str], capacity: int) -> None:
    if not 0 < len(agent_id) <= AGENT_ID_CHARS_MAX or not agent_id.isprintable():
        refuse(
            "bad_agent",
            f"{agent_id[:40]!r} is not an agent id",
            f"use 1 to {AGENT_ID_CHARS_MAX} printable characters",
        )
    if not roles or not all(role and role.isprintable() for role in roles):
        refuse("no_roles", f"agent '{agent_id}' has no role, or a role without a name")
    if len(roles) > ROLES_MAX or any(len(role) > AGENT_ID_CHARS_MAX for role in roles):
        message = (
            f"agent '{agent_id}' has more than {ROLES_MAX} roles, or one with a very long name"
        )
        refuse("no_roles", message, "name fewer, shorter ones")
    if not 0 < capacity <= CAPACITY_MAX:
        message = f"agent '{agent_id}' has the capacity {capacity}; it must be 1 to {CAPACITY_MAX}"
        refuse("bad_capacity", message, "name another capacity")


def require_agent(row: AgentRow | None, agent_id: str) -> AgentRow:
    return require_known(row, "unknown_agent", agent_id, UNKNOWN_AGENT_HINT)
