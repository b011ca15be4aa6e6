"""Workers that claim and report over HTTP, clients that wait; and what they see."""

import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.http.wire import Wire

API = "/api/v1"
ROLE = "backend-engineer"
TASKS = 10
"""Steps of one run."""
FLOW = {
    "name": "flow",
    "kind": "workflow",
    "nodes": [
        {"id": "start", "type": "start"},
        *({"id": f"task-{n}", "type": "task", "role": ROLE} for n in range(TASKS)),
        {"id": "end", "type": "end"},
    ],
    "edges": [
        {"from_node_id": before, "to_node_id": after}
        for before, after in zip(
            ["start", *(f"task-{n}" for n in range(TASKS))],
            [*(f"task-{n}" for n in range(TASKS)), "end"],
            strict=True,
        )
    ],
}
PARKED = {
    "name": "parked",
    "kind": "workflow",
    "nodes": [
        {"id": "start", "type": "start"},
        {"id": "ask", "type": "approval", "role": "ceo"},
        {"id": "end", "type": "end"},
    ],
    "edges": [
        {"from_node_id": "start", "to_node_id": "ask"},
        {"from_node_id": "ask", "to_node_id": "end"},
    ],
}
"""Waits for a person, who does not come."""
NOTHING = 204
TEXT = "done: " + "x" * 200


class Seen:
    """Latencies in milliseconds."""

    def __init__(self) -> None:
        self.took: dict[str, list[float]] = {"claim": [], "report": []}
        self.steps = 0

    async def timed(self, what: str, asked: Awaitable[tuple[int, Any]]) -> tuple[int, Any]:
        """A claim that waited in vain, since nothing was left to do, says nothing of the server."""
        start = time.perf_counter()
        status, answer = await asked
        if status != NOTHING:
            self.took[what].append(1000 * (time.perf_counter() - start))
        return status, answer

    def figures(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for what, took in self.took.items():
            if len(took) > 1:
                cuts = statistics.quantiles(took, n=100)
                found |= {f"{what}_p50_ms": cuts[49], f"{what}_p99_ms": cuts[98]}
        return found


async def worker(wire: Wire, agent: str, seen: Seen, more: Callable[[], bool]) -> None:
    """Claims and reports until there is nothing more to do."""
    status, _ = await wire.ask("POST", f"{API}/agents", {"id": agent, "roles": [ROLE]})
    assert status == 201, status
    while more():
        asked = {"agent_id": agent, "wait": 1}
        status, dispatch = await seen.timed(
            "claim", wire.ask("POST", f"{API}/dispatches/claim", asked)
        )
        if status == NOTHING:
            continue
        assert status == 200, dispatch
        result = {"outcome": "success", "text": TEXT, "fence": dispatch["fence"]}
        path = f"{API}/dispatches/{dispatch['id']}/result"
        status, answer = await seen.timed("report", wire.ask("POST", path, result))
        assert status == 200, answer
        seen.steps += 1
    wire.close()


async def file(wire: Wire, runs: int, workflow: str = "flow") -> list[str]:
    """So many beads; the ids of their runs."""
    found: list[str] = []
    for number in range(runs):
        body = {"title": f"bead {number}", "workflow_id": workflow}
        status, bead = await wire.ask("POST", f"{API}/beads", body)
        assert status == 201, bead
        found.append(bead["execution_id"])
    return found


async def waiting(wire: Wire, run_id: str, more: Callable[[], bool]) -> None:
    """Waits for the end of a run as our client does, a minute at a time."""
    while more():
        status, _ = await wire.ask("GET", f"{API}/executions/{run_id}?wait=60")
        assert status == 200, status
    wire.close()


async def hammer(wire: Wire, path: str, count: int) -> None:
    for _ in range(count):
        status, _ = await wire.ask("POST", path, {"agent_id": "a-1", "wait": 0})
        assert status == 200, status
    wire.close()
