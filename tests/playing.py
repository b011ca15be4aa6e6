"""One bead through a definition on the real engine, in memory, with these agents."""

import asyncio
from typing import Any

from handrail.engine.attend import Answerer, Attended, Listener, nobody, unheard
from handrail.engine.clock import Clock
from handrail.engine.opening import open as open_engine


def played(
    document: dict[str, Any],
    staff: dict[str, Any],
    *,
    answer: Answerer = nobody,
    listen: Listener = unheard,
    trusted: frozenset[str] = frozenset(),
    clock: Clock | None = None,
    **start: Any,
) -> Attended:
    """The run at its end, or where nobody answers. `staff` is by role, `trusted` ones measure."""

    async def play() -> Attended:
        async with open_engine("sqlite://", clock=clock) as engine:
            defined = await engine.define(document)
            for role, agent in staff.items():
                engine.add_agent(agent, role, name=role, trusted=role in trusted)
            handle = await engine.start(defined.id, **start)
            attended = Attended(handle, answer=answer, listen=listen)
            await attended.to_its_end()
            return attended

    return asyncio.run(play())
