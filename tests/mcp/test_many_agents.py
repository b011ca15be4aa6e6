"""Many agents at one address, as they come and go. HANDRAIL_LONG=1: as many as have room."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

import httpx
import pytest
from tests.client.live_server import Server, free_port
from tests.client.protocol_servers import serve_app
from tests.mcp.mcp_clients import PATIENCE, ROLE
from tests.patience import wait_until_async

from handrail.cli.asgi import TRIALS_PER_SECOND, AuthRateLimit
from handrail.client.bearer import read_bearer_token
from handrail.client.clients import SyncClient
from handrail.mcp import agent_sessions as seats_module
from handrail.mcp.agent_sessions import SESSIONS_MAX, AgentSessions, SessionRefusedError
from handrail.mcp.server import PATH, make_http_app
from handrail.server.access import issue_credential
from handrail.server.outer_middleware import TokenBuckets

LONG = bool(os.environ.get("HANDRAIL_LONG"))
AGENTS = SESSIONS_MAX if LONG else 12
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


class Place(NamedTuple):
    """Where agents sit, and how they are reached."""

    seats: AgentSessions
    http: httpx.AsyncClient
    url: str

    async def post(self, token: str, body: bytes) -> httpx.Response:
        headers = {**ACCEPT, "Authorization": f"Bearer {token}"}
        return await self.http.post(self.url, content=body, headers=headers)

    async def does(self, token: str, tool: str, **arguments: Any) -> str:
        """What the tool says, or the status of the answer."""
        params = {"name": tool, "arguments": arguments}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = await self.post(token, json.dumps(body).encode())
        if answer.status_code != 200:
            return str(answer.status_code)
        said = [line[5:] for line in answer.text.splitlines() if line.startswith("data:")]
        return json.loads(said[-1])["result"]["content"][0]["text"]

    async def all(self, tokens: list[str], tool: str, **arguments: Any) -> list[str]:
        """Each does it at the same time."""
        return await asyncio.gather(*(self.does(one, tool, **arguments) for one in tokens))


@asynccontextmanager
async def placed(server: Server) -> AsyncIterator[Place]:
    room = httpx.Limits(max_connections=2 * SESSIONS_MAX)
    async with (
        AgentSessions(server.url) as seats,
        serve_app(AuthRateLimit(make_http_app(seats, "127.0.0.1")), free_port(), "on") as address,
        httpx.AsyncClient(timeout=2 * PATIENCE, trust_env=False, limits=room) as http,
    ):
        yield Place(seats, http, f"{address}{PATH}")


def play(server: Server, scene: Callable[[Place], Coroutine[Any, Any, None]]) -> None:
    async def played() -> None:
        async with asyncio.timeout(3 * PATIENCE), placed(server) as place:
            await scene(place)

    asyncio.run(played())


def test_agents_that_all_come_at_once_are_each_given_work_of_their_own(
    server: Server, admin_client: SyncClient
):
    tokens = [server.token("agent", f"agent-{n}") for n in range(AGENTS)]
    for _ in tokens:
        admin_client.beads.create("a bug", workflow_id="one")

    async def scene(place: Place) -> None:
        said = await place.all(tokens, "register", roles=[ROLE])
        assert all("You are 'agent-" in one for one in said)
        given = await place.all(tokens, "claim", wait=20)
        assert len({one.partition("# Dispatch ")[2].split()[0] for one in given}) == AGENTS
        if LONG:
            more = server.token("agent", "one-too-many")
            assert await place.does(more, "register", roles=[ROLE]) == "503"
        done = await place.all(tokens, "answer", outcome="success", text="done")
        assert all("accepted" in one for one in done)

    play(server, scene)
    ended = admin_client.runs.list(status="ended", limit=500).items
    assert [run.terminal_status for run in ended] == ["done_success"] * AGENTS


def test_who_hangs_up_in_mid_claim_is_given_nothing_until_it_comes_again(
    server: Server, admin_client: SyncClient
):
    ada = server.token("agent", "ada")

    async def scene(place: Place) -> None:
        await place.does(ada, "register", roles=[ROLE])
        seat = await place.seats.open_session(ada)
        claiming = asyncio.create_task(place.does(ada, "claim", wait=50))
        await wait_until_async(lambda: seat.idle_seconds == 0.0)
        claiming.cancel()
        await asyncio.gather(claiming, return_exceptions=True)
        await wait_until_async(lambda: seat.idle_seconds > 0.0)
        await asyncio.to_thread(admin_client.beads.create, "a bug", workflow_id="one")
        assert not seat.held
        assert "# Dispatch" in await place.does(ada, "claim", wait=20)

    play(server, scene)


def test_a_token_that_is_revoked_in_mid_session_opens_nothing_more(
    server: Server, admin_client: SyncClient
):
    ada = server.token("agent", "ada")
    admin_client.beads.create("a bug", workflow_id="one")

    async def scene(place: Place) -> None:
        await place.does(ada, "register", roles=[ROLE])
        assert "# Dispatch" in await place.does(ada, "claim", wait=20)
        (token,) = [one for one in admin_client.tokens.list().items if one.agent == "ada"]
        await asyncio.to_thread(admin_client.tokens.revoke, token.id)
        assert "revoked: stop" in await place.does(ada, "answer", outcome="success")
        assert await place.does(ada, "claim", wait=0) == "401"
        assert await place.does(ada, "claim", wait=0) == "401"

    play(server, scene)


def test_what_no_tool_takes_is_refused_and_others_are_answered(
    server: Server, admin_client: SyncClient
):
    ada = server.token("agent", "ada")
    hostile = (b"", b"{", b"[]", b"\xff", b'{"a":' * 100_000, b"x" * 2_000_000)

    async def scene(place: Place) -> None:
        for body in hostile:
            assert 400 <= (await place.post(ada, body)).status_code < 500
        assert "has an unknown `agent_id`" in await place.does(ada, "claim", agent_id="bob")
        assert "call `register`" in await place.does(ada, "claim", wait=0)

    play(server, scene)


def test_who_has_been_away_makes_room_and_who_has_work_in_hand_does_not(
    server: Server, admin_client: SyncClient, monkeypatch: pytest.MonkeyPatch
):
    ada, bob, cy = (server.token("agent", name) for name in ("ada", "bob", "cy"))
    monkeypatch.setattr(seats_module, "SESSIONS_MAX", 1)
    monkeypatch.setattr(seats_module, "EVICT_IDLE_SECONDS", 1e9)

    async def scene() -> None:
        async with AgentSessions(server.url) as seats:
            seat = await seats.open_session(ada)
            with pytest.raises(SessionRefusedError, match="at work here"):
                await seats.open_session(bob)  # ada was here a moment ago
            monkeypatch.setattr(seats_module, "EVICT_IDLE_SECONDS", 0.0)
            assert (await seats.open_session(bob)).agent_id == "bob"
            seat = await seats.open_session(ada)
            await seat.client.agents.register("ada", [ROLE])
            admin_client.beads.create("a bug", workflow_id="one")
            found = await seat.client.dispatches.claim("ada", wait=20)
            assert found is not None
            seat.hold(found)
            with pytest.raises(SessionRefusedError, match="at work here"):
                await seats.open_session(cy)

    asyncio.run(scene())


def test_nobody_waits_for_a_token_that_the_server_takes_long_to_refuse(
    server: Server, monkeypatch: pytest.MonkeyPatch
):
    ada, asks = server.token("agent", "ada"), AgentSessions._connect

    async def sit(self: AgentSessions, token: str) -> Any:
        if token != ada:
            await asyncio.Event().wait()
        return await asks(self, token)

    monkeypatch.setattr(AgentSessions, "_connect", sit)

    async def scene() -> None:
        async with asyncio.timeout(PATIENCE), AgentSessions(server.url) as seats:
            junk = asyncio.create_task(seats.open_session("hr_junk"))
            await asyncio.sleep(0)
            first, again = await asyncio.gather(seats.open_session(ada), seats.open_session(ada))
            assert first is again
            junk.cancel()
            await asyncio.gather(junk, return_exceptions=True)

    asyncio.run(scene())


def test_what_is_issued_is_taken_for_a_token_and_little_else_is():
    secret, _ = issue_credential(
        "token", name="ada", role="agent", by="test", now=datetime.now(UTC)
    )
    good = b"Bearer " + secret.encode()

    def given(*values: bytes) -> str | None:
        return read_bearer_token([(b"authorization", value) for value in values])

    assert given(good) == secret
    assert given() is None
    odd = [b"", b"Basic YTpi", b"Bearer hr_wrong", b"Bearer " + b"x" * 50, good + b"\xe9"]
    assert [given(value) for value in odd] == [""] * len(odd)
    assert given(good, good) == ""


def test_who_comes_with_wrong_tokens_comes_no_further_and_others_do():
    seen: list[str] = []
    answers = {"good": 200, "late": 429, "wrong": 401}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        token = dict(scope["headers"])[b"authorization"].decode()
        seen.append(token)
        status = next(given for word, given in answers.items() if word in token)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def scene() -> None:
        door = AuthRateLimit(app)
        transport = httpx.ASGITransport(app=door, client=("192.0.2.1", 1))
        others = httpx.ASGITransport(app=door, client=("192.0.2.2", 1))

        async def status(token: str, over: httpx.ASGITransport = transport) -> int:
            headers = {"Authorization": f"Bearer hr_{token:x<43}"}
            async with httpx.AsyncClient(transport=over, base_url="http://door") as http:
                return (await http.get("/", headers=headers)).status_code

        assert await status("good-1") == 200
        wrong = [await status(f"{'wrong' if n % 2 else 'late'}-{n}") for n in range(50)]
        assert wrong[:5] == [429, 401] * 2 + [429]
        assert wrong.count(401) < 20
        assert await status("good-1") == 200, "it was let in before"
        assert await status("good-2", others) == 200, "it is at another address"
        assert await status("good-3") == 429
        door.trials = TokenBuckets(TRIALS_PER_SECOND)  # some seconds later
        assert await status("good-3") == 200, "a few tokens a second are tried all the same"

    asyncio.run(scene())
    assert len(seen) < 40
