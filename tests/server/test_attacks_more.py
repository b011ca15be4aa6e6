"""Attacks on the server itself: on its time, its memory and its doors, and on who may do what."""

import asyncio
import io
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from threading import Event
from typing import Any

import httpx
import pytest
import uvicorn
from msgspec.structs import replace
from tests.engine.engines import PATIENCE, chain, node
from tests.patience import wait_until_async
from tests.server.harness import (
    ADDRESS,
    ASKS,
    CEO,
    OPERATOR,
    PLAIN,
    WORKER,
    ServerHarness,
    expect_json,
    expect_problem,
)
from tests.server.http_agents import register_agent, register_limited_agent, wait_for_long_polls
from tests.server.raw_connection import RawConnection
from uvicorn.server import ServerState

from handrail.cli.run_view import EventFormatter, PlainView
from handrail.engine.audit.verification import verify
from handrail.engine.services import definitions
from handrail.server import http_protocol, idempotency, long_polls, outer_middleware
from handrail.server.access import SESSION_COOKIE, Caller
from handrail.server.outer_middleware import TokenBuckets
from handrail.server.problems import HTTPProblemError
from handrail.server.routes import admin, audit, event_streams
from handrail.server.settings import ServerSettings
from handrail.store.rows import DefinitionRow
from handrail.views.audit import Verification

SOON = 5.0
"""Seconds; what takes the square of its length takes minutes."""
GATED = chain(node("fix"), node("look", "approval", revise_to="fix"), node("ship"), id="gated")


def browser(harness: ServerHarness) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=harness.served.asgi)  # pyright: ignore[reportArgumentType]
    return httpx.AsyncClient(transport=transport, base_url=ADDRESS)


async def link(harness: ServerHarness, role: str = "viewer") -> str:
    body = {"name": "bea", "role": role}
    return expect_json(await harness.admin.post("/sign-ins", json=body), 201)["path"]


def secret_of(client: httpx.AsyncClient) -> str:
    return client.headers["authorization"].removeprefix("Bearer ")


# Time


async def test_a_reason_is_read_in_the_time_that_it_is_long(harness: ServerHarness):
    body = b'{"action": "close", "reason": "%b\\u0000"}' % (b"a" * 200_000)
    began = time.process_time()
    expect_problem(
        await harness.operator.post("/executions/none/override", content=body), 422, "bad_body"
    )
    assert time.process_time() - began < SOON


async def test_a_cookie_is_read_in_the_time_that_it_is_long(harness: ServerHarness):
    quoted = f'{SESSION_COOKIE}="' + '\\"' * 50_000 + '"'
    began = time.process_time()
    answer = await harness.nobody.get(f"{ADDRESS}/healthz", headers={"cookie": quoted})
    assert answer.status_code == 200
    assert time.process_time() - began < SOON


