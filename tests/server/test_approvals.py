"""Questions to people: the inbox, and what becomes of an answer."""

from typing import Any

import pytest
from tests.engine.engines import chain, node, team
from tests.server.harness import (
    ASKS,
    CEO,
    DONE,
    OPERATOR,
    ServerHarness,
    expect_json,
    expect_problem,
    list_all,
)

from handrail.kernel.result import Outcome, Result

FIELDS = {
    *("id", "type", "status", "bead_id", "execution_id", "node_id", "question", "result"),
    *("digest", "original_bead_id", "failure_reason", "attempt_history", "proposed_next_steps"),
    *("deadline", "created_at"),
}
REVIEWED = team(
    {"planner": ["invoice"], "invoice": ["review"]},
    id="reviewed",
    review={"after": ["invoice"], "back_to": "planner"},
)


async def _answer(client, approval: dict, status: int = 200, **body: str):
    return expect_json(await client.post(f"/approvals/{approval['id']}/answer", json=body), status)


# The inbox


@pytest.mark.requirement("R1.2", "R4.5")
async def test_a_question_shows_what_it_is_about(harness: ServerHarness):
    asked = await harness.asked(title="a bug", context={"proposal": "rewrite it"})
    found = expect_json(await harness.viewer.get(f"/approvals/{asked['id']}"))
    (listed,) = expect_json(await harness.viewer.get("/approvals", params={"status": "open"}))[
        "items"
    ]
    for one in (found, listed):
        assert set(one) >= FIELDS
        assert (one["type"], one["status"], one["node_id"]) == ("approval", "open", "look")
        assert one["result"] == "done"
        assert one["digest"] == asked["digest"] != ""
    assert found["proposal"] == "rewrite it"
    bead = expect_json(await harness.viewer.get(f"/beads/{asked['id']}"))
    assert (bead["type"], bead["parent_id"]) == ("approval", found["original_bead_id"])


@pytest.mark.requirement("L6.3", "L6.4")
async def test_an_escalation_brings_its_dossier(harness: ServerHarness):
    await harness.define(chain(node("fix", max_attempts=2), id="hard"))
    harness.works(Result(outcome=Outcome.FAILURE, reason="no idea", text="I tried"))
    bead = await harness.file("hard")
    await harness.quiet()
    (asked,) = await list_all(harness.viewer, "/approvals", status="open")
    found = expect_json(await harness.viewer.get(f"/approvals/{asked['id']}"))
    assert (found["type"], found["original_bead_id"]) == ("escalation", bead["id"])
    assert found["failure_reason"]
    attempts = [(one["n"], one["outcome"]) for one in found["attempt_history"]]
    assert attempts == [(1, "failure"), (2, "failure")]
    assert len(found["proposed_next_steps"]) >= 3


async def test_the_inbox_is_filtered_by_how_questions_stand_the_newest_first(
    harness: ServerHarness,
):
    first = await harness.asked(title="first")
    harness.clock.advance(1)
    second = await harness.asked(title="second")
    await _answer(harness.ceo, first, text="ok")

    async def ids(**query: str) -> list[str]:
        return [one["id"] for one in await list_all(harness.viewer, "/approvals", **query)]

    assert await ids() == [second["id"], first["id"]]
    assert await ids(status="open") == [second["id"]]
    assert await ids(status="answered") == [first["id"]]
    assert await ids(status="void") == await ids(status="expired") == []
    expect_problem(await harness.viewer.get("/approvals?status=lost"), 422, "bad_parameter")


async def test_paging_meets_every_question_once_while_new_ones_are_asked(harness: ServerHarness):
    asked = []
    for _ in range(7):
        asked.append((await harness.asked())["id"])
        harness.clock.advance(1)
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        query = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = expect_json(await harness.viewer.get("/approvals", params=query))
        seen += [one["id"] for one in page["items"]]
        cursor = page["next_cursor"]
        harness.clock.advance(1)
        await harness.asked()
    assert [one for one in seen if one in asked] == asked[::-1]
    assert len(seen) == len(set(seen))


