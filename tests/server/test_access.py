"""Who may call what: the whole table, every call by everybody, on their own objects and others'."""

import inspect
from operator import attrgetter
from typing import Any

import httpx
import pytest
from tests.server.calls import ACCESS_TABLE
from tests.server.harness import (
    ADMIN,
    AGENT,
    ASKS,
    CEO,
    OPERATOR,
    OTHER_OPERATOR,
    PLAIN,
    WORKER,
    ServerHarness,
    expect_json,
)

from handrail.api.calls import OPERATIONS
from handrail.api.operation import API_PREFIX, Access
from handrail.kernel.result import Outcome, Result
from handrail.server.access import Caller, may_call
from handrail.server.app import ENGINE_METHODS

ROLES = ("viewer", "operator", "ceo", "admin", "agent", "reporter")
ASKING = Result(outcome=Outcome.ASK, question="which one?")
OTHER_AGENT = "coder-2"
Call = tuple[str, str]
BODIES: dict[Call, Any] = {
    ("POST", "/workflows"): {**PLAIN, "id": "new", "name": "new"},
    ("POST", "/workflows/validate"): PLAIN,
    ("POST", "/workflows/read"): {"text": "name: plain"},
    ("PUT", "/workflows/{workflow_id}"): {**PLAIN, "name": "changed"},
    ("POST", "/beads"): {"title": "a bug"},
    ("PATCH", "/beads/{bead_id}"): {"context": {"a": 1}},
    ("POST", "/beads/{bead_id}/executions"): {},
    ("POST", "/guarded-runs"): {"team": "guarded", "agent": "a", "limits": {}},
    ("POST", "/guarded-runs/{execution_id}/events"): {"events": [], "at": "2026-01-01T00:00:00Z"},
    ("POST", "/guarded-runs/{execution_id}/question"): {"question": "may I?", "seconds": 1},
    ("POST", "/executions/{execution_id}/override"): {"action": "close", "reason": "enough"},
    ("POST", "/approvals/{approval_id}/answer"): {"text": "the first"},
    ("POST", "/agents"): {"id": "{agent_id}", "roles": [WORKER]},
    ("PATCH", "/agents/{agent_id}"): {"enabled": True},
    ("POST", "/agents/{agent_id}/heartbeat"): {},
    ("POST", "/dispatches/claim"): {"agent_id": "{agent_id}"},
    ("POST", "/dispatches/{dispatch_id}/heartbeat"): {"fence": 1},
    ("POST", "/dispatches/{dispatch_id}/release"): {"fence": 1},
    ("POST", "/dispatches/{dispatch_id}/result"): {"outcome": "success", "fence": 1},
    ("POST", "/memory"): {"bead_id": "{bead_id}", "text": "x"},
    ("PATCH", "/memory/{memory_id}"): {"resolution": "x"},
    ("POST", "/approvals/{approval_id}/links"): {},
    ("POST", "/webhooks"): {"url": "https://127.0.0.1/x"},
    ("POST", "/channels"): {"id": "new"},
    ("PUT", "/channels/{channel_id}"): {"turnConfig": {}},
    ("POST", "/channels/{channel_id}/members"): {"agent_id": "{agent_id}"},
    ("POST", "/channels/{channel_id}/messages"): {"text": "hello"},
    ("POST", "/channels/{channel_id}/turn"): {"agent_id": "{agent_id}", "action": "resume"},
    ("POST", "/tokens"): {"role": "viewer", "name": "x"},
    ("POST", "/sign-ins"): {"name": "x", "role": "viewer"},
}
"""A body that each call can read; whether it can be done then does not matter here."""
OPEN_TO_WHO_KNOWS = {
    ("POST", "/sign-in/{code}"),
    ("GET", f"{API_PREFIX}/answer-links/{{token}}"),
    ("POST", f"{API_PREFIX}/answer-links/{{token}}"),
}
"""Open, and say 401 themselves to a wrong secret."""
CALLS = sorted(ACCESS_TABLE)
NOTHING: dict[str, str] = dict.fromkeys(
    ("workflow_id", "bead_id", "execution_id", "dispatch_id", "agent_id", "name", "token_id",
     "channel_id", "memory_id", "token", "webhook_id", "session_id", "code"), "none",
)  # fmt: skip


