"""Print the walk of two commands through the code: which functions run, in which files.

    uv run python scripts/walk.py           the counts
    uv run python scripts/walk.py --files   the files too, in the order in which they are entered

`bead create` and an agent's result, from the client's call to its answer, on SQLite, through the
whole HTTP application without a socket. Each is walked once before, so that nothing is imported or
loaded for the first time.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

import handrail
from handrail.client.clients import AsyncClient, Client
from handrail.server.access import Caller
from handrail.server.local_transport import LOCAL_URL, open_local_transport

SOURCE = str(Path(handrail.__file__).parent)
DEFINITION = {
    "id": "walk",
    "name": "walk",
    "kind": "workflow",
    "nodes": [
        {"id": "start", "type": "start"},
        {"id": "fix", "type": "task", "role": "backend-engineer"},
        {"id": "check", "type": "task", "role": "qa-engineer"},
        {"id": "end", "type": "end"},
    ],
    "edges": [
        {"from_node_id": "start", "to_node_id": "fix"},
        {"from_node_id": "fix", "to_node_id": "check"},
        {"from_node_id": "check", "to_node_id": "end"},
    ],
}


class Walk:
    """Every call of a function of ours while it is entered."""

    def __init__(self) -> None:
        self.calls: list[CodeType] = []

    def __enter__(self) -> "Walk":
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            self.calls.append(frame.f_code)

    @property
    def files(self) -> list[str]:
        """The file of each call, in order."""
        return [code.co_filename.removeprefix(f"{SOURCE}/") for code in self.calls]

    def print(self, name: str, *, with_files: bool) -> None:
        files = self.files
        changes = sum(a != b for a, b in pairwise(files))
        functions = len(set(self.calls))
        print(
            f"{name}: {len(set(files))} files, {functions} functions, {len(files)} calls, "
            f"{changes} changes of file"
        )
        if with_files:
            print("\n".join(f"    {file}" for file in dict.fromkeys(files)))


async def create_bead(client: AsyncClient) -> None:
    await client.beads.create("a bug", workflow_id="walk")


async def report(client: AsyncClient) -> Callable[[], Awaitable[object]]:
    """What reports the result of a dispatch that was claimed before."""
    dispatch = await client.dispatches.claim("coder")
    assert dispatch is not None, "a bead was filed"
    result = {"outcome": "success", "text": "done"}
    return lambda: client.dispatches.report(dispatch.id, dispatch.fence, result)


async def trace_walks() -> dict[str, Walk]:
    """Return the walk of each command."""
    operator, agent = Caller(name="olga", role="operator"), Caller(name="coder", role="agent")
    async with handrail.open("sqlite://", background=False) as engine:
        await engine.define(DEFINITION)
        async with (
            open_local_transport(engine, operator) as person_transport,
            open_local_transport(engine, agent) as agent_transport,
            Client(LOCAL_URL, transport=person_transport) as person,
            Client(LOCAL_URL, transport=agent_transport) as coder,
        ):
            await coder.agents.register("coder", ["backend-engineer"], capacity=2)
            await create_bead(person)
            with Walk() as bead_walk:
                await create_bead(person)
            await (await report(coder))()
            send = await report(coder)
            with Walk() as result_walk:
                await send()
    return {"bead create": bead_walk, "result": result_walk}


if __name__ == "__main__":
    for name, walk in asyncio.run(trace_walks()).items():
        walk.print(name, with_files="--files" in sys.argv)
