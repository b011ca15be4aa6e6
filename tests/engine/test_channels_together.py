"""Channels on two engines of one database, everybody at once: what must hold always holds."""

import asyncio
import os
import random

import pytest
from tests.engine.engines import ROLE, manual_engine, run_async

from handrail.engine.audit.doctor import check_database
from handrail.engine.audit.verification import verify
from handrail.engine.commit.channel_change import decode_channel
from handrail.engine.engine import Engine
from handrail.engine.errors import EngineBusyError, RefusedError
from handrail.kernel.agent_lifecycle import AgentState
from handrail.kernel.channel import events as ev
from handrail.kernel.channel.state import check_invariants
from handrail.store.urls import open_maintenance_store
from handrail.testing.clock import ManualClock
from handrail.views.channels import TurnView

pytest_plugins = ["tests.fixtures_postgres"]

LONG = os.environ.get("HANDRAIL_LONG") == "1"
CHANNELS = [f"c{n}" for n in range(20 if LONG else 6)]
AGENTS = [f"a{n}" for n in range(12 if LONG else 6)]
ROUNDS = 200 if LONG else 25
AT_ONCE = 12
MODES = ("queue", "interrupt", "inject", "parallel")
ORDERS = ("round_robin", "priority", "manual")


class Crowd:
    """Agents, a person and an operator who do anything, on any of the engines."""

    def __init__(self, engines: list[Engine], seed: int) -> None:
        self.engines, self.chance = engines, random.Random(seed)
        self.turns: dict[str, TurnView] = {}
        self.said: dict[str, list[str]] = {name: [] for name in CHANNELS}

    def engine(self) -> Engine:
        return self.chance.choice(self.engines)

    def talked(self) -> int:
        return sum(map(len, self.said.values()))

    async def furnish(self) -> None:
        for agent in AGENTS:
            await self.engines[0].agents.register(agent, [ROLE], self.chance.choice((1, 1, 1, 2)))
        for n, name in enumerate(CHANNELS):
            given = {
                "humanInterruptMode": MODES[n % 4],
                "order": ORDERS[n % 3],
                "maxAgentTurns": 5,
            }
            config = self.engines[0].channels.turn_config(given)
            await self.engines[0].channels.open(name, config, by="olga")
            for agent in self.chance.sample(AGENTS, 4):
                await self.engines[0].channels.join(name, agent, by="olga")

    async def act(self) -> None:
        """One thing, which may be refused; nothing else may go wrong."""
        often = (self.claim, self.claim, self.complete, self.person)
        seldom = (self.say, self.wait, self.rejoin, self.remove, self.old, self.lose)
        does = self.chance.choice((*often, *often, *seldom, self.say))
        try:
            await does(self.engine())
        except (RefusedError, EngineBusyError):
            return

    async def claim(self, engine: Engine) -> None:
        agent = self.chance.choice(AGENTS)
        found = await engine.claims.claim_next(agent)
        if isinstance(found, TurnView):
            self.turns[found.id] = found

    def some(self) -> TurnView:
        if not self.turns:
            raise EngineBusyError("nobody has a turn")
        return self.chance.choice(list(self.turns.values()))

    async def say(self, engine: Engine) -> None:
        turn = self.some()
        text = f"{turn.agent_id} {self.chance.random()}"
        await engine.channels.say(turn.channel_id, turn.agent_id, text, turn=turn.turn)
        self.said[turn.channel_id].append(text)

    async def complete(self, engine: Engine) -> None:
        turn = self.some()
        self.turns.pop(turn.id, None)
        command = ev.CompleteTurn(agent_id=turn.agent_id, turn=turn.turn)
        await engine.channels.command(turn.channel_id, command, by=turn.agent_id)

    async def old(self, engine: Engine) -> None:
        """A turn that is long over ends nothing."""
        turn = self.some()
        command = ev.CompleteTurn(agent_id=turn.agent_id, turn=turn.turn - 1)
        try:
            await engine.channels.command(turn.channel_id, command, by=turn.agent_id)
        except RefusedError:
            return
        raise AssertionError(f"an old token ended {turn.id}")

    async def person(self, engine: Engine) -> None:
        name, agent = self.chance.choice(CHANNELS), self.chance.choice(AGENTS)
        number = self.chance.random()
        if number < 0.6:
            text = f"ana {number}"
            await engine.channels.post(name, text, by="ana")
            self.said[name].append(text)
            return
        command = self.chance.choice(
            (
                ev.GrantTurn(agent_id=agent),
                ev.ResumeTurn(agent_id=agent, human=True),
                ev.OverrideWait(agent_id=agent, to=AgentState.ACTIVE),
                ev.OverrideWait(agent_id=agent, to=AgentState.QUEUED),
                ev.PauseChannel(),
                ev.UnpauseChannel(),
                ev.UnpauseChannel(),
            )
        )
        await engine.channels.command(name, command, by="ana")

    async def wait(self, engine: Engine) -> None:
        turn = self.some()
        wait = ev.RequestWait(agent_id=turn.agent_id, turn=turn.turn, seconds=30)
        await engine.channels.command(turn.channel_id, wait, by=turn.agent_id)

    async def rejoin(self, engine: Engine) -> None:
        name, agent = self.chance.choice(CHANNELS), self.chance.choice(AGENTS)
        await engine.channels.join(name, agent, by="olga")

    async def remove(self, engine: Engine) -> None:
        if self.chance.random() < 0.3:
            name, agent = self.chance.choice(CHANNELS), self.chance.choice(AGENTS)
            await engine.channels.leave(name, agent, by="olga")

    async def lose(self, engine: Engine) -> None:
        """The agent's process was started anew."""
        if self.chance.random() < 0.3:
            row = engine.store.agents.get(agent := self.chance.choice(AGENTS))
            assert row is not None
            await engine.agents.register(agent, [ROLE], row.capacity)


