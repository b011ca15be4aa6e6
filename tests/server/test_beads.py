"""Beads: filed, looked up, changed, run again; by whom, and what is refused."""

import asyncio
from typing import get_args

import pytest
from tests.engine.engines import chain, node, team
from tests.server.harness import (
    ASKS,
    CEO,
    OPERATOR,
    PLAIN,
    ServerHarness,
    expect_json,
    expect_problem,
    list_all,
)

from handrail.api.beads import BeadSort
from handrail.kernel.result import Outcome, Result

REVIEWED = team(
    {"planner": ["invoice"], "invoice": ["review"]},
    id="reviewed",
    review={"after": ["invoice"], "back_to": "planner"},
)


@pytest.mark.requirement("L8.2")
async def test_a_bead_with_a_definition_begins_to_run_at_once(harness: ServerHarness):
    await harness.define(PLAIN)
    answer = await harness.operator.post(
        "/beads",
        json={
            "title": "500 on /invoices",
            "description": "since noon",
            "workflow_id": "plain",
            "context": {"severity": 3},
            "priority": 5,
        },
    )
    bead = expect_json(answer, 201)
    assert bead["status"] == "in_progress"
    assert (bead["type"], bead["parent_id"], bead["error"]) == ("work", None, None)
    assert (bead["title"], bead["description"]) == ("500 on /invoices", "since noon")
    assert (bead["priority"], bead["filed_by"], bead["workflow_id"]) == (5, OPERATOR, "plain")
    assert bead["context"]["severity"] == 3
    run = expect_json(await harness.viewer.get(f"/executions/{bead['execution_id']}"))
    assert (run["bead_id"], run["current_node_id"], run["status"]) == (bead["id"], "fix", "running")


async def test_a_bead_without_a_definition_is_open_and_has_no_run(harness: ServerHarness):
    bead = await harness.file()
    assert (bead["status"], bead["execution_id"], bead["workflow_id"]) == ("open", None, None)
    assert expect_json(await harness.viewer.get(f"/beads/{bead['id']}/executions"))["items"] == []


async def test_a_bead_has_a_due_date_that_lists_can_ask_for(harness: ServerHarness):
    await harness.define(PLAIN)
    wanted = {"title": "t", "workflow_id": "plain", "due_at": "2030-01-01T13:00:00+01:00"}
    bead = expect_json(await harness.operator.post("/beads", json=wanted), 201)
    assert bead["due_at"] == "2030-01-01T12:00:00Z"
    assert expect_json(await harness.viewer.get(f"/beads/{bead['id']}")) == bead
    details = expect_json(await harness.viewer.get(f"/executions/{bead['execution_id']}/whole"))
    assert details["bead"]["due_at"] == bead["due_at"]
    query = "/beads?sort=due_at&due_before=2030-01-01T12:00:0"
    assert expect_json(await harness.viewer.get(f"{query}1Z"))["items"][0]["id"] == bead["id"]
    assert expect_json(await harness.viewer.get(f"{query}0Z"))["items"] == []
    for wrong in ("2030-01-01T12:00:00", "tomorrow", "0001-01-01T00:00:00+14:00"):
        answer = await harness.operator.post("/beads", json={**wanted, "due_at": wrong})
        assert answer.status_code == 422, wrong


@pytest.mark.parametrize("sort", get_args(BeadSort))
async def test_beads_are_listed_in_every_order_of_the_contract(harness: ServerHarness, sort: str):
    """The newest, the soonest due and the highest priority come first."""
    filed = [
        {"title": "due_at", "due_at": "2030-01-01T00:00:00Z"},
        {"title": "priority", "priority": 9},
        {"title": "created_at"},
    ]
    for bead in filed:
        expect_json(await harness.operator.post("/beads", json=bead), 201)
    listed = expect_json(await harness.viewer.get(f"/beads?sort={sort}"))["items"]
    assert (listed[0]["title"], len(listed)) == (sort, len(filed))


async def test_a_definition_is_found_by_its_name_too(harness: ServerHarness):
    await harness.define({**PLAIN, "name": "Plain work"})
    bead = await harness.file("Plain work")
    assert bead["workflow_id"] == "plain"