async def client_of(harness: ServerHarness, role: str) -> httpx.AsyncClient:
    return getattr(harness, role)


async def furnished(harness: ServerHarness) -> dict[str, dict[str, str]]:
    """Objects of the operator and of the first agent (own), and of others (foreign)."""
    for definition, by in (("plain", OPERATOR), ("theirs", CEO)):
        await harness.engine.define({**PLAIN, "id": definition, "name": definition}, by=by)
    await harness.define(ASKS)
    await harness.engine.define({**PLAIN, "id": "quiz", "name": "quiz"}, by=CEO)
    found: dict[str, dict[str, str]] = {}
    for whose, agent, operator, workflow in (
        ("own", AGENT, harness.operator, "plain"),
        ("foreign", OTHER_AGENT, harness.other_operator, "theirs"),
    ):
        working = await harness.client(agent, "agent")
        expect_json(await working.post("/agents", json={"id": agent, "roles": [WORKER]}), 201)
        body = {"title": "a bug", "workflow_id": "plain"}
        bead = expect_json(await operator.post("/beads", json=body), 201)
        upload = await operator.post(f"/beads/{bead['id']}/files?name=log.txt", content=b"text")
        assert upload.status_code == 201, upload.text
        dispatch = expect_json(await working.post("/dispatches/claim", json={"agent_id": agent}))
        assert dispatch["bead"]["id"] == bead["id"]
        await harness.engine.channels.open(f"of-{agent}", by=CEO)
        await harness.engine.channels.join(f"of-{agent}", agent, by=CEO)
        found[whose] = {
            "workflow_id": workflow,
            "channel_id": f"of-{agent}",
            "bead_id": bead["id"],
            "execution_id": bead["execution_id"],
            "dispatch_id": dispatch["id"],
            "agent_id": agent,
            "name": "log.txt",
            "token_id": "none",
            "memory_id": "none",
            "token": "none",
            "webhook_id": "none",
            "session_id": "none",
            "code": "none",
        }
    found["foreign"]["approval_id"] = (await harness.asked())["id"]
    return found


def request(call: Call, objects: dict[str, str]) -> tuple[str, str, Any]:
    method, path = call
    body = BODIES.get((method, path.removeprefix(API_PREFIX)))
    if body is not None:
        body = {k: v.format(**objects) if isinstance(v, str) else v for k, v in body.items()}
    return method, path.format(**{"approval_id": "none", "item": "x", **objects}), body


async def status(client: httpx.AsyncClient, call: Call, objects: dict[str, str]) -> int:
    method, path, body = request(call, objects)
    query = "?name=x.txt" if method == "POST" and path.endswith("/files") else ""
    if method == "GET" and path.endswith("/events"):  # a stream has no end: its beginning is enough
        return await _begins(client, f"http://handrail.test{path}")
    sent = await client.request(method, f"http://handrail.test{path}{query}", json=body)
    return sent.status_code


async def _begins(client: httpx.AsyncClient, url: str) -> int:
    """A HEAD of sorts: a bad position is refused only to those who were let in."""
    return (await client.get(url, headers={"Last-Event-ID": "nowhere"})).status_code


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call[0]} {call[1]}")
async def test_every_call_by_everybody(harness: ServerHarness, call: Call):
    access = ACCESS_TABLE[call]
    objects = (await furnished(harness))["own"]
    if call in OPEN_TO_WHO_KNOWS:
        return
    sent = await status(harness.nobody, call, objects)
    assert (sent == 401) is not access.open
    for role in ROLES:
        sent = await status(await client_of(harness, role), call, objects)
        caller = Caller(name=role, role=role)
        if access.open or may_call(access, caller):
            assert sent not in (401, 403), f"{role} is let in: {sent}"
            assert sent < 500
        else:
            assert sent == 403, f"{role} is kept out"


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call[0]} {call[1]}")
async def test_a_wrong_token_opens_nothing(harness: ServerHarness, call: Call):
    for wrong in ("Bearer hr_wrong", "Bearer ", "Basic YTpi", "Bearer hr_ä", "hr_wrong"):
        harness.nobody.headers["Authorization"] = wrong
        assert await status(harness.nobody, call, NOTHING) == 401


