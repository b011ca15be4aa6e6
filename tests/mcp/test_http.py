"""`handrail mcp --http`: many agents at one address, each by the token of its own request."""

import asyncio

import httpx
from tests.client.live_server import Server
from tests.client.protocol_servers import start_listener
from tests.mcp.mcp_clients import ROLE, over_http

from handrail.client.clients import SyncClient

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ACCEPT = {"Accept": "application/json, text/event-stream"}


def status(address: str, token: str, content: bytes | None = None) -> int:
    """Of a plain request."""
    headers = {**ACCEPT, **({"Authorization": token} if token else {})}
    with httpx.Client(trust_env=False, headers=headers, timeout=60) as http:
        if content is not None:
            headers["Content-Type"] = "application/json"
            return http.post(address, content=content, headers=headers).status_code
        answer = http.post(address, json=LIST)
        if answer.status_code == 401:
            assert answer.headers["www-authenticate"].startswith("Bearer")
        return answer.status_code


def test_who_calls_is_who_the_token_of_the_request_says(server: Server, admin_client: SyncClient):
    ada, bob = server.token("agent", "ada"), server.token("agent", "bob")
    person = server.token("operator", "olga")
    filed = admin_client.beads.create("a bug", workflow_id="one")

    async def play(address: str) -> None:
        async with over_http(address, ada) as first, over_http(address, bob) as second:
            assert "You are 'ada'" in await first.do("register", roles=[ROLE])
            assert "You are 'bob'" in await second.do("register", roles=[ROLE])
            given = await first.claimed()
            name = given.partition("# Dispatch ")[2].split()[0]
            stolen = await second.refused("answer", outcome="success", dispatch_id=name)
            assert "held by 'ada'" in stolen
            assert "accepted" in await first.do("answer", outcome="success", text="done")

    with start_listener(server, "mcp", "--http") as address:
        assert status(address, "") == 401
        assert status(address, "Basic YTpi") == 401
        assert status(address, "Bearer hr_wrong") == 401
        assert status(address, f"Bearer {person}") == 403
        assert status(address, f"Bearer {ada}") == 200
        assert status(address, f"Bearer {ada}", b"x" * 2_000_000) == 413
        asyncio.run(play(address))
    (step,) = admin_client.runs.list_steps(filed.execution_id or "").items
    assert step.agent == "ada"
