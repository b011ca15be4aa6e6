"""Definitions over HTTP: validated, stored, versioned; and who may change whose."""

from typing import Any

import pytest
from tests.engine.engines import chain, edge, node, workflow
from tests.server.harness import (
    CEO,
    OPERATOR,
    PLAIN,
    ServerHarness,
    expect_json,
    expect_problem,
    list_all,
)

CIRCLE = workflow(
    node("start", "start"),
    node("a"),
    node("b"),
    node("end", "end"),
    edges=[edge("start", "a"), edge("a", "b"), edge("b", "a")],
    id="circle",
)


@pytest.mark.requirement("L1.3", "L4.1")
async def test_a_definition_is_stored_with_its_certificate(harness: ServerHarness):
    made = expect_json(await harness.operator.post("/workflows", json=PLAIN), 201)
    assert {"id", "name", "kind", "version", "bound", "warnings"} <= set(made) | {"warnings"}
    assert (made["id"], made["kind"], made["version"]) == ("plain", "workflow", 1)
    assert made["bound"]["dispatches"] == 3
    found = expect_json(await harness.viewer.get("/workflows/plain"))
    assert found["definition"]["nodes"] == PLAIN["nodes"]
    assert (found["created_by"], found["bound"]) == (OPERATOR, made["bound"])
    assert expect_json(await harness.operator.post("/workflows", json=PLAIN), 201)["version"] == 1


@pytest.mark.requirement("L13.1", "L13.2", "L13.8")
async def test_a_wrong_definition_is_refused_with_all_its_errors(harness: ServerHarness):
    document = {**CIRCLE, "nodes": [*CIRCLE["nodes"], {"id": "x", "type": "nonsense"}]}
    found = expect_problem(
        await harness.operator.post("/workflows", json=document), 422, "invalid_definition"
    )
    assert len(found["errors"]) >= 1
    assert all({"code", "path", "message", "hint"} <= set(one) for one in found["errors"])
    assert await list_all(harness.viewer, "/workflows") == []
    expect_json(await harness.operator.post("/workflows", json=PLAIN), 201)
    answer = await harness.operator.put("/workflows/plain", json=CIRCLE)
    expect_problem(answer, 422, "invalid_definition")
    assert expect_json(await harness.viewer.get("/workflows/plain"))["version"] == 1


async def test_validation_stores_nothing(harness: ServerHarness):
    good = expect_json(await harness.viewer.post("/workflows/validate", json=PLAIN))
    assert (good["valid"], good["errors"]) == (True, [])
    assert good["bound"]["dispatches"] == 3
    bad = expect_json(await harness.viewer.post("/workflows/validate", json=CIRCLE))
    assert (bad["valid"], bad["bound"]) == (False, None)
    assert bad["errors"]
    assert await list_all(harness.viewer, "/workflows") == []


async def test_a_definition_is_read_from_json_or_yaml_with_the_line_of_what_is_wrong(
    harness: ServerHarness,
):
    async def read(text: str) -> Any:
        return expect_json(await harness.viewer.post("/workflows/read", json={"text": text}))

    assert await read("name: a\nnodes:\n  - id: on\n") == {
        "document": {"name": "a", "nodes": [{"id": "on"}]},
        "errors": [],
    }
    assert (await read('{"name": "a"}'))["document"] == {"name": "a"}
    wrong = await read("name: a\nnodes: [\n")
    assert wrong["document"] is None
    assert "line 3" in wrong["errors"][0]["message"]
    assert (await read("a: &x 1\nb: *x\n"))["document"] is None, "no text that means a larger one"
    expect_problem(
        await harness.viewer.post("/workflows/read", json={"texts": ""}), 422, "bad_body"
    )


@pytest.mark.requirement("L7.5")
async def test_a_put_makes_a_new_version_and_keeps_the_old_ones(harness: ServerHarness):
    expect_json(await harness.operator.post("/workflows", json=PLAIN), 201)
    longer = chain(node("fix"), node("more"), id="plain")
    assert expect_json(await harness.operator.put("/workflows/plain", json=longer))["version"] == 2
    versions = expect_json(await harness.viewer.get("/workflows/plain/versions"))["items"]
    assert [one["version"] for one in versions] == [2, 1]
    assert expect_json(await harness.viewer.get("/workflows/plain"))["version"] == 2
    first = expect_json(await harness.viewer.get("/workflows/plain", params={"version": 1}))
    assert first["definition"]["nodes"] == PLAIN["nodes"]


async def test_an_unknown_definition_is_not_found(harness: ServerHarness):
    expect_json(await harness.operator.post("/workflows", json=PLAIN), 201)
    for path in ("/workflows/none", "/workflows/none/versions", "/workflows/plain?version=7"):
        expect_problem(await harness.viewer.get(path), 404, "unknown_definition")
    expect_problem(
        await harness.operator.put("/workflows/none", json=PLAIN), 404, "unknown_definition"
    )
    assert (await harness.viewer.get("/workflows/plain?version=x")).status_code == 422


@pytest.mark.requirement("L7.5")
async def test_an_operator_edits_its_own_definitions_and_a_ceo_edits_any(harness: ServerHarness):
    expect_json(await harness.operator.post("/workflows", json=PLAIN), 201)
    changed = chain(node("fix"), node("more"), id="plain")
    answer = await harness.other_operator.put("/workflows/plain", json=changed)
    expect_problem(answer, 403, "foreign_definition")
    answer = await harness.other_operator.post("/workflows", json=changed)
    expect_problem(answer, 403, "foreign_definition")
    assert expect_json(await harness.operator.put("/workflows/plain", json=changed))["version"] == 2
    more = chain(node("fix"), node("more"), node("most"), id="plain")
    made = expect_json(await harness.ceo.put("/workflows/plain", json=more))
    assert made["version"] == 3
    assert expect_json(await harness.viewer.get("/workflows/plain"))["created_by"] == CEO


async def test_whoever_only_looks_defines_nothing(harness: ServerHarness):
    for client in (harness.viewer, harness.agent, harness.reporter):
        expect_problem(await client.post("/workflows", json=PLAIN), 403, "forbidden")
    expect_problem(await harness.nobody.post("/workflows", json=PLAIN), 401, "no_token")
    assert await list_all(harness.viewer, "/workflows") == []


async def test_definitions_are_listed_by_id_a_page_at_a_time(harness: ServerHarness):
    ids = [f"flow-{i}" for i in range(7)]
    for one in ids:
        expect_json(await harness.operator.post("/workflows", json={**PLAIN, "id": one}), 201)
    found = await list_all(harness.viewer, "/workflows", limit=3)
    assert [one["id"] for one in found] == ids