def sound(engine: Engine) -> None:
    rows = engine.store.channels.load(CHANNELS)
    for row in rows.values():
        assert check_invariants(decode_channel(row.state)) == []
    capacity = {row.id: row.capacity for row in engine.store.agents.list()}
    held: dict[str, int] = {}
    for member in engine.store.channels.list_memberships():
        if member.turn is not None:
            held[member.agent_id] = held.get(member.agent_id, 0) + 1
    assert all(count == 1 for agent, count in held.items() if capacity[agent] == 1)


def whole(engine: Engine, crowd: Crowd) -> None:
    """Everything that was acknowledged was said once, and is numbered without a gap."""
    for name in CHANNELS:
        rows = engine.store.channels.list_messages(name, 0, 10**6, 10**6)
        assert [row.number for row in rows] == list(range(1, len(rows) + 1))
        texts = [row.text for row in rows]
        assert sorted(texts) == sorted(crowd.said[name])


@pytest.mark.requirement("T3", "T13")
@pytest.mark.parametrize("seed", range(3))
def test_everybody_at_once_on_two_engines_breaks_nothing(
    shared_url: str, clock: ManualClock, seed: int
):
    async def play():
        async with manual_engine(shared_url, clock) as one, manual_engine(shared_url, clock) as two:
            crowd = Crowd([one, two], seed)
            await crowd.furnish()
            for number in range(4 * ROUNDS):
                if number >= ROUNDS and crowd.talked() > ROUNDS:
                    break
                await asyncio.gather(*(crowd.act() for _ in range(AT_ONCE)))
                sound(one)
                if number % 5 == 4:
                    clock.advance(crowd.chance.choice((1, 20, 40)))
                    for agent in AGENTS:
                        await one.agents.heartbeat(agent)
                    await asyncio.gather(one.tick(), two.tick())
            await one.tick()
            sound(two)
            whole(one, crowd)
            assert crowd.talked() > ROUNDS
        records = open_maintenance_store(shared_url)
        try:
            assert verify(records).findings == ()
            assert check_database(records, clock.now()) == []
        finally:
            records.close()

    run_async(play())
