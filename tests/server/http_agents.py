"""Agents that work over HTTP, in tests: what they send, and what they were given."""

from typing import Any

import httpx
from tests.patience import wait_until_async
from tests.server.harness import ADDRESS, ServerHarness, expect_json

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


class HttpAgent:
    """An agent with a token of its own."""

    def __init__(self, name: str, http: httpx.AsyncClient) -> None:
        self.name, self.http = name, http

    async def register(self, *roles: str, capacity: int = 1) -> dict[str, Any]:
        body = {"id": self.name, "roles": roles, "capacity": capacity}
        return expect_json(await self.http.post("/agents", json=body), 201)

    async def claims(self, **more: Any) -> httpx.Response:
        return await self.http.post("/dispatches/claim", json={"agent_id": self.name, **more})

    async def claim(self, **more: Any) -> dict[str, Any]:
        """The next dispatch; there is one."""
        return expect_json(await self.claims(**more))

    async def report(
        self, dispatch: dict[str, Any], outcome: str | None = "success", **result: Any
    ) -> httpx.Response:
        body = {"fence": dispatch["fence"], **result}
        body |= {"outcome": outcome} if outcome is not None else {}
        return await self.http.post(f"/dispatches/{dispatch['id']}/result", json=body)

    async def work(self, outcome: str | None = "success", **result: Any) -> dict[str, Any]:
        """Claim something, and report that it came to this."""
        return expect_json(await self.report(await self.claim(), outcome, **result))

    async def beat(self, **body: Any) -> dict[str, Any]:
        return expect_json(await self.http.post(f"/agents/{self.name}/heartbeat", json=body))


async def register_agent(
    harness: ServerHarness, name: str, *roles: str, capacity: int = 1
) -> HttpAgent:
    """A registered agent."""
    agent = HttpAgent(name, await harness.client(name, "agent"))
    if roles:
        await agent.register(*roles, capacity=capacity)
    return agent


async def register_hub_agents(harness: ServerHarness) -> dict[str, HttpAgent]:
    """An agent for every seat of the hub."""
    await harness.define(HUB)
    return {seat: await register_agent(harness, f"{seat}-1", seat) for seat in SEATS}


async def register_limited_agent(harness: ServerHarness, name: str, *works_as: str) -> HttpAgent:
    """An agent whose token lets it work as these roles alone."""
    secret, row = issue_credential(
        "token", name=name, role="agent", by="test", now=harness.clock.now(), works_as=works_as
    )
    await harness.engine.credentials.add(row)
    transport = httpx.ASGITransport(app=harness.served.asgi)  # pyright: ignore[reportArgumentType]
    headers = {"Authorization": f"Bearer {secret}"}
    return HttpAgent(
        name, httpx.AsyncClient(transport=transport, base_url=ADDRESS + API_PREFIX, headers=headers)
    )


async def last_seq(harness: ServerHarness, execution_id: str) -> int:
    """How much has happened to a run."""
    return (await harness.engine.runs.state(execution_id)).seq


async def warning_codes(harness: ServerHarness, execution_id: str) -> list[str]:
    """The codes of a run's warnings."""
    view = expect_json(await harness.viewer.get(f"/executions/{execution_id}"))
    return [warning["code"] for warning in view["warnings"]]


async def wait_for_long_polls(harness: ServerHarness, count: int = 1) -> None:
    """Until so many requests wait."""
    await wait_until_async(lambda: harness.served.long_polls.count == count)
