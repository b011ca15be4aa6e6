"""One bead through a definition on the real engine, in memory, with these agents."""

import asyncio
from typing import Any

from handrail.engine.environment import Clock
from handrail.engine.opening import open as open_engine
from handrail.engine.services.runs import (
    AnswerCallback,
    InteractiveRun,
    RunEventCallback,
    answer_nothing,
    ignore_event,
)


def run_to_end(
    document: dict[str, Any],
    staff: dict[str, Any],
    *,
    answer: AnswerCallback = answer_nothing,
    listen: RunEventCallback = ignore_event,
    trusted: frozenset[str] = frozenset(),
    clock: Clock | None = None,
    **start: Any,
) -> InteractiveRun:
    """The run at its end, or where nobody answers. `staff` is by role, `trusted` ones measure."""

    async def play() -> InteractiveRun:
        async with open_engine("sqlite://", clock=clock) as engine:
            defined = await engine.define(document)
            for role, agent in staff.items():
                engine.add_agent(agent, role, name=role, trusted=role in trusted)
            handle = await engine.start(defined.id, **start)
            attended = InteractiveRun(handle, answer=answer, on_event=listen)
            await attended.run_to_end()
            return attended

    return asyncio.run(play())
