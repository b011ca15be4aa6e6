"""Definitions over HTTP: validated, stored, versioned; and who may change whose."""

from typing import Any

import pytest
from tests.engine.at_work import chain, edge, node, workflow
from tests.server.house import CEO, OPERATOR, PLAIN, House, pages, problem, told

CIRCLE = workflow(
    node("start", "start"),
    node("a"),
    node("b"),
    node("end", "end"),
    edges=[edge("start", "a"), edge("a", "b"), edge("b", "a")],
    id="circle",
)


@pytest.mark.requirement("L1.3", "L4.1")
async def test_a_definition_is_stored_with_its_certificate(house: House):
    made = told(await house.operator.post("/workflows", json=PLAIN), 201)
    assert {"id", "name", "kind", "version", "bound", "warnings"} <= set(made) | {"warnings"}
    assert (made["id"], made["kind"], made["version"]) == ("plain", "workflow", 1)
    assert made["bound"]["dispatches"] == 3
    found = told(await house.viewer.get("/workflows/plain"))
    assert found["definition"]["nodes"] == PLAIN["nodes"]
    assert (found["created_by"], found["bound"]) == (OPERATOR, made["bound"])
    assert told(await house.operator.post("/workflows", json=PLAIN), 201)["version"] == 1


@pytest.mark.requirement("L13.1", "L13.2", "L13.8")
async def test_a_wrong_definition_is_refused_with_all_its_errors(house: House):
    document = {**CIRCLE, "nodes": [*CIRCLE["nodes"], {"id": "x", "type": "nonsense"}]}
    found = problem(
        await house.operator.post("/workflows", json=document), 422, "invalid_definition"
    )
    assert len(found["errors"]) >= 1
    assert all({"code", "path", "message", "hint"} <= set(one) for one in found["errors"])
    assert await pages(house.viewer, "/workflows") == []
    told(await house.operator.post("/workflows", json=PLAIN), 201)
    answer = await house.operator.put("/workflows/plain", json=CIRCLE)
    problem(answer, 422, "invalid_definition")
    assert told(await house.viewer.get("/workflows/plain"))["version"] == 1


async def test_validation_stores_nothing(house: House):
    good = told(await house.viewer.post("/workflows/validate", json=PLAIN))
    assert (good["valid"], good["errors"]) == (True, [])
    assert good["bound"]["dispatches"] == 3
    bad = told(await house.viewer.post("/workflows/validate", json=CIRCLE))
    assert (bad["valid"], bad["bound"]) == (False, None)
    assert bad["errors"]
    assert await pages(house.viewer, "/workflows") == []


async def test_a_definition_is_read_from_json_or_yaml_with_the_line_of_what_is_wrong(house: House):
    async def read(text: str) -> Any:
        return told(await house.viewer.post("/workflows/read", json={"text": text}))

    assert await read("name: a\nnodes:\n  - id: on\n") == {
        "document": {"name": "a", "nodes": [{"id": "on"}]},
        "errors": [],
    }
    assert (await read('{"name": "a"}'))["document"] == {"name": "a"}
    wrong = await read("name: a\nnodes: [\n")
    assert wrong["document"] is None
    assert "line 3" in wrong["errors"][0]["message"]
    assert (await read("a: &x 1\nb: *x\n"))["document"] is None, "no text that means a larger one"
    problem(await house.viewer.post("/workflows/read", json={"texts": ""}), 422, "bad_body")


@pytest.mark.requirement("L7.5")
async def test_a_put_makes_a_new_version_and_keeps_the_old_ones(house: House):
    told(await house.operator.post("/workflows", json=PLAIN), 201)
    longer = chain(node("fix"), node("more"), id="plain")
    assert told(await house.operator.put("/workflows/plain", json=longer))["version"] == 2
    versions = told(await house.viewer.get("/workflows/plain/versions"))["items"]
    assert [one["version"] for one in versions] == [2, 1]
    assert told(await house.viewer.get("/workflows/plain"))["version"] == 2
    first = told(await house.viewer.get("/workflows/plain", params={"version": 1}))
    assert first["definition"]["nodes"] == PLAIN["nodes"]


async def test_an_unknown_definition_is_not_found(house: House):
    told(await house.operator.post("/workflows", json=PLAIN), 201)
    for path in ("/workflows/none", "/workflows/none/versions", "/workflows/plain?version=7"):
        problem(await house.viewer.get(path), 404, "unknown_definition")
    problem(await house.operator.put("/workflows/none", json=PLAIN), 404, "unknown_definition")
    assert (await house.viewer.get("/workflows/plain?version=x")).status_code == 422


@pytest.mark.requirement("L7.5")
async def test_an_operator_edits_its_own_definitions_and_a_ceo_edits_any(house: House):
    told(await house.operator.post("/workflows", json=PLAIN), 201)
    changed = chain(node("fix"), node("more"), id="plain")
    answer = await house.other_operator.put("/workflows/plain", json=changed)
    problem(answer, 403, "foreign_definition")
    answer = await house.other_operator.post("/workflows", json=changed)
    problem(answer, 403, "foreign_definition")
    assert told(await house.operator.put("/workflows/plain", json=changed))["version"] == 2
    more = chain(node("fix"), node("more"), node("most"), id="plain")
    made = told(await house.ceo.put("/workflows/plain", json=more))
    assert made["version"] == 3
    assert told(await house.viewer.get("/workflows/plain"))["created_by"] == CEO


async def test_whoever_only_looks_defines_nothing(house: House):
    for client in (house.viewer, house.agent, house.reporter):
        problem(await client.post("/workflows", json=PLAIN), 403, "forbidden")
    problem(await house.nobody.post("/workflows", json=PLAIN), 401, "no_token")
    assert await pages(house.viewer, "/workflows") == []


async def test_definitions_are_listed_by_id_a_page_at_a_time(house: House):
    ids = [f"flow-{i}" for i in range(7)]
    for one in ids:
        told(await house.operator.post("/workflows", json={**PLAIN, "id": one}), 201)
    found = await pages(house.viewer, "/workflows", limit=3)
    assert [one["id"] for one in found] == ids
