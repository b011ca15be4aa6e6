"""Every cell of the table, state by trigger, through the engine: what it allows happens as it says,
and whatever else is tried moves nobody."""

from collections.abc import Awaitable, Callable

import pytest
from tests.engine.engines import ROLE, manual_engine, run_async

from handrail.engine.engine import Engine
from handrail.engine.errors import RefusedError
from handrail.kernel.agent_lifecycle import LOST_TRIGGERS, TRANSITIONS, AgentState, Trigger
from handrail.kernel.channel import events as ev
from handrail.testing.clock import ManualClock

ROOM = "reviews"
NOT_HERE = {Trigger.RESULT}
"""Belongs to the lease of a dispatch."""
Tried = Callable[["Stage"], Awaitable[object]]


class Stage:
    """Agent `a` in a channel in which persons grant turns, brought to a state."""

    def __init__(self, engine: Engine, clock: ManualClock) -> None:
        self.engine, self.clock = engine, clock

    async def tell(self, command: ev.ChannelCommand, by: str = "olga") -> None:
        await self.engine.channels.command(ROOM, command, by=by)

    async def set(self, state: AgentState, *, alone: bool, disabled: bool) -> None:
        config = {"order": "manual", "humanInterruptMode": "interrupt", "maxAgentTurns": 99}
        await self.engine.channels.open(ROOM, self.engine.channels.turn_config(config), by="olga")
        for agent in ("a",) if alone else ("a", "b"):
            await self.engine.agents.register(agent, [ROLE])
            await self.engine.channels.join(ROOM, agent, by="olga")
        if state in (AgentState.OFFLINE, AgentState.IDLE):
            await self.tell(ev.TakeOffline(agent_id="a"))
        if state is AgentState.OFFLINE and disabled:
            await self.tell(ev.Disable(agent_id="a"))
        if state is AgentState.IDLE:
            await self.tell(ev.BringOnline(agent_id="a"))
        if state in (AgentState.ACTIVE, AgentState.WAITING):
            await self.tell(ev.GrantTurn(agent_id="a"))
        if state is AgentState.WAITING:
            await self.tell(ev.RequestWait(agent_id="a", seconds=600), by="a")

    async def moves(self) -> list[tuple[AgentState, Trigger, AgentState]]:
        told = [event for _, event in await self.engine.feed.read(limit=100)]
        mine = [one for one in told if one.get("agent_id") == "a" and one["type"] == "Transitioned"]
        return [
            (AgentState(one["from"]), Trigger(one["trigger"]), AgentState(one["to"]))
            for one in mine
        ]

    async def later(self, seconds: float) -> None:
        """Time passes, and everybody is alive."""
        self.clock.advance(seconds)
        for agent in ("a", "b"):
            await self.engine.agents.heartbeat(agent)
        await self.tell(ev.ChannelTick())


def _told(command: ev.ChannelCommand, by: str = "olga") -> Tried:
    return lambda stage: stage.tell(command, by)


_gone = _told(ev.TakeOffline(agent_id="a", detail="the agent is offline"), "engine")
TRIES: dict[Trigger, Tried] = {
    Trigger.AGENT_STARTS: _told(ev.BringOnline(agent_id="a"), "engine"),
    Trigger.AGENT_STOPS: _gone,
    Trigger.AGENT_DISCONNECTS: _gone,
    Trigger.AGENT_CRASHES: _gone,
    Trigger.DISABLED: _told(ev.Disable(agent_id="a")),
    Trigger.ENABLED: _told(ev.Enable(agent_id="a")),
    Trigger.ASSIGNED: lambda stage: stage.engine.channels.join(ROOM, "a", by="olga"),
    Trigger.REMOVED: _told(ev.RemoveMember(agent_id="a")),
    Trigger.TURN_GRANTED: _told(ev.GrantTurn(agent_id="a")),
    Trigger.TURN_COMPLETE: _told(ev.CompleteTurn(agent_id="a"), "a"),
    Trigger.TURN_COMPLETE_SOLO: _told(ev.CompleteTurn(agent_id="a"), "a"),
    Trigger.TIMEOUT: lambda stage: stage.later(61),
    Trigger.WAIT_REQUESTED: _told(ev.RequestWait(agent_id="a"), "a"),
    Trigger.WAIT_RESOLVED: _told(ev.ResumeTurn(agent_id="a"), "a"),
    Trigger.WAIT_TIMEOUT: lambda stage: stage.later(601),
    Trigger.HUMAN_INTERRUPT: lambda stage: stage.engine.channels.post(ROOM, "stop", by="ana"),
    Trigger.OVERRIDE_TO_ACTIVE: _told(ev.OverrideWait(agent_id="a", to=AgentState.ACTIVE)),
    Trigger.OVERRIDE_TO_QUEUED: _told(ev.OverrideWait(agent_id="a", to=AgentState.QUEUED)),
}


def allowed(state: AgentState, trigger: Trigger) -> bool:
    """Whether what is tried for the trigger makes it happen: to be lost has a word for each
    state."""
    if TRIES[trigger] is _gone:
        return LOST_TRIGGERS.get(state) is trigger
    return (state, trigger) in TRANSITIONS and TRANSITIONS[state, trigger] is not state


@pytest.mark.requirement("T1", "T2")
@pytest.mark.parametrize("trigger", sorted(set(Trigger) - NOT_HERE))
@pytest.mark.parametrize("state", list(AgentState))
def test_every_cell_of_the_table_through_the_engine(state: AgentState, trigger: Trigger):
    async def play():
        clock = ManualClock()
        async with manual_engine("sqlite://", clock) as engine:
            stage = Stage(engine, clock)
            await stage.set(
                state,
                alone=trigger is Trigger.TURN_COMPLETE_SOLO,
                disabled=trigger is Trigger.ENABLED,
            )
            before = await stage.moves()
            refusal = ""
            try:
                await TRIES[trigger](stage)
            except RefusedError as refused:
                refusal = refused.refusal.message
            new = (await stage.moves())[len(before) :]
            assert all(TRANSITIONS[one, why] is to for one, why, to in new)
            if allowed(state, trigger):
                assert not refusal
                assert new[0] == (state, trigger, TRANSITIONS[state, trigger])
            else:
                assert (state, trigger) not in [(one, why) for one, why, _ in new]
                assert not refusal or not new, "a refusal moves nobody"

    run_async(play())
