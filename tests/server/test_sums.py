"""What is bounded piece by piece is bounded in sum: contexts, results, evidence, kept answers."""

from typing import Any

import pytest
from tests.engine.at_work import chain, node
from tests.server.crew import Outsider, outsider
from tests.server.house import PLAIN, WORKER, House, problem, told

from handrail.api.calls import OPERATIONS
from handrail.api.operation import Repeat
from handrail.engine.dispatch.refused_notes import NOTE_BYTES_MAX
from handrail.kernel.json_values import VALUE_BYTES_MAX
from handrail.kernel.run import size_limits
from handrail.store.rows import NOTES_MAX

LONG = chain(node("fix", max_attempts=100, multi_dispatch=True), id="long")
SHARE = size_limits.RESULTS_BYTES_MAX // 100


async def at_work(house: House, document: dict[str, Any]) -> tuple[dict[str, Any], Outsider]:
    await house.define(document)
    agent = await outsider(house, "coder-7", WORKER)
    return await house.file(document["id"]), agent


async def test_a_result_has_its_share_of_what_a_run_may_hold(house: House) -> None:
    bead, agent = await at_work(house, LONG)
    dispatch = await agent.claim()
    refused = problem(
        await agent.report(dispatch, "continue", text="x" * SHARE), 413, "result_too_large"
    )
    assert f"{SHARE:,}" in refused["detail"]
    assert await house.notes(bead["execution_id"]) == []
    accepted = told(await agent.report(dispatch, "continue", text="x" * (SHARE - 1_000)))
    assert accepted["accepted"]


async def test_where_few_results_can_come_one_may_be_as_large_as_a_request(house: House) -> None:
    _, agent = await at_work(house, PLAIN)
    assert told(await agent.report(await agent.claim(), text="x" * 9_000_000))["accepted"]


async def test_a_context_that_grows_piece_by_piece_ends_somewhere(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    bead = told(await house.operator.post("/beads", json={"title": "a bug"}), 201)
    path, half = f"/beads/{bead['id']}", "x" * (VALUE_BYTES_MAX * 6 // 10)
    told(await house.operator.patch(path, json={"context": {"first": half}}))
    more = {"context": {"second": half}}
    problem(await house.operator.patch(path, json=more), 413, "context_too_large")
    await house.define(LONG)
    agent = await outsider(house, "coder-7", WORKER)
    told(await house.operator.post(f"{path}/executions", json={"workflow_id": "long"}), 201)
    problem(await house.operator.patch(path, json=more), 413, "context_too_large")
    monkeypatch.setattr(
        size_limits, "RESULTS_BYTES_MAX", 100 * VALUE_BYTES_MAX
    )  # a result may be as large as this
    dispatch = await agent.claim()
    problem(
        await agent.report(dispatch, "continue", data=more["context"]), 413, "context_too_large"
    )
    told(await house.operator.patch(path, json={"context": {"first": None}}))
    assert told(await agent.report(dispatch, "continue", data=more["context"]))["accepted"]


async def test_whoever_is_refused_fills_no_disk_with_evidence(house: House) -> None:
    bead, agent = await at_work(house, LONG)
    dispatch = await agent.claim()
    for _ in range(3):
        answer = await agent.report({**dispatch, "fence": 7}, text="é" * 1_000_000)
        problem(answer, 409, "wrong_fence")
    kept, count = house.engine.store.runs.list_notes(bead["execution_id"])
    assert count == 3 <= NOTES_MAX
    assert all(len(note.body.encode()) < 2 * NOTE_BYTES_MAX for note in kept)
    shown = told(await house.viewer.get(f"/executions/{bead['execution_id']}/notes"))["items"]
    assert shown[0]["said"]["bytes"] > 2_000_000


async def test_whoever_only_looks_leaves_no_answer_on_disk(house: House) -> None:
    looking = [
        operation
        for operation in OPERATIONS
        if operation.method == "POST" and operation.access.people == "viewer"
    ]
    stored = [operation.name for operation in looking if operation.repeat is Repeat.STORED]
    assert stored == ["sessions.sign_out"]  # which answers nothing
    body, key = {"text": "name: plain"}, {"Idempotency-Key": "k1"}
    answers = [await house.viewer.post("/workflows/read", json=body, headers=key) for _ in range(2)]
    assert [told(answer)["document"] for answer in answers] == [{"name": "plain"}] * 2
    assert answers[-1].headers["idempotent-replayed"] == "true"
    await house.served.idempotent_responses.flush()
    assert await house.engine.stored_answers.get("http:k1", "viewer:vera") is None
