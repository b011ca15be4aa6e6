"""`Idempotency-Key`: the same request again gets the first answer, and nothing is done twice."""

import asyncio
from typing import Any

import pytest
from tests.server.house import AGENT, ASKS, PLAIN, WORKER, House, pages, problem, told

from handrail.server import idempotency

KEY = "Idempotency-Key"


def key(name: str) -> dict[str, str]:
    return {KEY: name}


@pytest.mark.requirement("L8.7")
async def test_a_bead_that_is_filed_twice_under_one_key_is_one_bead(house: House):
    await house.define(PLAIN)
    body = {"title": "a bug", "workflow_id": "plain"}
    first = await house.operator.post("/beads", json=body, headers=key("k1"))
    again = await house.operator.post("/beads", json=body, headers=key("k1"))
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    assert again.headers["content-type"] == first.headers["content-type"]
    assert len(await pages(house.viewer, "/executions")) == 1
    other = await house.operator.post("/beads", json=body, headers=key("k2"))
    assert told(other, 201)["id"] != told(first, 201)["id"]


@pytest.mark.requirement("L8.7")
async def test_the_first_answer_stands_although_the_bead_has_changed_since(house: House):
    await house.define(PLAIN)
    body = {"title": "a bug", "workflow_id": "plain"}
    first = await house.operator.post("/beads", json=body, headers=key("k1"))
    house.works()
    await house.quiet()
    again = await house.operator.post("/beads", json=body, headers=key("k1"))
    assert again.content == first.content
    bead = told(await house.viewer.get(f"/beads/{first.json()['id']}"))
    assert bead["status"] == "closed"


@pytest.mark.requirement("L8.7")
async def test_many_at_once_under_one_key_are_one_and_hear_the_same(house: House):
    await house.define(PLAIN)
    body = {"title": "a bug", "workflow_id": "plain"}
    asked = [house.operator.post("/beads", json=body, headers=key("k1")) for _ in range(20)]
    answers = await asyncio.gather(*asked)
    assert {(answer.status_code, answer.content) for answer in answers} == {
        (201, answers[0].content)
    }
    assert len(await pages(house.viewer, "/beads")) == 1
    assert len(await pages(house.viewer, "/executions")) == 1


async def test_another_request_under_the_same_key_is_refused(house: House):
    told(await house.operator.post("/beads", json={"title": "a"}, headers=key("k1")), 201)
    for path, body in [("/beads", {"title": "b"}), ("/workflows/validate", {"title": "a"})]:
        answer = await house.operator.post(path, json=body, headers=key("k1"))
        problem(answer, 422, "key_reused")
    assert len(await pages(house.viewer, "/beads")) == 1


async def test_keys_of_two_people_have_nothing_to_do_with_each_other(house: House):
    one = await house.operator.post("/beads", json={"title": "a"}, headers=key("k1"))
    other = await house.other_operator.post("/beads", json={"title": "b"}, headers=key("k1"))
    assert told(one, 201)["id"] != told(other, 201)["id"]


@pytest.mark.parametrize("bad", ["x" * 256, "a\tb"])
async def test_a_key_that_is_none_is_refused(house: House, bad: str):
    answer = await house.operator.post("/beads", json={"title": "a"}, headers=key(bad))
    problem(answer, 422, "bad_key")


async def test_what_was_refused_can_be_tried_again_under_the_same_key(house: House):
    body = {"title": "a", "workflow_id": "plain"}
    answer = await house.operator.post("/beads", json=body, headers=key("k1"))
    problem(answer, 422, "unknown_definition")
    await house.define(PLAIN)
    told(await house.operator.post("/beads", json=body, headers=key("k1")), 201)


@pytest.mark.requirement("L8.7")
async def test_an_answer_that_is_sent_twice_is_one(house: House):
    asked = await house.asked()
    path, body = f"/approvals/{asked['id']}/answer", {"text": "halve it, please"}
    answers = await asyncio.gather(
        *(house.ceo.post(path, json=body, headers=key("k1")) for _ in range(10))
    )
    assert {(one.status_code, one.content) for one in answers} == {(200, answers[0].content)}
    report = told(await house.viewer.get(f"/executions/{asked['execution_id']}/report"))
    assert [act["act"] for act in report["acts"]] == ["revise"]
    assert await house.notes(asked["execution_id"]) == []