async def test_the_document_of_the_api_is_made_once(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    first = expect_json(await harness.nobody.get("/openapi.json"))
    monkeypatch.setattr(admin, "openapi_document", None)
    assert expect_json(await harness.nobody.get("/openapi.json")) == first


async def test_a_definition_that_takes_long_to_check_holds_up_nobody(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    begun, go_on, check = asyncio.Event(), Event(), definitions.check_definition
    loop = asyncio.get_running_loop()

    def slowly(*given: Any) -> Any:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(PATIENCE), "the test is over"
        return check(*given)

    monkeypatch.setattr(definitions, "check_definition", slowly)
    checking = asyncio.create_task(harness.viewer.post("/workflows/validate", json=PLAIN))
    await begun.wait()
    expect_json(await harness.viewer.get("/beads"))
    go_on.set()
    assert expect_json(await checking)["valid"] is True


async def test_checks_of_the_record_wait_in_a_short_line_and_go_with_whoever_waits(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    begun, checked = asyncio.Event(), list[str | None]()
    loop = asyncio.get_running_loop()

    def endless(store: Any, head: str | None, on_progress: Any) -> Verification:
        checked.append(head)
        loop.call_soon_threadsafe(begun.set)
        while True:
            on_progress()

    monkeypatch.setattr(audit, "verify", endless)
    headers = {"authorization": harness.viewer.headers["authorization"]}
    lines = [
        RawConnection(harness.served, "GET", f"/audit/verify?head={n:064x}", headers)
        for n in range(audit.CHECKS_MAX)
    ]
    await begun.wait()
    await wait_for_long_polls(harness, audit.CHECKS_MAX)
    refused = await harness.viewer.get("/audit/verify", params={"head": "f" * 64})
    expect_problem(refused, 503, "too_many_checks")
    assert refused.headers["retry-after"]
    for line in reversed(lines):
        await line.cut()
    monkeypatch.setattr(audit, "verify", verify)
    assert expect_json(await harness.viewer.get("/audit/verify"))["ok"] is True
    assert len(checked) == 1


# Memory


async def test_one_caller_has_a_part_of_the_places_and_leaves_others_room(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(long_polls, "CALLER_SLOTS_MIN", 1)
    harness.served.long_polls.settings = ServerSettings(waiting_max=8)
    await harness.define(PLAIN)
    path = f"/executions/{(await harness.file('plain'))['execution_id']}"
    greedy = [asyncio.create_task(harness.viewer.get(path, params={"wait": 60})) for _ in range(2)]
    await wait_for_long_polls(harness, 2)
    answer = await harness.viewer.get(path, params={"wait": 60})
    assert "of vera" in expect_problem(answer, 503, "too_many_waiting")["detail"]
    other = asyncio.create_task(harness.ceo.get(path, params={"wait": 60}))
    await wait_for_long_polls(harness, 3)
    harness.served.long_polls.draining.set()
    for one in (*greedy, other):
        expect_json(await one)
    async with harness.served.long_polls.slot(Caller(name="vera", role="viewer")):
        assert harness.served.long_polls.count == 1


async def test_there_is_room_again_when_somebody_leaves(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(long_polls, "CALLER_SLOTS_MIN", 1)
    places = long_polls.LongPolls(ServerSettings(waiting_max=4))
    one = Caller(name="a", role="agent")
    async with places.slot(one):
        with pytest.raises(HTTPProblemError, match="of a are waiting"):
            async with places.slot(one):
                pass
    async with places.slot(one):
        pass


async def test_bodies_of_requests_under_way_share_a_bound(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(outer_middleware, "BODIES_BYTES_MAX", 1_000)
    large = {"title": "a bug", "description": "x" * 1_000}
    answer = await harness.operator.post("/beads", json=large)
    expect_problem(answer, 503, "too_much_at_once")
    assert answer.headers["retry-after"]
    await harness.file()
    assert harness.served.asgi.body_bytes == 0  # pyright: ignore[reportFunctionMemberAccess]


async def test_a_repeat_waits_for_its_original_but_not_for_ever(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(idempotency, "REPEAT_WAIT_SECONDS_MAX", 0.05)
    agent = await register_agent(harness, "coder-7", WORKER, capacity=3)
    key, body = {"Idempotency-Key": "k1"}, {"agent_id": "coder-7", "wait": 60}
    claim = asyncio.create_task(agent.http.post("/dispatches/claim", json=body, headers=key))
    await wait_for_long_polls(harness)
    again = await agent.http.post("/dispatches/claim", json=body, headers=key)
    expect_problem(again, 503, "under_way")
    assert again.headers["retry-after"]
    harness.served.long_polls.draining.set()
    assert (await claim).status_code == 204
    monkeypatch.setattr(idempotency, "WAITING_REPEATS_MAX", 0)
    assert (await agent.http.post("/dispatches/claim", json=body, headers=key)).status_code == 204


async def test_nobody_takes_a_key_under_which_the_server_keeps_answers(harness: ServerHarness):
    key = {"Idempotency-Key": "http:k1"}
    expect_problem(
        await harness.operator.post("/beads", json={"title": "a"}, headers=key), 422, "bad_key"
    )


# Figures and names that nobody could store


@pytest.mark.parametrize(
    "said",
    [
        b'"usage": {"tokens": 9223372036854775808}',
        b'"usage": {"tokens": %b}' % (b"9" * 400),
        b'"usage": {"cost": 1e300}',
        b'"usage": {"cost": %b}' % (b"9" * 400),
        b'"evidence": {"score": %b}' % (b"9" * 400),
    ],
)
async def test_a_figure_that_no_database_can_hold_is_refused_and_spoils_nothing(
    harness: ServerHarness, said: bytes
):
    await harness.define(PLAIN)
    agent = await register_agent(harness, "coder-7", WORKER)
    await harness.file("plain")
    dispatch = await agent.claim()
    body = b'{"fence": %d, "outcome": "success", %b}' % (dispatch["fence"], said)
    path = f"/dispatches/{dispatch['id']}/result"
    expect_problem(await agent.http.post(path, content=body), 422, "bad_body")
    expect_json(await agent.report(dispatch, usage={"tokens": 10**12, "cost": 10**12}))
    (figures,) = expect_json(await harness.viewer.get("/metrics/workflows"))["items"]
    assert figures["usage"] == {"tokens": 10**12, "cost": 10**12}


async def test_a_context_with_very_many_values_is_refused_at_once(harness: ServerHarness):
    body = b'{"title": "a", "context": {"a": [%b1]}}' % (b"1," * 2_000_000)
    began = time.process_time()
    expect_problem(await harness.operator.post("/beads", content=body), 422, "unusable")
    assert time.process_time() - began < SOON


async def test_a_lock_takes_no_result(harness: ServerHarness):
    agent = await register_agent(harness, "coder-7", WORKER)
    body = {"fence": 1, "outcome": "success"}
    for what in ("lock:repository.d1", "lock:.d1"):
        answer = await agent.http.post(f"/dispatches/{what}/result", json=body)
        expect_problem(answer, 404, "unknown_dispatch")


@pytest.mark.parametrize("field", [b"content-type: text/plain; charset=none\r\n\r\na", b"\r\n\xff"])
async def test_a_form_in_an_encoding_that_is_none_is_refused(harness: ServerHarness, field: bytes):
    bead = await harness.file()
    part = b'--b\r\ncontent-disposition: form-data; name="by"\r\n'
    headers = {"content-type": "multipart/form-data; boundary=b"}
    content = part + field + b"\r\n--b--\r\n"
    answer = await harness.operator.post(
        f"/beads/{bead['id']}/files", content=content, headers=headers
    )
    expect_problem(answer, 422, "bad_file")


async def test_a_token_is_for_a_time_and_a_name_that_make_sense(harness: ServerHarness):
    for wrong in (
        {"expires": "99999999999w"},
        {"expires": "11000d"},
        {"name": "engine"},
        {"name": " "},
        {"name": "a\n"},
        {"role": "agent", "agent": "engine"},
        {"role": "agent", "agent": "a/b"},
        {"role": "agent", "agent": ".."},
    ):
        body = {"role": "viewer", "name": "vic", **wrong}
        answer = await harness.admin.post("/tokens", json=body)
        assert answer.status_code == 422, (wrong, answer.text)
    for name in ("engine", "a\0", "a\n", "a\x1b[2J"):
        answer = await harness.admin.post("/sign-ins", json={"name": name})
        assert answer.status_code == 422, (name, answer.text)


def test_names_in_a_definition_steer_no_terminal():
    out = io.StringIO()
    PlainView(EventFormatter.__new__(EventFormatter), out).write("\x1b]0;mine\x07 -> b\x9b2J")
    assert not {"\x1b", "\x07", "\x9b"} & set(out.getvalue())


# How often


async def test_a_token_has_one_bucket_however_it_is_written(harness: ServerHarness):
    expect_json(await harness.viewer.get("/me"))
    harness.served.asgi.calls = TokenBuckets(0.001)  # pyright: ignore[reportFunctionMemberAccess]
    secret = secret_of(harness.viewer)
    written = [f"{word}{' ' * n}{secret}" for word in ("Bearer", "bearer") for n in range(1, 5)]
    found = [
        (await harness.nobody.get("/me", headers={"authorization": one})).status_code
        for one in written
    ]
    assert found == [200] + [429] * 7


async def test_a_new_secret_is_no_new_bucket(harness: ServerHarness):
    harness.served.asgi.calls = TokenBuckets(0.001)  # pyright: ignore[reportFunctionMemberAccess]
    found = [
        (
            await harness.nobody.get(
                f"{ADDRESS}/healthz", headers={"cookie": f"{SESSION_COOKIE}=hr_{n}"}
            )
        )
        for n in range(3)
    ]
    assert [one.status_code for one in found] == [200, 429, 429]


async def test_wrong_tokens_of_others_do_not_keep_out_who_was_let_in(harness: ServerHarness):
    expect_json(await harness.viewer.get("/me"))
    attempts = [
        await harness.nobody.get("/me", headers={"authorization": f"Bearer hr_{n}"})
        for n in range(12)
    ]
    expect_problem(attempts[-1], 429, "too_many_requests")
    expect_json(await harness.viewer.get("/me"))


async def test_wrong_tokens_of_others_do_not_keep_out_a_valid_token_that_is_new(
    harness: ServerHarness,
):
    attempts = [
        await harness.nobody.get("/me", headers={"authorization": f"Bearer hr_{n}"})
        for n in range(12)
    ]
    expect_problem(attempts[-1], 429, "too_many_requests")
    expect_json(await harness.viewer.get("/me"))
    link = expect_json(
        await harness.admin.post("/sign-ins", json={"name": "eve", "role": "viewer"}), 201
    )
    page = await harness.nobody.get(f"{ADDRESS}{link['path']}")
    assert page.status_code != 429
    wrong = await harness.nobody.get(f"{ADDRESS}/sign-in/hr_x")
    expect_problem(wrong, 429, "too_many_requests")


async def test_a_revoked_token_is_kept_out_with_the_wrong_ones(harness: ServerHarness):
    made = expect_json(
        await harness.admin.post("/tokens", json={"name": "pat", "role": "viewer"}), 201
    )
    await harness.admin.delete(f"/tokens/{made['id']}")
    headers = {"authorization": f"Bearer {made['token']}"}
    attempts = [await harness.nobody.get("/me", headers=headers) for _ in range(12)]
    expect_problem(attempts[-1], 429, "too_many_requests")


# Browsers


@pytest.mark.parametrize("origin", ["null", "http://[", "http://evil", "http://handrail.test@evil"])
async def test_only_an_origin_that_is_ours_is(harness: ServerHarness, origin: str):
    async with browser(harness) as page:
        await page.post(await link(harness))
        mark = expect_json(await page.get("/api/v1/me"))["csrf"]
        headers = {"x-csrf-token": mark, "origin": origin}
        path = "/api/v1/workflows/validate"
        expect_problem(await page.post(path, json=PLAIN, headers=headers), 403, "csrf")
        headers["origin"] = ADDRESS
        expect_json(await page.post(path, json=PLAIN, headers=headers))


async def test_whoever_has_signed_out_can_sign_in_again(harness: ServerHarness):
    async with browser(harness) as page:
        await page.post(await link(harness))
        old = page.cookies[SESSION_COOKIE]
        mark = expect_json(await page.get("/api/v1/me"))["csrf"]
        gone = await page.post("/api/v1/sign-out", headers={"x-csrf-token": mark})
        assert gone.status_code == 204
        assert SESSION_COOKIE not in page.cookies
        page.cookies.set(SESSION_COOKIE, old)  # as a browser that did not take note of it
        expect_problem(await page.get("/api/v1/me"), 401, "bad_token")
        where = await link(harness)
        for path in ("/", "/healthz", "/assets/sign-in.js", where):
            assert (await page.get(path)).status_code == 200, path
        page.cookies.clear()
        assert (
            await page.post(where, headers={"cookie": f"{SESSION_COOKIE}={old}"})
        ).status_code == 303
        assert expect_json(await page.get("/api/v1/me"))["name"] == "bea"


async def test_a_link_gives_somebody_who_is_signed_in_another_role(harness: ServerHarness):
    async with browser(harness) as page:
        await page.post(await link(harness))
        assert (await page.post(await link(harness, "ceo"))).status_code == 303
        assert expect_json(await page.get("/api/v1/me"))["role"] == "ceo"


async def test_a_link_is_used_once_by_whoever_is_first(harness: ServerHarness):
    where = await link(harness)
    async with browser(harness) as one, browser(harness) as two:
        answers = await asyncio.gather(one.post(where), two.post(where))
        assert sorted(answer.status_code for answer in answers) == [303, 401]


async def test_another_site_signs_nobody_in(harness: ServerHarness):
    where = await link(harness)
    async with browser(harness) as page:
        for site in ("cross-site", "same-site"):
            answer = await page.post(where, headers={"sec-fetch-site": site})
            expect_problem(answer, 403, "csrf")
        answer = await page.post(where, headers={"sec-fetch-site": "same-origin"})
        assert answer.status_code == 303


async def test_of_two_sessions_in_one_request_neither_counts(harness: ServerHarness):
    async with browser(harness) as page:
        await page.post(await link(harness))
        mine = page.cookies[SESSION_COOKIE]
        page.cookies.clear()
        for cookies in (
            f"{SESSION_COOKIE}=x; {SESSION_COOKIE}={mine}",
            f"{SESSION_COOKIE}={mine}; {SESSION_COOKIE}=x",
        ):
            answer = await page.get("/api/v1/me", headers={"cookie": cookies})
            expect_problem(answer, 401, "no_token")


async def test_a_stream_ends_when_its_token_is_revoked(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(event_streams, "RECHECK_SECONDS", 0.01)
    body = {"role": "viewer", "name": "vic"}
    made = expect_json(await harness.admin.post("/tokens", json=body), 201)
    headers = {"authorization": f"Bearer {made['token']}"}
    reader = RawConnection(harness.served, "GET", "/events", headers)
    assert await reader.answered() == 200
    assert (await harness.admin.delete(f"/tokens/{made['id']}")).status_code == 204
    assert (await reader.rest()).endswith(event_streams.RETRY_FRAME)
    assert await RawConnection(harness.served, "GET", "/events", headers).answered() == 401


# Who may what


async def test_a_disabled_agent_does_not_come_back_as_a_new_one(harness: ServerHarness):
    await harness.define(PLAIN)
    agent = await register_agent(harness, "coder-7", WORKER)
    expect_json(await harness.ceo.patch("/agents/coder-7", json={"enabled": False}))
    expect_problem(await agent.http.delete("/agents/coder-7"), 403, "agent_disabled")
    assert (await agent.register(WORKER))["enabled"] is False
    await harness.file("plain")
    expect_problem(await agent.claims(), 409, "agent_disabled")
    assert (await harness.ceo.delete("/agents/coder-7")).status_code == 204


async def test_a_token_with_fewer_roles_claims_nothing_as_the_others(harness: ServerHarness):
    await harness.define(PLAIN)
    await register_agent(harness, "coder-7", WORKER, "planner")
    await harness.file("plain")
    fewer = await register_limited_agent(harness, "coder-7", "planner")
    expect_problem(await fewer.claims(), 403, "forbidden_role")
    await fewer.register("planner")
    assert (await fewer.claims()).status_code == 204


async def test_an_operator_takes_no_id_or_name_that_finds_somebody_elses_definition(
    harness: ServerHarness,
):
    await harness.define({**GATED, "id": "refund-1", "name": "Refund"})
    mine = {**PLAIN, "id": "mine", "name": "mine"}
    expect_json(await harness.operator.post("/workflows", json=mine), 201)
    for wanted in ({"id": "Refund"}, {"name": "Refund"}, {"id": "", "name": "Refund"}):
        answer = await harness.operator.post("/workflows", json={**PLAIN, "name": "new", **wanted})
        expect_problem(answer, 403, "foreign_definition")
    renamed = {**mine, "name": "Refund"}
    expect_problem(
        await harness.operator.put("/workflows/mine", json=renamed), 403, "foreign_definition"
    )
    bead = expect_json(
        await harness.ceo.post("/beads", json={"title": "a", "workflow_id": "Refund"}), 201
    )
    assert bead["workflow_id"] == "refund-1"
    expect_json(await harness.operator.put("/workflows/mine", json={**mine, "name": "still mine"}))


@pytest.mark.parametrize("ceos", [{"id": "gate", "name": "gate"}, {"id": "g-1", "name": "gate"}])
async def test_a_ceos_definition_stored_between_an_operators_check_and_write_wins(
    ceos: dict[str, str], harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    store = harness.engine.store
    put, outer_middleware = store.definitions.put, {**GATED, **ceos}

    def raced(row: DefinitionRow, owner: str | None = None) -> bool:
        monkeypatch.setattr(store.definitions, "put", put)
        text = json.dumps(outer_middleware)
        ours = replace(
            row, workflow_id=outer_middleware["id"], name="gate", definition=text, created_by=CEO
        )
        assert put(ours)
        return put(row, owner)

    monkeypatch.setattr(store.definitions, "put", raced)
    answer = await harness.operator.post("/workflows", json={**PLAIN, "id": "gate", "name": "gate"})
    expect_problem(answer, 403, "foreign_definition")
    found = expect_json(await harness.viewer.get("/workflows/gate"))
    assert (found["version"], found["created_by"]) == (1, CEO)


async def test_a_guarded_run_puts_no_version_on_a_definition_stored_meanwhile(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    store = harness.engine.store
    put = store.definitions.put

    def raced(row: DefinitionRow, owner: str | None = None) -> bool:
        monkeypatch.setattr(store.definitions, "put", put)
        text = json.dumps({**GATED, "id": "gate", "name": "gate"})
        assert put(replace(row, kind="workflow", definition=text, created_by=CEO))
        return put(row, owner)

    monkeypatch.setattr(store.definitions, "put", raced)
    run = {"team": "gate", "agent": "a", "limits": {}}
    expect_problem(await harness.operator.post("/guarded-runs", json=run), 409, "not_guarded")
    assert expect_json(await harness.viewer.get("/workflows/gate"))["created_by"] == CEO


async def test_only_a_ceo_stores_a_definition_that_commits(harness: ServerHarness):
    commits = chain(
        node("look", "approval", approvers=[OPERATOR]),
        node("apply", kind="commit", role="engineering-manager"),
        id="backdoor",
    )
    expect_problem(
        await harness.operator.post("/workflows", json=commits), 403, "commit_unapproved"
    )
    expect_json(
        await harness.operator.post("/workflows", json={**PLAIN, "id": "own", "name": "own"}), 201
    )
    changed = {**commits, "id": "own", "name": "own"}
    expect_problem(
        await harness.operator.put("/workflows/own", json=changed), 403, "commit_unapproved"
    )
    expect_json(await harness.ceo.post("/workflows", json=commits), 201)


async def test_an_operator_does_not_begin_a_run_behind_an_approval(harness: ServerHarness):
    await harness.define(GATED, ASKS)
    bead = await harness.file()
    path = f"/beads/{bead['id']}/executions"
    for place in ("ship", "end"):
        body = {"workflow_id": "gated", "from_node": place}
        expect_problem(await harness.operator.post(path, json=body), 403, "behind_approval")
    body = {"workflow_id": "gated", "from_node": "look"}
    run = expect_json(await harness.operator.post(path, json=body), 201)
    close = {"action": "close", "reason": "enough"}
    expect_json(await harness.ceo.post(f"/executions/{run['id']}/override", json=close))
    expect_problem(
        await harness.operator.post(path, json={"from_node": "ship"}), 403, "behind_approval"
    )
    assert (
        expect_json(await harness.ceo.post(path, json={"from_node": "ship"}), 201)["status"]
        == "running"
    )


# Connections

SIZE = 20_000_000
GONE: list[str] = []


async def slow(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers a lot; at /small a little, at /wait when who asked has gone."""
    if scope["path"] == "/wait":
        while (await receive())["type"] != "http.disconnect":
            pass
        GONE.append(scope["path"])
        return
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    size = 1 if scope["path"] == "/small" else SIZE
    await send({"type": "http.response.body", "body": b"x" * size})


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[int, ServerState]]:
    """A port, and what is going on there."""
    config = uvicorn.Config(slow, log_config=None, lifespan="off")
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: http_protocol.BoundedHTTPProtocol(config, state, {}), "127.0.0.1", 0
    )
    async with server:
        yield server.sockets[0].getsockname()[1], state
        for one in list(state.connections):
            one.transport.abort()  # pyright: ignore[reportAttributeAccessIssue]
        await asyncio.gather(*state.tasks, return_exceptions=True)


async def sent(port: int, text: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4_096)
    writer.write(text)
    return reader, writer


async def rest(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(PATIENCE):
        try:
            return await reader.read(-1)
        except ConnectionError:
            return b""


def clocks(state: ServerState) -> list[bool]:
    """Of each connection, whether it will be cut off."""
    return [one._part_timer is not None for one in state.connections]  # pyright: ignore


async def test_nobody_is_cut_off_whose_request_came_whole():
    async with listening() as (port, state):
        _, waiting = await sent(port, b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n")
        await wait_until_async(lambda: state.tasks)
        assert clocks(state) == [False]
        waiting.close()
        await wait_until_async(lambda: not state.connections)
        reader, writer = await sent(port, b"GET /small HTTP/1.1\r\nhost: x\r\n\r\n")
        for _ in range(3):
            await reader.readuntil(b"x\r\n0\r\n\r\n")
            assert clocks(state) == [False]
            writer.write(b"GET /small HTTP/1.1\r\nhost: x\r\n\r\n")
        writer.close()


async def test_empty_lines_keep_no_connection_open():
    async with listening() as (port, state):
        reader, writer = await sent(port, b"GET /small HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"x\r\n0\r\n\r\n")
        writer.write(b"\r\n")
        await wait_until_async(lambda: clocks(state) == [True])
        writer.write(b"GET /small HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"x\r\n0\r\n\r\n")
        assert clocks(state) == [False]
        writer.close()


@pytest.mark.parametrize(
    "begin", [b"GET /", b"GET / HTTP/1.1\r\nx: ", b"GET / HTTP/1.1\r\nx: y\r\n"]
)
async def test_a_head_that_does_not_end_is_cut_off(begin: bytes):
    async with listening() as (port, state):
        reader, writer = await sent(port, begin)
        with suppress(ConnectionError):
            for _ in range(1_000):
                writer.write(b"a" * 100_000)
                await writer.drain()
        await wait_until_async(lambda: not state.connections)
        assert b"200 OK" not in await rest(reader)
        writer.close()


ENDLESS = b"POST /wait HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n"


@pytest.mark.parametrize(
    ("begin", "more"),
    [(b"0\r\n", b"a: b\r\n" * 1_000), (b"0\r\nx: ", b"a" * 6_000), (b"2;", b"a" * 6_000)],
)
async def test_what_stands_behind_a_body_is_bounded_and_dropped(begin: bytes, more: bytes):
    async with listening() as (port, state):
        reader, writer = await sent(port, ENDLESS)
        await wait_until_async(lambda: state.tasks)
        (one,) = state.connections
        heads = list(one.headers)  # pyright: ignore[reportAttributeAccessIssue]
        writer.write(begin)
        with suppress(ConnectionError):
            for _ in range(1_000):
                writer.write(more)
                await writer.drain()
        await wait_until_async(lambda: not state.connections)
        assert one.headers == heads  # pyright: ignore[reportAttributeAccessIssue]
        assert b"200 OK" not in await rest(reader)
        writer.close()


async def test_who_sends_many_requests_ahead_is_cut_off_and_who_sends_some_is_answered():
    ask = b"GET /small HTTP/1.1\r\nhost: x\r\n\r\n"
    async with listening() as (port, state):
        reader, writer = await sent(port, ask * 50)
        for _ in range(50):
            await asyncio.wait_for(reader.readuntil(b"x\r\n0\r\n\r\n"), PATIENCE)
        writer.close()
        await wait_until_async(lambda: not state.connections)
        reader, writer = await sent(port, b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n")
        await wait_until_async(lambda: state.tasks)
        (one,) = state.connections
        with suppress(ConnectionError):
            for _ in range(100):
                writer.write(ask * 1_000)
                await writer.drain()
        await wait_until_async(lambda: not state.connections)
        assert len(one.pipeline) <= http_protocol.PIPELINED_MAX  # pyright: ignore[reportAttributeAccessIssue]
        writer.close()


@pytest.mark.parametrize(
    "begin",
    [
        b"",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nhost:",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\na",
    ],
)
async def test_a_request_that_comes_too_slowly_is_cut_off(
    begin: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        http_protocol,
        "PART_SECONDS_MAX",
        {http_protocol.PART_HEAD: 0.05, http_protocol.PART_BODY: 0.1},
    )
    async with listening() as (port, state):
        reader, writer = await sent(port, begin)
        await rest(reader)
        await wait_until_async(lambda: not state.connections)
        writer.close()


async def test_a_reader_that_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_protocol, "STALL_SECONDS_MAX", 0.05)
    async with listening() as (port, state):
        reader, writer = await sent(port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await asyncio.wait_for(reader.readexactly(1), PATIENCE)
        await wait_until_async(lambda: not state.connections)
        assert len(await rest(reader)) < SIZE
        writer.close()


async def test_a_reader_that_takes_its_time_is_served(monkeypatch: pytest.MonkeyPatch):
    looked = list[int]()
    look = http_protocol.BoundedHTTPProtocol._check_stall

    def counted(self: http_protocol.BoundedHTTPProtocol, before: int) -> None:
        looked.append(before)
        look(self, before + http_protocol.SENT_BYTES_MIN)

    monkeypatch.setattr(http_protocol, "STALL_SECONDS_MAX", 0.02)
    monkeypatch.setattr(http_protocol.BoundedHTTPProtocol, "_check_stall", counted)
    async with listening() as (port, _):
        reader, writer = await sent(port, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        await wait_until_async(lambda: len(looked) > 2)
        assert len(await rest(reader)) > SIZE
        writer.close()


async def test_a_request_hears_of_the_end_also_if_another_was_sent_behind_it():
    GONE.clear()
    ask = b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n"
    async with listening() as (port, state):
        _, writer = await sent(port, ask + ask)
        await wait_until_async(lambda: any(one.pipeline for one in state.connections))  # pyright: ignore[reportAttributeAccessIssue]
        writer.close()
    assert GONE == ["/wait"]
