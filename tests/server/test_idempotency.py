"""`Idempotency-Key`: the same request again gets the first answer, and nothing is done twice."""

import asyncio
from typing import Any

import pytest
from tests.server.harness import (
    AGENT,
    ASKS,
    PLAIN,
    WORKER,
    ServerHarness,
    expect_json,
    expect_problem,
    list_all,
)

from handrail.server import idempotency

KEY = "Idempotency-Key"


def key(name: str) -> dict[str, str]:
    return {KEY: name}


@pytest.mark.requirement("L8.7")
async def test_a_bead_that_is_filed_twice_under_one_key_is_one_bead(harness: ServerHarness):
    await harness.define(PLAIN)
    body = {"title": "a bug", "workflow_id": "plain"}
    first = await harness.operator.post("/beads", json=body, headers=key("k1"))
    again = await harness.operator.post("/beads", json=body, headers=key("k1"))
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    assert again.headers["content-type"] == first.headers["content-type"]
    assert len(await list_all(harness.viewer, "/executions")) == 1
    other = await harness.operator.post("/beads", json=body, headers=key("k2"))
    assert expect_json(other, 201)["id"] != expect_json(first, 201)["id"]


@pytest.mark.requirement("L8.7")
async def test_the_first_answer_stands_although_the_bead_has_changed_since(harness: ServerHarness):
    await harness.define(PLAIN)
    body = {"title": "a bug", "workflow_id": "plain"}
    first = await harness.operator.post("/beads", json=body, headers=key("k1"))
    harness.works()
    await harness.quiet()
    again = await harness.operator.post("/beads", json=body, headers=key("k1"))
    assert again.content == first.content
    bead = expect_json(await harness.viewer.get(f"/beads/{first.json()['id']}"))
    assert bead["status"] == "closed"


@pytest.mark.requirement("L8.7")
async def test_many_at_once_under_one_key_are_one_and_hear_the_same(harness: ServerHarness):
    await harness.define(PLAIN)
    body = {"title": "a bug", "workflow_id": "plain"}
    asked = [harness.operator.post("/beads", json=body, headers=key("k1")) for _ in range(20)]
    answers = await asyncio.gather(*asked)
    assert {(answer.status_code, answer.content) for answer in answers} == {
        (201, answers[0].content)
    }
    assert len(await list_all(harness.viewer, "/beads")) == 1
    assert len(await list_all(harness.viewer, "/executions")) == 1


async def test_another_request_under_the_same_key_is_refused(harness: ServerHarness):
    expect_json(await harness.operator.post("/beads", json={"title": "a"}, headers=key("k1")), 201)
    for path, body in [("/beads", {"title": "b"}), ("/workflows/validate", {"title": "a"})]:
        answer = await harness.operator.post(path, json=body, headers=key("k1"))
        expect_problem(answer, 422, "key_reused")
    assert len(await list_all(harness.viewer, "/beads")) == 1


async def test_keys_of_two_people_have_nothing_to_do_with_each_other(harness: ServerHarness):
    one = await harness.operator.post("/beads", json={"title": "a"}, headers=key("k1"))
    other = await harness.other_operator.post("/beads", json={"title": "b"}, headers=key("k1"))
    assert expect_json(one, 201)["id"] != expect_json(other, 201)["id"]


@pytest.mark.parametrize("bad", ["x" * 256, "a\tb"])
async def test_a_key_that_is_none_is_refused(harness: ServerHarness, bad: str):
    answer = await harness.operator.post("/beads", json={"title": "a"}, headers=key(bad))
    expect_problem(answer, 422, "bad_key")


async def test_what_was_refused_can_be_tried_again_under_the_same_key(harness: ServerHarness):
    body = {"title": "a", "workflow_id": "plain"}
    answer = await harness.operator.post("/beads", json=body, headers=key("k1"))
    expect_problem(answer, 422, "unknown_definition")
    await harness.define(PLAIN)
    expect_json(await harness.operator.post("/beads", json=body, headers=key("k1")), 201)


@pytest.mark.requirement("L8.7")
async def test_an_answer_that_is_sent_twice_is_one(harness: ServerHarness):
    asked = await harness.asked()
    path, body = f"/approvals/{asked['id']}/answer", {"text": "halve it, please"}
    answers = await asyncio.gather(
        *(harness.ceo.post(path, json=body, headers=key("k1")) for _ in range(10))
    )
    assert {(one.status_code, one.content) for one in answers} == {(200, answers[0].content)}
    report = expect_json(await harness.viewer.get(f"/executions/{asked['execution_id']}/report"))
    assert [act["act"] for act in report["acts"]] == ["revise"]
    assert await harness.notes(asked["execution_id"]) == []


