"""Agents that work over HTTP, in tests: what they send, and what they were given."""

import asyncio
from typing import Any

import httpx
from tests.server.house import ADDRESS, House, told

from handrail.api.operation import API_PREFIX
from handrail.server.access import issue_credential

HUB = {
    "id": "hub",
    "name": "hub",
    "kind": "team",
    "start": "orchestrator",
    "terminator": "ticketing",
    "agents": [
        {"id": "orchestrator", "hands_off_to": ["memory", "ticketing", "summary"]},
        {"id": "memory", "hands_off_to": ["orchestrator"]},
        {"id": "summary", "hands_off_to": ["orchestrator"], "marker": "WORKFLOW_COMPLETE"},
        {"id": "ticketing", "hands_off_to": ["orchestrator"]},
    ],
}
SEATS = ("orchestrator", "memory", "summary", "ticketing")


class Outsider:
    """An agent with a token of its own."""

    def __init__(self, name: str, http: httpx.AsyncClient) -> None:
        self.name, self.http = name, http

    async def register(self, *roles: str, capacity: int = 1) -> dict[str, Any]:
        body = {"id": self.name, "roles": roles, "capacity": capacity}
        return told(await self.http.post("/agents", json=body), 201)

    async def claims(self, **more: Any) -> httpx.Response:
        return await self.http.post("/dispatches/claim", json={"agent_id": self.name, **more})

    async def claim(self, **more: Any) -> dict[str, Any]:
        """The next dispatch; there is one."""
        return told(await self.claims(**more))

    async def report(
        self, dispatch: dict[str, Any], outcome: str | None = "success", **result: Any
    ) -> httpx.Response:
        body = {"fence": dispatch["fence"], **result}
        body |= {"outcome": outcome} if outcome is not None else {}
        return await self.http.post(f"/dispatches/{dispatch['id']}/result", json=body)

    async def work(self, outcome: str | None = "success", **result: Any) -> dict[str, Any]:
        """Claim something, and report that it came to this."""
        return told(await self.report(await self.claim(), outcome, **result))

    async def beat(self, **body: Any) -> dict[str, Any]:
        return told(await self.http.post(f"/agents/{self.name}/heartbeat", json=body))


async def outsider(house: House, name: str, *roles: str, capacity: int = 1) -> Outsider:
    """A registered agent."""
    agent = Outsider(name, await house.client(name, "agent"))
    if roles:
        await agent.register(*roles, capacity=capacity)
    return agent


async def crew(house: House) -> dict[str, Outsider]:
    """An agent for every seat of the hub."""
    await house.define(HUB)
    return {seat: await outsider(house, f"{seat}-1", seat) for seat in SEATS}


async def limited(house: House, name: str, *works_as: str) -> Outsider:
    """An agent whose token lets it work as these roles alone."""
    secret, row = issue_credential(
        "token", name=name, role="agent", by="test", now=house.clock.now(), works_as=works_as
    )
    await house.engine.credentials.add(row)
    transport = httpx.ASGITransport(app=house.served.asgi)  # pyright: ignore[reportArgumentType]
    headers = {"Authorization": f"Bearer {secret}"}
    return Outsider(
        name, httpx.AsyncClient(transport=transport, base_url=ADDRESS + API_PREFIX, headers=headers)
    )


async def seq_of(house: House, execution_id: str) -> int:
    """How much has happened to a run."""
    return (await house.engine.runs.state(execution_id)).seq


async def warned(house: House, execution_id: str) -> list[str]:
    """The codes of a run's warnings."""
    view = told(await house.viewer.get(f"/executions/{execution_id}"))
    return [warning["code"] for warning in view["warnings"]]


async def waiting(house: House, count: int = 1) -> None:
    """Until so many requests wait."""
    for _ in range(100_000):
        if house.served.long_polls.count == count:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{house.served.long_polls.count} requests wait, not {count}")