@pytest.mark.requirement("L8.7")
async def test_every_other_post_is_done_once_under_one_key(house: House):
    await house.define(PLAIN, ASKS)
    bead, done = await house.file(), await house.file("plain")
    house.works()
    await house.quiet()
    paused = await house.file("asks", title="to be paused")
    await house.quiet()
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
            *(house.ceo.post(path, **sent, headers=key(f"k{i}")) for _ in range(5))
        )
        assert answers[0].status_code in (200, 201), answers[0].text
        assert {(one.status_code, one.content) for one in answers} == {
            (answers[0].status_code, answers[0].content)
        }
    report = told(await house.viewer.get(f"/executions/{paused['execution_id']}/report"))
    assert [act["act"] for act in report["acts"]] == ["move"]
    assert len(await pages(house.viewer, f"/beads/{done['id']}/executions")) == 2


@pytest.mark.requirement("L8.7")
async def test_another_server_on_the_same_database_knows_the_first_answer(house: House):
    body = {"title": "a bug"}
    first = await house.operator.post("/beads", json=body, headers=key("k1"))
    await house.served.idempotent_responses.flush()
    second = House(house.url, house.clock)
    async with second.opened():
        again = await second.operator.post("/beads", json=body, headers=key("k1"))
        assert again.content == first.content
        assert len(await pages(second.viewer, "/beads")) == 1


@pytest.mark.requirement("L8.7")
async def test_another_server_does_nothing_twice_even_before_the_answer_is_written(house: House):
    await house.define(PLAIN)
    asked = await house.asked()
    filed = {"title": "a bug", "workflow_id": "plain"}
    answered = {"text": "halve it, please"}
    path = f"/approvals/{asked['id']}/answer"
    first = told(await house.operator.post("/beads", json=filed, headers=key("k1")), 201)
    told(await house.ceo.post(path, json=answered, headers=key("k2")))
    override = f"/executions/{(await house.asked())['execution_id']}/override"
    pause = {"action": "pause", "reason": "wait for Bob"}
    told(await house.ceo.post(override, json=pause, headers=key("k3")))
    second = House(house.url, house.clock)
    async with second.opened():
        again = told(await second.operator.post("/beads", json=filed, headers=key("k1")), 201)
        assert (again["id"], again["execution_id"]) == (first["id"], first["execution_id"])
        after = told(await second.ceo.post(path, json=answered, headers=key("k2")))
        assert after["approval"]["status"] == "answered"
        paused = told(await second.ceo.post(override, json=pause, headers=key("k3")))
        assert paused["status"] == "paused"
        report = told(await second.viewer.get(f"/executions/{asked['execution_id']}/report"))
        assert [act["act"] for act in report["acts"]] == ["revise"]


async def test_a_key_means_nothing_where_nothing_is_posted(house: House):
    bead = await house.file(context={"a": 1})
    path = f"/beads/{bead['id']}"
    for value in (2, 3):
        body = {"context": {"a": value}}
        told(await house.operator.patch(path, json=body, headers=key("k1")))
    assert told(await house.viewer.get(path, headers=key("k1")))["context"]["a"] == 3


async def test_answers_at_hand_are_bounded_in_bytes(house: House, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(idempotency, "CACHED_RESPONSES_BYTES_MAX", 10_000)
    body = {"title": "x" * 500}
    for n in range(50):
        told(await house.operator.post("/beads", json=body, headers=key(f"k{n}")), 201)
    answers = house.served.idempotent_responses
    assert 0 < len(answers._responses) < 15
    kept = [place.result() for place in answers._responses.values()]
    assert answers._bytes == sum(len(row.answer) for row in kept if row is not None)
    again = await house.operator.post("/beads", json=body, headers=key("k49"))
    assert again.headers["idempotent-replayed"] == "true"


async def test_what_a_claim_was_answered_is_not_written_down(house: House):
    await house.define(PLAIN)
    await house.file("plain")
    told(await house.agent.post("/agents", json={"id": AGENT, "roles": [WORKER]}), 201)
    first = await house.agent.post(
        "/dispatches/claim", json={"agent_id": AGENT}, headers=key("claim")
    )
    again = await house.agent.post(
        "/dispatches/claim", json={"agent_id": AGENT}, headers=key("claim")
    )
    assert (again.status_code, again.content) == (200, first.content)
    await house.served.idempotent_responses.flush()
    assert await house.engine.stored_answers.get("http:claim", f"agent:{AGENT}") is None
