"""Agents that take turns in channels of an engine in this process, and what a turn takes them."""

import asyncio
import statistics
import time

from handrail.engine import opening
from handrail.engine.engine import Engine
from handrail.engine.errors import RefusedError
from handrail.engine.settings import EngineSettings
from handrail.kernel.channel import events as ev
from handrail.views.channels import TurnView

AGENTS = 5
ROLE = "talker"
TEXT = "done: " + "x" * 200
WAIT_SECONDS = 30.0
ENDLESS = {"maxAgentTurns": 1_000_000, "defaultTimeoutSeconds": 600}


class Talk:
    """Channels of five agents each; every turn is one message, and is completed."""

    def __init__(self, engine: Engine, channels: int, turns: int) -> None:
        self.engine, self.wanted = engine, turns
        self.rooms = {
            f"room-{n}": [f"agent-{n}-{k}" for k in range(AGENTS)] for n in range(channels)
        }
        self.turns = 0
        self.done_at: dict[str, float] = {}
        self.handovers: list[float] = []
        self.over = asyncio.Event()

    async def furnish(self) -> None:
        engine = self.engine
        for name, agents in self.rooms.items():
            await engine.channels.open(name, engine.channels.turn_config(ENDLESS), by="bench")
            await engine.channels.command(name, ev.PauseChannel(), by="bench")
            for agent in agents:
                await engine.agents.register(agent, [ROLE])
                await engine.channels.join(name, agent, by="bench")

    async def play(self) -> float:
        """Until all turns are taken; the seconds that it took."""
        tasks = [asyncio.create_task(self.agent(a)) for team in self.rooms.values() for a in team]
        start = time.perf_counter()
        for name in self.rooms:
            await self.engine.channels.command(name, ev.UnpauseChannel(), by="bench")
        await self.over.wait()
        seconds = time.perf_counter() - start
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return seconds

    async def agent(self, name: str) -> None:
        engine = self.engine
        while not self.over.is_set():
            turn = await engine.claims.claim_next(name, WAIT_SECONDS, [])
            if not isinstance(turn, TurnView):
                continue
            came, room = time.perf_counter(), turn.channel_id
            if room in self.done_at:
                self.handovers.append(1000 * (came - self.done_at[room]))
            await engine.channels.say(room, name, TEXT, turn=turn.turn)
            self.done_at[room] = time.perf_counter()
            await engine.channels.command(
                room, ev.CompleteTurn(agent_id=name, turn=turn.turn), by=name
            )
            self.turns += 1
            if self.turns >= self.wanted:
                self.over.set()


async def measured(url: str, channels: int, turns: int) -> dict[str, float]:
    async with opening.open(url, settings=EngineSettings()) as engine:
        talk = Talk(engine, channels, turns)
        await talk.furnish()
        try:
            seconds = await talk.play()
        except RefusedError as refused:
            raise AssertionError(f"a turn was refused: {refused}") from refused
    return figures(talk.turns, seconds, talk.handovers)


def figures(turns: int, seconds: float, handovers: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(handovers, n=100)
    return {
        "turns_per_s": turns / seconds,
        "handover_p50_ms": cuts[49],
        "handover_p99_ms": cuts[98],
    }