async def test_an_unknown_question_is_not_found(harness: ServerHarness):
    await harness.define(ASKS)
    run_id = (await harness.file("asks"))["execution_id"]
    for approval_id in ("none", "none.q1", f"{run_id}.q1", f"{run_id}.q99999999999999999999"):
        path = f"/approvals/{approval_id}"
        expect_problem(await harness.viewer.get(path), 404, "unknown_approval")
        body = {"text": "ok"}
        expect_problem(await harness.ceo.post(f"{path}/answer", json=body), 404, "unknown_approval")


# Answers


@pytest.mark.requirement("R1.3", "R4.2", "L6.5", "L7.1")
@pytest.mark.parametrize(
    "body", [{"text": "OK"}, {"text": " looks good!"}, {"decision": "approve"}]
)
async def test_an_approval_lets_the_run_go_on(harness: ServerHarness, body: dict[str, Any]):
    asked = await harness.asked()
    after = await _answer(harness.ceo, asked, **body)
    assert set(after) == {"approval", "execution"}
    approval, run = after["approval"], after["execution"]
    assert (approval["id"], approval["status"]) == (asked["id"], "answered")
    assert (approval["decision"], approval["by"]) == ("approve", CEO)
    assert (run["status"], run["terminal_status"]) == ("ended", "done_success")
    assert expect_json(await harness.viewer.get(f"/executions/{run['id']}")) == run


@pytest.mark.requirement("R1.4", "R4.3", "R4.4")
@pytest.mark.parametrize("decided", [{}, {"decision": "revise"}])
async def test_a_revision_goes_back_with_its_text_as_typed(
    harness: ServerHarness, decided: dict[str, Any]
):
    asked = await harness.asked()
    text = "use EUR, not USD;\n  and *no* cents "
    after = await _answer(harness.ceo, asked, text=text, **decided)
    assert (after["approval"]["decision"], after["approval"]["answer"]) == ("revise", text)
    await harness.quiet()
    run = expect_json(await harness.viewer.get(f"/executions/{asked['execution_id']}"))
    assert run["iterations"][0]["text"] == text
    (again,) = await list_all(harness.viewer, "/approvals", status="open")
    assert again["id"] != asked["id"]


@pytest.mark.requirement("L6.6", "L7.1")
async def test_a_rejection_closes_run_and_bead(harness: ServerHarness):
    asked = await harness.asked()
    after = await _answer(harness.ceo, asked, decision="reject", text="too dear")
    assert after["execution"]["terminal_status"] == "closed_by_human"
    bead = expect_json(await harness.viewer.get(f"/beads/{asked['original_bead_id']}"))
    assert bead["status"] == "closed"


@pytest.mark.requirement("R4.2")
async def test_what_could_mean_either_is_asked_again_with_the_choices(harness: ServerHarness):
    asked = await harness.asked()
    for text in ("", " ", "no", "cancel", "wait", "stop", "hm", "?", "ok?"):
        answer = await harness.ceo.post(f"/approvals/{asked['id']}/answer", json={"text": text})
        found = expect_problem(answer, 422, "ambiguous_answer")
        assert [one["message"] for one in found["errors"]] == ["approve", "revise", "reject"]
        assert all(one["hint"] for one in found["errors"])
    assert expect_json(await harness.viewer.get(f"/approvals/{asked['id']}"))["status"] == "open"
    await _answer(harness.ceo, asked, text="ok")


async def test_an_answer_that_is_none_leaves_the_question_open(harness: ServerHarness):
    asked = await harness.asked()
    for body, code in [
        ({}, "ambiguous_answer"),
        ({"decision": "perhaps"}, "bad_body"),
        ({"text": 5}, "bad_body"),
        ({"decision": "revise"}, "no_text"),
        ({"decision": "revise", "text": " "}, "no_text"),
        ([], "bad_body"),
    ]:
        expect_problem(
            await harness.ceo.post(f"/approvals/{asked['id']}/answer", json=body), 422, code
        )
    assert expect_json(await harness.viewer.get(f"/approvals/{asked['id']}"))["status"] == "open"