async def test_a_wrong_bead_is_refused_with_its_place(harness: ServerHarness):
    for body, path in [
        ({}, "$"),
        ({"title": ""}, "$.title"),
        ({"title": "  \t"}, "$.title"),
        ({"title": 5}, "$.title"),
        ({"title": "a" * 1_001}, "$.title"),
        ({"title": "a", "review": "perhaps"}, "$.review"),
        ({"title": "a", "priority": "5"}, "$.priority"),
        ({"title": "a", "priority": 10**30}, "$.priority"),
        ({"title": "a", "context": []}, "$.context"),
        ({"title": "a", "workflow_id": "no such"}, "workflow_id"),
        ({"title": "a", "review": "skip"}, "workflow_id"),
    ]:
        answer = await harness.operator.post("/beads", json=body)
        assert answer.status_code == 422, body
        assert [place["path"] for place in answer.json()["errors"]] == [path]
    assert await list_all(harness.viewer, "/beads") == []


@pytest.mark.requirement("R3.1", "R3.2")
async def test_a_review_can_be_required_only_where_the_definition_has_one(harness: ServerHarness):
    await harness.define(PLAIN, REVIEWED)
    for review, workflow_id, status in [
        ("required", "plain", 422),
        ("skip", "plain", 201),
        ("required", "reviewed", 201),
        ("skip", "reviewed", 201),
    ]:
        body = {"title": "a", "workflow_id": workflow_id, "review": review}
        answer = await harness.operator.post("/beads", json=body)
        assert answer.status_code == status, (review, workflow_id, answer.text)
        if status == 422:
            expect_problem(answer, 422, "no_review")


async def test_an_unknown_bead_is_not_found_by_any_call(harness: ServerHarness):
    for method, path, body in [
        ("GET", "/beads/none", None),
        ("PATCH", "/beads/none", {"context": {}}),
        ("GET", "/beads/none/executions", None),
        ("POST", "/beads/none/executions", {}),
        ("GET", "/beads/none/history", None),
        ("GET", "/beads/none/files", None),
        ("GET", "/beads/none/files/x", None),
    ]:
        answer = await harness.operator.request(method, path, json=body)
        expect_problem(answer, 404, "unknown_bead")
    expect_problem(
        await harness.operator.post("/beads/none/files?name=x", content=b"x"), 404, "unknown_bead"
    )


# Who may


async def test_whoever_only_looks_can_look_at_beads_and_change_none(harness: ServerHarness):
    bead = await harness.file()
    path = f"/beads/{bead['id']}"
    for sub in ("", "/executions", "/history", "/files"):
        expect_json(await harness.viewer.get(path + sub))
    expect_json(await harness.viewer.get("/beads"))
    for method, where in [
        ("POST", "/beads"),
        ("PATCH", path),
        ("POST", f"{path}/executions"),
        ("POST", f"{path}/files"),
    ]:
        for client in (harness.viewer, harness.agent, harness.reporter):
            expect_problem(
                await client.request(method, where, json={"title": "a"}), 403, "forbidden"
            )
        expect_problem(
            await harness.nobody.request(method, where, json={"title": "a"}), 401, "no_token"
        )
    assert len(await list_all(harness.viewer, "/beads")) == 1


@pytest.mark.requirement("L16")
async def test_nobody_files_a_bead_in_another_name(
    harness: ServerHarness, caplog: pytest.LogCaptureFixture
):
    for field in ("filed_by", "by", "actor"):
        caplog.clear()
        body = {"title": "a", field: CEO}
        expect_problem(await harness.operator.post("/beads", json=body), 403, "forged_author")
        (line,) = [said for said in caplog.messages if "forged_author" in said]
        assert f"actor={OPERATOR}" in line
        assert f"'{CEO}'" in line
    assert await list_all(harness.viewer, "/beads") == []
    body = {"title": "a", "filed_by": OPERATOR, "by": OPERATOR, "actor": OPERATOR}
    assert (
        expect_json(await harness.operator.post("/beads", json=body), 201)["filed_by"] == OPERATOR
    )


@pytest.mark.requirement("L16")
async def test_a_forged_change_of_a_bead_is_kept_as_evidence_of_its_run(harness: ServerHarness):
    await harness.define(PLAIN)
    bead = await harness.file("plain")
    path = f"/beads/{bead['id']}"
    body = {"context": {"a": 1}, "by": CEO}
    expect_problem(await harness.operator.patch(path, json=body), 403, "forged_author")
    body = {"actor": CEO}
    expect_problem(
        await harness.operator.post(f"{path}/executions", json=body), 403, "forged_author"
    )
    assert await harness.notes(bead["execution_id"]) == [(OPERATOR, "forged_author")] * 2
    assert "a" not in expect_json(await harness.viewer.get(path))["context"]


# Lists


