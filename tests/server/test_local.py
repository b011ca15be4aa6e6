"""The API without a socket: who is spoken to, what can be streamed, and that nobody can listen."""

import ast
import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.harness import ADDRESS, ASKS, ServerHarness, expect_json

from handrail.api.operation import API_PREFIX
from handrail.client.clients import Client
from handrail.client.errors import NotFoundError
from handrail.server.access import SCOPE_LOCAL_CALLER, Caller
from handrail.server.app import ServerApp
from handrail.server.local_transport import LOCAL_URL, open_local_transport

SOURCE = Path(__file__).resolve().parents[2] / "src/handrail"
ANA = Caller(name="ana", role="admin")


async def test_every_request_is_the_callers(harness: ServerHarness):
    async with (
        open_local_transport(harness.engine, ANA) as transport,
        Client(LOCAL_URL, "hr_any", transport=transport) as client,
    ):
        me = await client.sessions.get_me()
        assert (me.name, me.role) == ("ana", "admin")
        made = await client.tokens.create("viewer", name="vera")
        assert made.created_by == "ana"
        with pytest.raises(NotFoundError):
            await client.runs.get("no")


async def test_a_caller_may_do_no_more_than_its_role(harness: ServerHarness):
    async with (
        open_local_transport(harness.engine, Caller(name="vera", role="viewer")) as transport,
        httpx.AsyncClient(transport=transport, base_url=LOCAL_URL + API_PREFIX) as client,
    ):
        assert (await client.get("/beads")).status_code == 200
        assert (await client.get("/tokens")).status_code == 403


async def test_events_come_as_they_happen_and_not_at_the_end(harness: ServerHarness):
    await harness.define(ASKS)
    run = (await harness.file("asks"))["execution_id"]
    async with (
        open_local_transport(harness.engine, ANA) as transport,
        Client(LOCAL_URL, transport=transport) as client,
    ):
        seen: list[str] = []
        async for event in client.runs.follow(run):
            seen.append(event.type)
            if event.type == "offered":
                body = {"action": "close", "reason": "enough"}
                expect_json(await harness.ceo.post(f"/executions/{run}/override", json=body))
        assert seen[-1] == "ended"


async def test_a_stream_that_is_left_ends_on_the_other_side_too(harness: ServerHarness):
    await harness.define(ASKS)
    run = (await harness.file("asks"))["execution_id"]
    before = len(asyncio.all_tasks())
    async with (
        open_local_transport(harness.engine, ANA) as transport,
        httpx.AsyncClient(transport=transport, base_url=LOCAL_URL + API_PREFIX) as client,
        client.stream("GET", f"/executions/{run}/events") as answer,
    ):
        async for _ in answer.aiter_bytes():
            break
    assert len(asyncio.all_tasks()) == before


async def test_what_a_command_raises_comes_out_as_it_is(harness: ServerHarness):
    with pytest.raises(ZeroDivisionError):
        async with open_local_transport(harness.engine, ANA):
            raise ZeroDivisionError


@pytest.mark.parametrize(
    "name", [SCOPE_LOCAL_CALLER, "handrail-caller", "x-handrail-caller", "user"]
)
async def test_nothing_in_a_request_makes_a_caller(harness: ServerHarness, name: str):
    headers = {name: "ana", f"x-{name}": '{"name":"ana","role":"admin"}'}
    answer = await harness.nobody.get(
        "/tokens", headers=headers, params={SCOPE_LOCAL_CALLER: "ana"}
    )
    assert answer.status_code == 401


async def test_a_caller_in_the_scope_has_to_be_one(harness: ServerHarness):
    """Whatever else somebody's server may put there by that name is nobody."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope[SCOPE_LOCAL_CALLER] = {"name": "ana", "role": "admin"}
        await harness.served.asgi(scope, receive, send)

    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS + API_PREFIX) as client:
        assert (await client.get("/tokens")).status_code == 401


def test_only_the_local_transport_names_a_caller_without_a_token():
    """It gives out a transport for a client: there is no application that could be listened on."""
    naming = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name) and node.id == "SCOPE_LOCAL_CALLER"
    }
    assert naming == {"server/access.py", "server/local_transport.py"}
    assert SCOPE_LOCAL_CALLER not in ServerApp.__dict__
    importing = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if "local_transport" in path.read_text()
    }
    assert importing == {"server/local_transport.py", "cli/connection.py"}