async def test_what_cannot_be_revised_says_so(harness: ServerHarness):
    await harness.define(chain(node("fix"), node("look", "approval"), id="once"))
    harness.works()
    await harness.file("once")
    await harness.quiet()
    (asked,) = await list_all(harness.viewer, "/approvals", status="open")
    body = {"text": "make it blue"}
    expect_problem(
        await harness.ceo.post(f"/approvals/{asked['id']}/answer", json=body), 422, "no_way_back"
    )


# Once, and only to what was shown


@pytest.mark.requirement("L8.7", "L16")
async def test_an_answer_counts_once_and_a_replay_is_kept_as_evidence(harness: ServerHarness):
    asked = await harness.asked()
    await _answer(harness.ceo, asked, text="too dear: halve it")
    path = f"/approvals/{asked['id']}/answer"
    expect_problem(await harness.ceo.post(path, json={"text": "ok"}), 409, "not_open")
    expect_problem(await harness.operator.post(path, json={"decision": "approve"}), 409, "not_open")
    assert await harness.notes(asked["execution_id"]) == [
        *((CEO, "replayed_answer"), (OPERATOR, "replayed_answer"))
    ]
    run = expect_json(await harness.viewer.get(f"/executions/{asked['execution_id']}"))
    assert run["status"] != "ended"


async def test_an_answer_to_a_run_that_has_ended_is_refused_and_kept(harness: ServerHarness):
    asked = await harness.asked()
    await _answer(harness.ceo, asked, text="ok")
    path = f"/approvals/{asked['id']}/answer"
    answer = await harness.ceo.post(path, json={"decision": "reject"})
    detail = expect_problem(answer, 409, "ended")["detail"]
    assert detail.startswith(
        f"approval '{asked['id']}' was answered already: approve by {CEO} at 20"
    )
    assert await harness.notes(asked["execution_id"]) == [(CEO, "replayed_answer")]


@pytest.mark.requirement("L16")
async def test_an_answer_to_what_was_not_shown_is_refused_and_kept(harness: ServerHarness):
    asked = await harness.asked()
    path = f"/approvals/{asked['id']}/answer"
    body = {"decision": "approve", "digest": "0" * 64}
    expect_problem(await harness.ceo.post(path, json=body), 409, "changed")
    assert await harness.notes(asked["execution_id"]) == [(CEO, "replayed_answer")]
    assert expect_json(await harness.viewer.get(f"/approvals/{asked['id']}"))["status"] == "open"
    await _answer(harness.ceo, asked, decision="approve", digest=asked["digest"])


@pytest.mark.requirement("K15")
async def test_a_question_that_has_expired_takes_no_answer(harness: ServerHarness):
    asked = await harness.asked()
    harness.clock.advance(days=8)
    path = f"/approvals/{asked['id']}/answer"
    answer = await harness.ceo.post(path, json={"text": "ok"})
    expect_problem(answer, 409, "ended")
    found = expect_json(await harness.viewer.get(f"/approvals/{asked['id']}"))
    assert found["status"] == "expired"
    run = expect_json(await harness.viewer.get(f"/executions/{asked['execution_id']}"))
    assert run["stop"]["rule"] == "human_deadline"


# Who may


async def test_an_operator_answers_clarification_requests_and_nothing_else(harness: ServerHarness):
    asked = await harness.asked()
    path = f"/approvals/{asked['id']}/answer"
    expect_problem(await harness.operator.post(path, json={"text": "ok"}), 403, "not_allowed")
    assert expect_json(await harness.viewer.get(f"/approvals/{asked['id']}"))["status"] == "open"
    await harness.define(REVIEWED)
    harness.works(Result(outcome=Outcome.HANDOFF, to="invoice", reason="go"), "planner")
    shown = Result(outcome=Outcome.HANDOFF, to="review", reason="done", text="42 EUR")
    harness.works(shown, "invoice")
    bead = await harness.file("reviewed", review="required")
    await harness.quiet()
    found = await list_all(harness.viewer, "/approvals", status="open")
    (review,) = [one for one in found if one["execution_id"] == bead["execution_id"]]
    assert (review["type"], review["result"]) == ("clarification_request", "42 EUR")
    after = await _answer(harness.operator, review, text="ok")
    assert (after["approval"]["by"], after["execution"]["status"]) == (OPERATOR, "ended")