async def test_beads_are_listed_the_newest_first_and_filtered(harness: ServerHarness):
    await harness.define(PLAIN, ASKS)
    first = await harness.file("plain", title="first")
    second = await harness.file(title="second")
    third = await harness.file("asks", title="third")
    harness.works()
    await harness.quiet()

    async def ids(**query: str) -> list[str]:
        return [bead["id"] for bead in await list_all(harness.viewer, "/beads", **query)]

    assert await ids(type="work") == [third["id"], second["id"], first["id"]]
    assert await ids(status="open", type="work") == [second["id"]]
    assert await ids(status="closed", type="work") == [first["id"]]
    assert await ids(status="waiting") == [third["id"]]
    assert await ids(workflow_id="plain") == [first["id"]]
    (question,) = await list_all(harness.viewer, "/beads", type="approval")
    assert (question["parent_id"], question["status"]) == (third["id"], "open")
    assert expect_json(await harness.viewer.get(f"/beads/{question['id']}"))["type"] == "approval"
    assert await ids(status="error") == []


async def test_a_wrong_question_for_a_list_says_which_part(harness: ServerHarness):
    for query in (
        {"status": "lost"},
        {"type": "other"},
        {"limit": "0"},
        {"limit": "501"},
        {"limit": "many"},
        {"cursor": "x" * 601},
        {"cursor": "no cursor\n"},
    ):
        for path in ("/beads", "/executions", "/approvals"):
            if "type" in query and path != "/beads":
                continue
            answer = await harness.viewer.get(path, params=query)
            assert answer.status_code == 422, (path, answer.text)
            assert next(iter(query)) in answer.text


async def test_paging_meets_every_bead_once_while_new_ones_come_in(harness: ServerHarness):
    filed = [(await harness.file(title=f"bead {i}"))["id"] for i in range(25)]
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        query = {"limit": 4, **({"cursor": cursor} if cursor else {})}
        page = expect_json(await harness.viewer.get("/beads", params=query))
        seen += [bead["id"] for bead in page["items"]]
        cursor = page["next_cursor"]
        await harness.file(title="a new one")
    assert [bead_id for bead_id in seen if bead_id in filed] == filed[::-1]
    assert len(seen) == len(set(seen))


# Changes


async def test_a_patch_is_merged_into_the_context(harness: ServerHarness):
    bead = await harness.file(context={"a": 1, "b": {"c": 2, "d": 3}})
    patch = {"context": {"a": None, "b": {"c": 4}, "e": [5]}}
    changed = expect_json(await harness.operator.patch(f"/beads/{bead['id']}", json=patch))
    assert changed["context"] == {"b": {"c": 4, "d": 3}, "e": [5]}
    assert (
        expect_json(await harness.viewer.get(f"/beads/{bead['id']}"))["context"]
        == changed["context"]
    )


async def test_a_patch_reaches_the_run_that_goes_on(harness: ServerHarness):
    await harness.define(PLAIN)
    bead = await harness.file("plain", context={"a": 1})
    path = f"/beads/{bead['id']}"
    changed = expect_json(await harness.operator.patch(path, json={"context": {"a": 2}}))
    assert changed["context"]["a"] == 2
    events = await list_all(harness.viewer, f"{path}/history")
    (patched,) = [event for event in events if event["type"] == "patched"]
    assert (patched["actor"], patched["patch"]) == (OPERATOR, {"a": 2})


@pytest.mark.requirement("K15")
async def test_a_patch_voids_the_question_that_had_shown_what_changed(harness: ServerHarness):
    asked = await harness.asked(context={"amount": 100})
    bead_id = asked["original_bead_id"]
    expect_json(
        await harness.operator.patch(f"/beads/{bead_id}", json={"context": {"amount": 900}})
    )
    assert expect_json(await harness.viewer.get(f"/approvals/{asked['id']}"))["status"] == "void"
    (again,) = expect_json(await harness.viewer.get("/approvals", params={"status": "open"}))[
        "items"
    ]
    assert again["digest"] != asked["digest"]
    answer = await harness.ceo.post(f"/approvals/{asked['id']}/answer", json={"text": "ok"})
    expect_problem(answer, 409, "not_open")


async def test_keys_of_the_engine_cannot_be_patched(harness: ServerHarness):
    bead = await harness.file()
    body = {"context": {"redispatch_requested": True}}
    answer = await harness.operator.patch(f"/beads/{bead['id']}", json=body)
    expect_problem(answer, 422, "engine_keys")


async def test_a_patch_without_a_context_is_refused(harness: ServerHarness):
    bead = await harness.file()
    for body in ({}, {"context": 5}, {"context": None}, []):
        expect_problem(
            await harness.operator.patch(f"/beads/{bead['id']}", json=body), 422, "bad_body"
        )