AGENTS_OWN = [
    call for call in CALLS if ACCESS_TABLE[call].agents and ACCESS_TABLE[call].restriction
]


@pytest.mark.parametrize("call", AGENTS_OWN, ids=lambda call: f"{call[0]} {call[1]}")
async def test_an_agent_acts_for_itself_alone(harness: ServerHarness, call: Call):
    objects = await furnished(harness)
    assert await status(harness.agent, call, objects["foreign"]) in (403, 409)
    assert await status(harness.agent, call, objects["own"]) not in (401, 403)


async def test_an_operator_edits_its_own_definitions_a_ceo_any(harness: ServerHarness):
    call = ("PUT", f"{API_PREFIX}/workflows/{{workflow_id}}")
    objects = await furnished(harness)
    assert await status(harness.operator, call, objects["own"]) == 200
    assert await status(harness.operator, call, objects["foreign"]) == 403
    assert await status(harness.ceo, call, objects["own"]) == 200
    assert await status(harness.ceo, call, objects["foreign"]) == 200


async def test_an_operator_withdraws_beads_it_filed_a_ceo_any(harness: ServerHarness):
    call = ("POST", f"{API_PREFIX}/executions/{{execution_id}}/override")
    objects = await furnished(harness)
    assert await status(harness.operator, call, objects["foreign"]) == 403
    assert await status(harness.operator, call, objects["own"]) == 200
    assert await status(harness.ceo, call, objects["foreign"]) == 200


async def test_an_operator_answers_clarification_requests_a_ceo_any(harness: ServerHarness):
    call = ("POST", f"{API_PREFIX}/approvals/{{approval_id}}/answer")
    objects = await furnished(harness)
    assert await status(harness.operator, call, objects["foreign"]) == 403
    assert await status(harness.ceo, call, objects["foreign"]) == 200
    run = objects["own"]["execution_id"]
    fence = int(objects["own"]["dispatch_id"].rpartition(".d")[2])
    asking = {"outcome": "ask", "question": "which one?", "fence": fence}
    expect_json(
        await harness.agent.post(f"/dispatches/{objects['own']['dispatch_id']}/result", json=asking)
    )
    asked = expect_json(await harness.viewer.get("/approvals", params={"status": "open"}))["items"]
    own = next(one for one in asked if one["execution_id"] == run)
    assert own["type"] == "clarification_request"
    assert await status(harness.operator, call, {**objects["own"], "approval_id": own["id"]}) == 200


async def test_everything_in_the_table_is_served_and_nothing_else(harness: ServerHarness):
    routes = {
        (str(method), route.path_format)
        for route in harness.served.litestar.routes
        for method in getattr(route, "methods", ())
        if method not in ("OPTIONS", "HEAD")
    }
    assert routes == set(ACCESS_TABLE)


def test_roles_of_people_include_each_other_and_the_others_stand_apart():
    people = ("viewer", "operator", "ceo", "admin")
    for n, needed in enumerate(people):
        access = Access(people=needed)
        allowed = [role for role in ROLES if may_call(access, Caller(name="x", role=role))]
        assert allowed == list(people[n:])
    assert not any(may_call(Access(), Caller(name=ADMIN, role=role)) for role in ROLES)


async def test_names_in_a_body_are_not_believed(harness: ServerHarness):
    forged = {"title": "a bug", "filed_by": OTHER_OPERATOR}
    assert (await harness.operator.post("/beads", json=forged)).status_code == 403
    same = {"title": "a bug", "filed_by": OPERATOR}
    assert (await harness.operator.post("/beads", json=same)).status_code == 201


async def test_every_forwarded_call_is_a_method_of_the_engine_that_takes_its_arguments(
    harness: ServerHarness,
):
    """`ENGINE_METHODS` names them by text, which no type checker reads."""
    operations = {operation.name: operation for operation in OPERATIONS}
    for name, method in ENGINE_METHODS.items():
        query = operations[name].query
        fields = query.__struct_fields__ if query is not None else ()
        signature = inspect.signature(attrgetter(method)(harness.engine))
        signature.bind(*operations[name].path_arguments, **dict.fromkeys(fields))