@pytest.mark.requirement("R3.3")
async def test_an_agent_s_own_question_is_answered_by_an_operator_and_closed_by_none(
    harness: ServerHarness,
):
    await harness.define(chain(node("fix"), id="asking"))
    harness.works(Result(outcome=Outcome.ASK, question="EUR or USD?", options=("EUR", "USD")))
    await harness.file("asking")
    await harness.quiet()
    (asked,) = await list_all(harness.viewer, "/approvals", status="open")
    assert (asked["type"], asked["question"]) == ("clarification_request", "EUR or USD?")
    path = f"/approvals/{asked['id']}/answer"
    expect_problem(
        await harness.operator.post(path, json={"decision": "reject"}), 403, "not_allowed"
    )
    expect_problem(await harness.operator.post(path, json={"text": ""}), 422, "ambiguous_answer")
    after = await _answer(harness.operator, asked, text="no")  # to this question it is an answer
    assert after["approval"]["answer"] == "no"


async def test_only_those_named_as_approvers_answer(harness: ServerHarness):
    named = node("look", "approval", approvers=["olga", "bob"], quorum=2)
    await harness.define(chain(node("fix"), named, id="named"))
    harness.works()
    await harness.file("named")
    await harness.quiet()
    (asked,) = await list_all(harness.viewer, "/approvals", status="open")
    path = f"/approvals/{asked['id']}/answer"
    expect_problem(await harness.ceo.post(path, json={"text": "ok"}), 403, "not_allowed")
    first = await _answer(harness.operator, asked, text="ok")
    assert (first["approval"]["status"], first["execution"]["status"]) == ("open", "waiting")
    expect_problem(await harness.operator.post(path, json={"text": "ok"}), 409, "answered_before")
    bob = await harness.client("bob", "operator")
    second = await _answer(bob, asked, text="ok")
    assert (second["approval"]["status"], second["execution"]["status"]) == ("answered", "ended")


@pytest.mark.requirement("L16")
async def test_whoever_had_a_hand_in_it_does_not_approve_it(harness: ServerHarness):
    look = node("look", "approval", four_eyes=True)
    await harness.define(chain(node("fix"), look, id="eyes"))
    harness.works(DONE)
    bead = expect_json(
        await harness.ceo.post("/beads", json={"title": "a", "workflow_id": "eyes"}), 201
    )
    await harness.quiet()
    (asked,) = await list_all(harness.viewer, "/approvals", status="open")
    assert asked["original_bead_id"] == bead["id"]
    path = f"/approvals/{asked['id']}/answer"
    expect_problem(await harness.ceo.post(path, json={"text": "ok"}), 403, "author")
    await _answer(harness.admin, asked, text="ok")


async def test_whoever_only_looks_answers_nothing(harness: ServerHarness):
    asked = await harness.asked()
    path = f"/approvals/{asked['id']}"
    for client in (harness.viewer, harness.agent, harness.reporter):
        expect_problem(await client.post(f"{path}/answer", json={"text": "ok"}), 403, "forbidden")
    expect_problem(
        await harness.nobody.post(f"{path}/answer", json={"text": "ok"}), 401, "no_token"
    )
    for client in (harness.agent, harness.reporter):
        expect_problem(await client.get(path), 403, "forbidden")
        expect_problem(await client.get("/approvals"), 403, "forbidden")


@pytest.mark.requirement("L16")
async def test_nobody_answers_in_another_name(harness: ServerHarness):
    asked = await harness.asked()
    path = f"/approvals/{asked['id']}/answer"
    for field in ("by", "actor", "filed_by"):
        body = {"decision": "approve", field: CEO}
        expect_problem(await harness.operator.post(path, json=body), 403, "forged_author")
    assert await harness.notes(asked["execution_id"]) == [(OPERATOR, "forged_author")] * 3
    assert expect_json(await harness.viewer.get(f"/approvals/{asked['id']}"))["status"] == "open"
    await _answer(harness.ceo, asked, decision="approve", by=CEO)