@pytest.mark.requirement("L8.7")
async def test_every_other_post_is_done_once_under_one_key(harness: ServerHarness):
    await harness.define(PLAIN, ASKS)
    bead, done = await harness.file(), await harness.file("plain")
    harness.works()
    await harness.quiet()
    paused = await harness.file("asks", title="to be paused")
    await harness.quiet()
    posts: list[tuple[str, dict[str, Any]]] = [
        (f"/beads/{done['id']}/executions", {"json": {"workflow_id": "asks"}}),
        (f"/beads/{bead['id']}/files?name=a", {"content": b"a"}),
        (
            f"/executions/{paused['execution_id']}/override",
            {"json": {"action": "move", "node": "fix", "reason": "once more"}},
        ),
        ("/workflows", {"json": {**PLAIN, "id": "new", "name": "new"}}),
    ]
    for i, (path, sent) in enumerate(posts):
        answers = await asyncio.gather(
            *(harness.ceo.post(path, **sent, headers=key(f"k{i}")) for _ in range(5))
        )
        assert answers[0].status_code in (200, 201), answers[0].text
        assert {(one.status_code, one.content) for one in answers} == {
            (answers[0].status_code, answers[0].content)
        }
    report = expect_json(await harness.viewer.get(f"/executions/{paused['execution_id']}/report"))
    assert [act["act"] for act in report["acts"]] == ["move"]
    assert len(await list_all(harness.viewer, f"/beads/{done['id']}/executions")) == 2


@pytest.mark.requirement("L8.7")
async def test_another_server_on_the_same_database_knows_the_first_answer(harness: ServerHarness):
    body = {"title": "a bug"}
    first = await harness.operator.post("/beads", json=body, headers=key("k1"))
    await harness.served.idempotent_responses.flush()
    second = ServerHarness(harness.url, harness.clock)
    async with second.opened():
        again = await second.operator.post("/beads", json=body, headers=key("k1"))
        assert again.content == first.content
        assert len(await list_all(second.viewer, "/beads")) == 1


@pytest.mark.requirement("L8.7")
async def test_another_server_does_nothing_twice_even_before_the_answer_is_written(
    harness: ServerHarness,
):
    await harness.define(PLAIN)
    asked = await harness.asked()
    filed = {"title": "a bug", "workflow_id": "plain"}
    answered = {"text": "halve it, please"}
    path = f"/approvals/{asked['id']}/answer"
    first = expect_json(await harness.operator.post("/beads", json=filed, headers=key("k1")), 201)
    expect_json(await harness.ceo.post(path, json=answered, headers=key("k2")))
    override = f"/executions/{(await harness.asked())['execution_id']}/override"
    pause = {"action": "pause", "reason": "wait for Bob"}
    expect_json(await harness.ceo.post(override, json=pause, headers=key("k3")))
    second = ServerHarness(harness.url, harness.clock)
    async with second.opened():
        again = expect_json(
            await second.operator.post("/beads", json=filed, headers=key("k1")), 201
        )
        assert (again["id"], again["execution_id"]) == (first["id"], first["execution_id"])
        after = expect_json(await second.ceo.post(path, json=answered, headers=key("k2")))
        assert after["approval"]["status"] == "answered"
        paused = expect_json(await second.ceo.post(override, json=pause, headers=key("k3")))
        assert paused["status"] == "paused"
        report = expect_json(await second.viewer.get(f"/executions/{asked['execution_id']}/report"))
        assert [act["act"] for act in report["acts"]] == ["revise"]


async def test_a_key_means_nothing_where_nothing_is_posted(harness: ServerHarness):
    bead = await harness.file(context={"a": 1})
    path = f"/beads/{bead['id']}"
    for value in (2, 3):
        body = {"context": {"a": value}}
        expect_json(await harness.operator.patch(path, json=body, headers=key("k1")))
    assert expect_json(await harness.viewer.get(path, headers=key("k1")))["context"]["a"] == 3


async def test_answers_at_hand_are_bounded_in_bytes(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(idempotency, "CACHED_RESPONSES_BYTES_MAX", 10_000)
    body = {"title": "x" * 500}
    for n in range(50):
        expect_json(await harness.operator.post("/beads", json=body, headers=key(f"k{n}")), 201)
    answers = harness.served.idempotent_responses
    assert 0 < len(answers._responses) < 15
    kept = [place.result() for place in answers._responses.values()]
    assert answers._bytes == sum(len(row.answer) for row in kept if row is not None)
    again = await harness.operator.post("/beads", json=body, headers=key("k49"))
    assert again.headers["idempotent-replayed"] == "true"


async def test_what_a_claim_was_answered_is_not_written_down(harness: ServerHarness):
    await harness.define(PLAIN)
    await harness.file("plain")
    expect_json(await harness.agent.post("/agents", json={"id": AGENT, "roles": [WORKER]}), 201)
    first = await harness.agent.post(
        "/dispatches/claim", json={"agent_id": AGENT}, headers=key("claim")
    )
    again = await harness.agent.post(
        "/dispatches/claim", json={"agent_id": AGENT}, headers=key("claim")
    )
    assert (again.status_code, again.content) == (200, first.content)
    await harness.served.idempotent_responses.flush()
    assert await harness.engine.stored_answers.get("http:claim", f"agent:{AGENT}") is None
