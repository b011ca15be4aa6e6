"""A process of agents that take turns, as one writes them; stopped and let go on by `channels.py`.

    python channels_worker.py SERVERS HEARTBEAT RECORD < AGENTS

AGENTS is a JSON object: agent -> {"token", "capacity", "channels"}. What was tried and what was
acknowledged is a line of RECORD each, written before and after: [what, channel, turn, agent, more].
SIGUSR1 stops the process right before it completes its next turn, whichever that is.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from handrail import Worker
from handrail.client.channel_turns import TurnRunner, WorkerTurn
from handrail.views.channels import TurnView

SAYS, BETWEEN = 2, 0.05
"""Messages in a turn, and seconds before each."""
PATIENCE = 60.0
"""For one call, on a machine that has other things to do."""
Note = Callable[..., None]


def watched(note: Note) -> None:
    """Completions are the worker's own doing: they are seen where it says them."""
    complete, take = WorkerTurn.complete, TurnRunner._run_turn
    wanted: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: wanted.append(number))

    async def completes(self: WorkerTurn) -> None:
        note("completes", self)
        if wanted:
            wanted.clear()
            note("stops", self)
            os.kill(os.getpid(), signal.SIGSTOP)
        await complete(self)
        note("completed", self)

    async def takes(self: TurnRunner, view: TurnView) -> None:
        note("given", WorkerTurn(view, self.client, self.retry), [one.id for one in view.messages])
        await take(self, view)

    WorkerTurn.complete, TurnRunner._run_turn = completes, takes


def talks(note: Note) -> Callable[[WorkerTurn], Any]:
    numbers = count(1)

    async def talk(turn: WorkerTurn) -> None:
        """Messages whose texts nobody else has."""
        for _ in range(SAYS):
            text = f"{turn._agent_id} {turn.number} {next(numbers)}"
            await asyncio.sleep(BETWEEN)
            note("says", turn, text)
            await turn.say(text)
            note("said", turn, text)

    return talk


async def main(servers: str, heartbeat: float, record: Path) -> None:
    with record.open("a", buffering=1) as lines:

        def note(what: str, turn: WorkerTurn, more: object = None) -> None:
            told = what, turn.channel, turn.number, turn._agent_id, more
            print(json.dumps(told), file=lines)

        watched(note)
        async with asyncio.TaskGroup() as group:
            for name, wanted in json.load(sys.stdin).items():
                worker = Worker(
                    servers,
                    wanted["token"],
                    agent_id=name,
                    concurrency=wanted["capacity"],
                    heartbeat=heartbeat,
                    timeout=PATIENCE,
                )
                worker.channel(*wanted["channels"])(talks(note))
                group.create_task(worker.run())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])))
