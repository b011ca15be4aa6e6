"""How the API says no: one form, for every mistake, and nothing about its inside."""

import json

import pytest
from tests.server.harness import ADDRESS, ServerHarness, expect_json, expect_problem

from handrail.engine.queries.event_feed import EventFeed
from handrail.engine.services.beads import BeadService
from handrail.store.rows import StoreError

OURS = ("approvals", "beads", "executions", "workflows")
"""What has ids that may be unknown."""


async def test_a_path_that_is_not_there_is_a_problem_document(harness: ServerHarness):
    for path in ("/none", "/beads/a/b/c", "/../x", f"{ADDRESS}/none"):
        found = expect_problem(await harness.viewer.get(path), 404, "not_found")
        assert found["type"] == "urn:handrail:problem:not_found"
    expect_problem(await harness.nobody.get("/none"), 404, "not_found")


async def test_a_nul_is_refused_wherever_it_stands(harness: ServerHarness):
    for path in ("/beads/a%00b", "/beads?workflow_id=%00", "/executions?q=a%00", "/none%00"):
        expect_problem(await harness.viewer.get(path), 400, "bad_address")
    asked = await harness.asked()
    run = f"/executions/{asked['execution_id']}/override"
    for path, body in [
        ("/beads", {"title": "a", "description": "\0"}),
        ("/beads", {"title": "a\0"}),
        ("/beads", {"title": "a", "context": {"\0": "\0"}}),
        (f"/beads/{asked['original_bead_id']}/executions", {"from_node": "\0"}),
        (f"/approvals/{asked['id']}/answer", {"text": "change it\0"}),
        (run, {"action": "close", "reason": "a\0"}),
        (run, {"action": "move", "node": "\0", "reason": "a"}),
        (run, {"action": "close", "reason": "a", "by": "\0"}),
    ]:
        answer = await harness.ceo.post(path, json=body)
        assert answer.status_code == 422, (path, body, answer.text)


async def test_a_method_that_is_not_there_is_a_problem_document(harness: ServerHarness):
    answer = await harness.admin.delete("/beads")
    assert answer.status_code == 405
    assert answer.headers["content-type"] == "application/problem+json"
    assert set(answer.headers["allow"].replace(" ", "").split(",")) >= {"GET", "POST"}


async def test_what_is_no_json_is_refused(harness: ServerHarness):
    for body in (b"{", b"\xff", b'{"title": }', b"no", b'{"title": NaN}', b'{"title": "\xff"}'):
        expect_problem(await harness.operator.post("/beads", content=body), 400, "bad_json")


async def test_a_post_without_a_body_says_that_it_needs_one(harness: ServerHarness):
    found = expect_problem(await harness.operator.post("/beads"), 422, "bad_parameter")
    assert "the body is missing" in found["detail"]


async def test_a_body_that_is_nested_without_end_is_refused(harness: ServerHarness):
    for deep in ("[" * 100_000, '{"title": "a", "context": {"a":' + "[" * 5_000):
        answer = await harness.operator.post("/beads", content=deep.encode())
        assert answer.status_code in (400, 422), answer.text


async def test_a_context_that_could_not_be_stored_is_refused(harness: ServerHarness):
    deep = json.loads("[" * 70 + "]" * 70)
    body = {"title": "a", "context": {"a": deep}}
    answer = await harness.operator.post("/beads", json=body)
    assert answer.status_code == 422, answer.text


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(harness: ServerHarness):
    answer = await harness.operator.post("/beads", content=b" " * (10 * 1024 * 1024 + 1))
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"


async def test_every_wrong_place_is_named_with_what_to_do(harness: ServerHarness):
    body = {"title": "a", "priority": "high"}
    found = expect_problem(await harness.operator.post("/beads", json=body), 422, "bad_body")
    (place,) = found["errors"]
    assert (place["path"], place["code"]) == ("$.priority", "bad_value")
    assert place["message"]
    assert place["hint"]


async def test_our_own_mistake_is_told_without_its_inside(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    async def broken(self: BeadService, bead_id: str) -> None:
        raise RuntimeError("the secret password is 1234")

    monkeypatch.setattr(BeadService, "get", broken)
    answer = await harness.viewer.get("/beads/x")
    expect_problem(answer, 500, "internal")
    assert "1234" not in answer.text
    assert "RuntimeError" not in answer.text


async def test_a_database_that_is_away_asks_to_try_again(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    async def away(self: BeadService, bead_id: str) -> None:
        raise StoreError("no connection to db.example, port 5432")

    monkeypatch.setattr(BeadService, "get", away)
    answer = await harness.viewer.get("/beads/x")
    expect_problem(answer, 503, "unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert "db.example" not in answer.text, "where it is stands in the log"


async def test_whoever_asks_for_the_health_is_not_told_where_the_database_is(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    async def away(self: EventFeed) -> int:
        raise StoreError("no connection to db.example, port 5432")

    monkeypatch.setattr(EventFeed, "position", away)
    answer = await harness.nobody.get(f"{ADDRESS}/readyz")
    assert answer.status_code == 503
    assert answer.json()["status"] == "unavailable"
    assert "db.example" not in answer.text


async def test_every_answer_carries_the_headers_that_keep_browsers_safe(harness: ServerHarness):
    bead = await harness.file()
    for answer in (
        await harness.viewer.get(f"/beads/{bead['id']}"),
        await harness.viewer.get("/beads/none"),
        await harness.nobody.get("/beads"),
        await harness.viewer.get("/none"),
        await harness.nobody.get("/openapi.json"),
    ):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"


async def test_a_wrong_token_is_401_whatever_is_asked_for(harness: ServerHarness):
    for path in ("/beads", "/executions/none"):
        for header in ("", "Bearer", "Bearer wrong", "Basic YTpi"):
            answer = await harness.nobody.get(path, headers={"Authorization": header})
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"


# What the OpenAPI document says


async def test_the_document_is_open_to_all_and_knows_every_call(harness: ServerHarness):
    document = expect_json(await harness.nobody.get("/openapi.json"))
    assert document["openapi"].startswith("3.1")
    for path, methods in {
        "/api/v1/beads": {"get", "post"},
        "/api/v1/beads/{bead_id}": {"get", "patch"},
        "/api/v1/beads/{bead_id}/executions": {"get", "post"},
        "/api/v1/beads/{bead_id}/history": {"get"},
        "/api/v1/beads/{bead_id}/files": {"get", "post"},
        "/api/v1/beads/{bead_id}/files/{name}": {"get"},
        "/api/v1/executions": {"get"},
        "/api/v1/executions/{execution_id}": {"get"},
        "/api/v1/executions/{execution_id}/override": {"post"},
        "/api/v1/approvals": {"get"},
        "/api/v1/approvals/{approval_id}": {"get"},
        "/api/v1/approvals/{approval_id}/answer": {"post"},
    }.items():
        assert methods <= set(document["paths"][path]), path


async def test_every_call_is_described_and_names_its_problems(harness: ServerHarness):
    document = expect_json(await harness.nobody.get("/openapi.json"))
    for path, item in document["paths"].items():
        for method, call in item.items():
            if not path.startswith("/api/v1"):
                continue
            where = f"{method} {path}"
            assert call.get("description"), where
            assert {"401", "403", "422", "503"} <= set(call["responses"]), where
            assert all(answer["description"] for answer in call["responses"].values()), where
            if "{" in path and path.split("/")[3] in OURS:
                assert "404" in call["responses"], where
            for parameter in call.get("parameters", ()):
                known = parameter["in"] == "path" or parameter.get("description")
                assert known, f"{where}: {parameter['name']}"