# Runs of a bead


@pytest.mark.requirement("L10.7")
async def test_a_bead_is_run_again_when_its_run_has_ended(harness: ServerHarness):
    await harness.define(PLAIN)
    bead = await harness.file("plain")
    path = f"/beads/{bead['id']}/executions"
    expect_problem(await harness.operator.post(path, json={}), 409, "bead_busy")
    harness.works()
    await harness.quiet()
    again = expect_json(await harness.operator.post(path), 201)  # without a body, too
    assert (again["bead_id"], again["workflow_id"]) == (bead["id"], "plain")
    assert again["id"] != bead["execution_id"]
    await harness.quiet()
    runs = expect_json(await harness.viewer.get(path))["items"]
    assert [run["id"] for run in runs] == [again["id"], bead["execution_id"]]
    assert {run["terminal_status"] for run in runs} == {"done_success"}
    assert (
        expect_json(await harness.viewer.get(f"/beads/{bead['id']}"))["execution_id"] == again["id"]
    )


async def test_a_run_begins_at_a_node_and_of_a_definition_that_is_asked_for(harness: ServerHarness):
    await harness.define(chain(node("a"), node("b"), id="two"))
    bead = await harness.file()
    path = f"/beads/{bead['id']}/executions"
    body = {"workflow_id": "two", "from_node": "b"}
    assert expect_json(await harness.operator.post(path, json=body), 201)["current_node_id"] == "b"


async def test_what_a_run_cannot_begin_with_is_named(harness: ServerHarness):
    await harness.define(PLAIN)
    bead = await harness.file()
    path = f"/beads/{bead['id']}/executions"
    for body, code, place in [
        ({"workflow_id": "none"}, "unknown_definition", "workflow_id"),
        ({"workflow_id": "plain", "from_node": "none"}, "unknown_place", "from_node"),
    ]:
        found = expect_problem(await harness.operator.post(path, json=body), 422, code)
        assert [one["path"] for one in found["errors"]] == [place]
    found = expect_problem(await harness.operator.post(path, json={}), 422, "no_workflow")
    assert [one["path"] for one in found["errors"]] == ["workflow_id"]
    assert expect_json(await harness.viewer.get(path))["items"] == []


async def test_of_many_that_start_a_bead_at_once_one_does(harness: ServerHarness):
    await harness.define(PLAIN)
    bead = await harness.file()
    path = f"/beads/{bead['id']}/executions"
    asked = (harness.operator.post(path, json={"workflow_id": "plain"}) for _ in range(10))
    answers = await asyncio.gather(*asked)
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 9
    assert len(expect_json(await harness.viewer.get(path))["items"]) == 1


@pytest.mark.requirement("L10.8", "H3.4")
async def test_the_history_of_a_bead_is_all_that_happened_in_order(harness: ServerHarness):
    await harness.define(PLAIN)
    bead = await harness.file("plain")
    harness.works()
    await harness.quiet()
    expect_json(await harness.operator.post(f"/beads/{bead['id']}/executions"), 201)
    await harness.quiet()
    path = f"/beads/{bead['id']}/history"
    events = await list_all(harness.viewer, path, limit=3)
    assert [event["type"] for event in events if event["type"] in ("started", "ended")] == [
        *("started", "ended", "started", "ended")
    ]
    assert events[0]["actor"] == OPERATOR
    by_run: dict[str, list[int]] = {}
    for event in events:
        by_run.setdefault(event["execution_id"], []).append(event["seq"])
    assert len(by_run) == 2
    assert all(seqs == list(range(1, len(seqs) + 1)) for seqs in by_run.values())
    assert events == await list_all(harness.viewer, path, limit=500)


@pytest.mark.requirement("H3.4")
async def test_a_bead_whose_run_was_aborted_says_why(harness: ServerHarness):
    circle = team({"a": ["b"], "b": ["a"]}, terminator="a", id="circle")
    await harness.define(circle)
    for one, other in (("a", "b"), ("b", "a")):
        harness.works(Result(outcome=Outcome.HANDOFF, to=other, reason="your turn"), one)
    bead = await harness.file("circle")
    await harness.quiet()
    found = expect_json(await harness.viewer.get(f"/beads/{bead['id']}"))
    assert found["status"] == "error"
    assert found["error"]["rule"] == "repeated_pattern"
    assert found["error"]["execution_id"] == bead["execution_id"]
    assert found["error"]["pattern"]
    assert found["error"]["reason"]
