"""What is bounded piece by piece is bounded in sum: contexts, results, evidence, kept answers."""

from typing import Any

import pytest
from tests.engine.engines import chain, node
from tests.server.harness import PLAIN, WORKER, ServerHarness, expect_json, expect_problem
from tests.server.http_agents import HttpAgent, register_agent

from handrail.api.calls import OPERATIONS
from handrail.api.operation import Repeat
from handrail.engine.dispatch.agent_results import NOTE_BYTES_MAX
from handrail.kernel import input_checks
from handrail.kernel.input_checks import VALUE_BYTES_MAX
from handrail.store.rows import NOTES_MAX

LONG = chain(node("fix", max_attempts=100, multi_dispatch=True), id="long")
SHARE = input_checks.RESULTS_BYTES_MAX // 100


async def at_work(
    harness: ServerHarness, document: dict[str, Any]
) -> tuple[dict[str, Any], HttpAgent]:
    await harness.define(document)
    agent = await register_agent(harness, "coder-7", WORKER)
    return await harness.file(document["id"]), agent


async def test_a_result_has_its_share_of_what_a_run_may_hold(harness: ServerHarness) -> None:
    bead, agent = await at_work(harness, LONG)
    dispatch = await agent.claim()
    refused = expect_problem(
        await agent.report(dispatch, "continue", text="x" * SHARE), 413, "result_too_large"
    )
    assert f"{SHARE:,}" in refused["detail"]
    assert await harness.notes(bead["execution_id"]) == []
    accepted = expect_json(await agent.report(dispatch, "continue", text="x" * (SHARE - 1_000)))
    assert accepted["accepted"]


async def test_where_few_results_can_come_one_may_be_as_large_as_a_request(
    harness: ServerHarness,
) -> None:
    _, agent = await at_work(harness, PLAIN)
    assert expect_json(await agent.report(await agent.claim(), text="x" * 9_000_000))["accepted"]


async def test_a_context_that_grows_piece_by_piece_ends_somewhere(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    bead = expect_json(await harness.operator.post("/beads", json={"title": "a bug"}), 201)
    path, half = f"/beads/{bead['id']}", "x" * (VALUE_BYTES_MAX * 6 // 10)
    expect_json(await harness.operator.patch(path, json={"context": {"first": half}}))
    more = {"context": {"second": half}}
    expect_problem(await harness.operator.patch(path, json=more), 413, "context_too_large")
    await harness.define(LONG)
    agent = await register_agent(harness, "coder-7", WORKER)
    expect_json(
        await harness.operator.post(f"{path}/executions", json={"workflow_id": "long"}), 201
    )
    expect_problem(await harness.operator.patch(path, json=more), 413, "context_too_large")
    monkeypatch.setattr(
        input_checks, "RESULTS_BYTES_MAX", 100 * VALUE_BYTES_MAX
    )  # a result may be as large as this
    dispatch = await agent.claim()
    expect_problem(
        await agent.report(dispatch, "continue", data=more["context"]), 413, "context_too_large"
    )
    expect_json(await harness.operator.patch(path, json={"context": {"first": None}}))
    assert expect_json(await agent.report(dispatch, "continue", data=more["context"]))["accepted"]


async def test_whoever_is_refused_fills_no_disk_with_evidence(harness: ServerHarness) -> None:
    bead, agent = await at_work(harness, LONG)
    dispatch = await agent.claim()
    for _ in range(3):
        answer = await agent.report({**dispatch, "fence": 7}, text="é" * 1_000_000)
        expect_problem(answer, 409, "wrong_fence")
    kept, count = harness.engine.store.runs.list_notes(bead["execution_id"])
    assert count == 3 <= NOTES_MAX
    assert all(len(note.body.encode()) < 2 * NOTE_BYTES_MAX for note in kept)
    shown = expect_json(await harness.viewer.get(f"/executions/{bead['execution_id']}/notes"))[
        "items"
    ]
    assert shown[0]["said"]["bytes"] > 2_000_000


async def test_whoever_only_looks_leaves_no_answer_on_disk(harness: ServerHarness) -> None:
    looking = [
        operation
        for operation in OPERATIONS
        if operation.method == "POST" and operation.access.people == "viewer"
    ]
    stored = [operation.name for operation in looking if operation.repeat is Repeat.STORED]
    assert stored == ["sessions.sign_out"]  # which answers nothing
    body, key = {"text": "name: plain"}, {"Idempotency-Key": "k1"}
    answers = [
        await harness.viewer.post("/workflows/read", json=body, headers=key) for _ in range(2)
    ]
    assert [expect_json(answer)["document"] for answer in answers] == [{"name": "plain"}] * 2
    assert answers[-1].headers["idempotent-replayed"] == "true"
    await harness.served.idempotent_responses.flush()
    assert await harness.engine.stored_answers.get("http:k1", "viewer:vera") is None
