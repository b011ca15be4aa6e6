"""Work over HTTP: claimed once, kept alive, reported once, handed back."""

import asyncio
from typing import Any

import pytest
from tests.engine.engines import chain, node
from tests.server.harness import PLAIN, WORKER, ServerHarness, expect_json, expect_problem
from tests.server.http_agents import (
    last_seq,
    register_agent,
    register_hub_agents,
    wait_for_long_polls,
    warning_codes,
)
from tests.server.raw_connection import RawConnection

LONG = chain(node("fix", multi_dispatch=True), id="long")


async def test_a_dispatch_has_all_that_its_agent_needs(harness: ServerHarness) -> None:
    await harness.define(PLAIN)
    agent = await register_agent(harness, "coder-7", WORKER)
    bead = await harness.file("plain", title="500 on /invoices", context={"severity": 3})
    dispatch = await agent.claim()
    execution_id = bead["execution_id"]
    assert dispatch["id"] == f"{execution_id}.d{dispatch['fence']}"
    assert dispatch["kind"] == "step"
    assert dispatch["execution_id"] == execution_id
    assert dispatch["bead"]["id"] == bead["id"]
    assert dispatch["bead"]["title"] == "500 on /invoices"
    assert dispatch["bead"]["context"]["severity"] == 3
    assert dispatch["bead"]["files"] == []
    assert dispatch["definition"] == "plain"
    assert dispatch["node"] == "fix"
    assert dispatch["role"] == WORKER
    assert (dispatch["attempt"], dispatch["max_attempts"]) == (1, 3)
    assert dispatch["allowed"]["outcomes"] == ["success", "failure", "ask"]
    assert dispatch["history"] == dispatch["iterations"] == dispatch["handoff_sequence"] == []
    assert dispatch["remaining"] > 0
    assert dispatch["lease_expires_at"] > harness.clock.now().isoformat()[:19]


@pytest.mark.requirement("L3.2", "L8.4")
async def test_a_dispatch_goes_to_one_agent_of_its_role(harness: ServerHarness) -> None:
    await harness.define(PLAIN)
    first = await register_agent(harness, "coder-7", WORKER)
    second = await register_agent(harness, "coder-8", WORKER)
    designer = await register_agent(harness, "painter", "web-designer")
    await harness.file("plain")
    assert (await designer.claims()).status_code == 204
    await first.claim()
    assert (await second.claims()).status_code == 204


async def test_whoever_has_not_registered_is_told_to(harness: ServerHarness) -> None:
    agent = await register_agent(harness, "coder-7")
    refused = expect_problem(await agent.claims(), 409, "no_session")
    assert "POST /api/v1/agents" in refused["detail"]


async def test_a_result_is_accepted_and_the_run_goes_on(harness: ServerHarness) -> None:
    await harness.define(PLAIN)
    agent = await register_agent(harness, "coder-7", WORKER)
    bead = await harness.file("plain")
    answer = await agent.work("success", text="fixed", data={"commit": "abc"})
    assert answer["accepted"] is True
    assert answer["reason"] == ""
    assert answer["execution"]["id"] == bead["execution_id"]
    assert answer["execution"]["terminal_status"] == "done_success"
    assert (
        expect_json(await harness.viewer.get(f"/beads/{bead['id']}"))["context"]["commit"] == "abc"
    )


async def test_a_claim_waits_until_there_is_something_to_do(harness: ServerHarness) -> None:
    await harness.define(PLAIN)
    agent = await register_agent(harness, "coder-7", WORKER)
    claiming = asyncio.create_task(agent.claim(wait=30))
    await wait_for_long_polls(harness)
    bead = await harness.file("plain")
    assert (await claiming)["execution_id"] == bead["execution_id"]
    assert harness.served.long_polls.count == 0


async def test_a_claim_that_waits_ends_when_the_server_does(harness: ServerHarness) -> None:
    agent = await register_agent(harness, "coder-7", WORKER)
    claiming = asyncio.create_task(agent.claims(wait=30))
    await wait_for_long_polls(harness)
    harness.served.long_polls.draining.set()
    assert (await claiming).status_code == 204
    assert (await agent.claims(wait=30)).status_code == 204


@pytest.mark.parametrize("wait", [-1, "5", 1e400, None])
async def test_a_wait_is_a_number_of_seconds(harness: ServerHarness, wait: object) -> None:
    agent = await register_agent(harness, "coder-7", WORKER)
    text = f'{{"agent_id": "coder-7", "wait": {"1e400" if wait == 1e400 else _json(wait)}}}'
    answer = await agent.http.post("/dispatches/claim", content=text)
    assert answer.status_code in (400, 422), answer.text


def _json(value: object) -> str:
    return {None: "null", "5": '"5"'}.get(value, str(value))  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [{}, {"Idempotency-Key": "k"}])
async def test_whoever_goes_away_while_it_waits_takes_no_work_with_it(
    harness: ServerHarness, key: dict[str, str]
) -> None:
    await harness.define(PLAIN)
    agent = await register_agent(harness, "coder-7", WORKER)
    headers = {"Authorization": agent.http.headers["Authorization"], **key}
    body = b'{"agent_id": "coder-7", "wait": 30}'
    line = RawConnection(harness.served, "POST", "/dispatches/claim", headers, body)
    await wait_for_long_polls(harness)
    await line.cut()
    assert harness.served.long_polls.count == 0
    await harness.file("plain")
    other = await register_agent(harness, "coder-8", WORKER)
    dispatch = await other.claim()
    assert dispatch["attempt"] == 1


async def test_an_answer_that_got_lost_is_given_again(harness: ServerHarness) -> None:
    await harness.define(PLAIN)
    agent = await register_agent(harness, "coder-7", WORKER)
    await harness.file("plain")
    lost = await agent.claim()
    again = await agent.claim()
    assert (again["id"], again["attempt"]) == (lost["id"], 1)
    assert (await agent.claims(holding=[lost["id"]])).status_code == 204


async def test_an_agent_with_room_is_given_first_what_it_does_not_know_of(
    harness: ServerHarness,
) -> None:
    await harness.define(PLAIN)
    agent = await register_agent(harness, "coder-7", WORKER, capacity=3)
    for _ in range(3):
        await harness.file("plain")
    known = await agent.claim(holding=[])
    lost = await agent.claim(holding=[known["id"]])
    assert (await agent.claim(holding=[known["id"]]))["id"] == lost["id"]
    third = await agent.claim(holding=[known["id"], lost["id"]])
    assert third["id"] not in (known["id"], lost["id"])


async def test_a_heartbeat_keeps_a_dispatch_and_says_when_it_is_over(
    harness: ServerHarness,
) -> None:
    await harness.define(PLAIN)
    agent = await register_agent(harness, "coder-7", WORKER)
    await harness.file("plain")
    dispatch = await agent.claim()
    path, body = f"/dispatches/{dispatch['id']}/heartbeat", {"fence": dispatch["fence"]}
    harness.clock.advance(seconds=30)
    alive = expect_json(await agent.http.post(path, json=body))
    assert (alive["ended"], alive["reason"]) == (False, "")
    assert alive["lease_expires_at"] > dispatch["lease_expires_at"]
    harness.clock.advance(seconds=45)
    await harness.engine.tick()
    assert expect_json(await agent.http.post(path, json=body))["ended"] is False
    wanted = {"action": "close", "reason": "not needed"}
    expect_json(
        await harness.ceo.post(f"/executions/{dispatch['execution_id']}/override", json=wanted)
    )
    over = expect_json(await agent.http.post(path, json=body))
    assert over["ended"] is True
    assert over["reason"]


async def test_a_dispatch_that_is_handed_back_is_offered_again(harness: ServerHarness) -> None:
    await harness.define(PLAIN)
    agent = await register_agent(harness, "coder-7", WORKER)
    other = await register_agent(harness, "coder-8", WORKER)
    await harness.file("plain")
    dispatch = await agent.claim()
    path = f"/dispatches/{dispatch['id']}/release"
    body = {"fence": dispatch["fence"], "reason": "shutting down"}
    foreign = {"fence": dispatch["fence"]}
    expect_problem(await other.http.post(path, json=foreign), 409, "foreign")
    assert expect_json(await agent.http.post(path, json=body))["execution"]["status"] == "running"
    again = await other.claim()
    assert again["attempt"] == 2
    assert any("shutting down" in step["reason"] for step in again["history"])
    expect_problem(await agent.http.post(path, json=body), 409, "late")


@pytest.mark.parametrize(
    ("result", "place"),
    [
        ({"outcome": "succeeded"}, "outcome"),
        ({"outcome": "success", "data": [1]}, "data"),
        ({"outcome": "success", "usage": {"tokens": -1}}, "usage"),
        ({"outcome": "success", "evidence": {"checks": "green"}}, "evidence"),
        ({"outcome": "success", "text": 5}, "text"),
        ({"outcome": "ask"}, "question"),
        ({"outcome": "ask", "question": "  "}, "question"),
        ({"outcome": "continue"}, None),
        ({"outcome": "handoff", "to": "somebody", "reason": "x"}, None),
        ({"outcome": "terminate", "reason": "done"}, None),
        ({"text": "I am done"}, None),
        ({}, None),
    ],
)
@pytest.mark.requirement("L2.1")
async def test_what_is_no_result_costs_nothing_and_the_dispatch_stays_open(
    harness: ServerHarness, result: dict[str, Any], place: str | None
) -> None:
    await harness.define(PLAIN)
    agent = await register_agent(harness, "coder-7", WORKER)
    bead = await harness.file("plain")
    dispatch = await agent.claim()
    before = await last_seq(harness, bead["execution_id"])
    refused = await agent.report(dispatch, **{"outcome": None, **result})
    assert refused.status_code == 422, refused.text
    if place is not None:
        assert any(place in error["path"] for error in refused.json()["errors"]), refused.text
    assert await last_seq(harness, bead["execution_id"]) == before
    assert await harness.notes(bead["execution_id"]) == []
    assert expect_json(await agent.report(dispatch))["accepted"] is True


async def test_without_a_fence_there_is_no_result(harness: ServerHarness) -> None:
    await harness.define(PLAIN)
    agent = await register_agent(harness, "coder-7", WORKER)
    await harness.file("plain")
    dispatch = await agent.claim()
    path = f"/dispatches/{dispatch['id']}/result"
    expect_problem(await agent.http.post(path, json={"outcome": "success"}), 422, "bad_body")
    expect_problem(await agent.http.post(path), 422, "bad_parameter")
    expect_json(await agent.report(dispatch))


@pytest.mark.requirement("L2.1", "L2.2")
async def test_a_multi_dispatch_node_may_be_continued(harness: ServerHarness) -> None:
    await harness.define(LONG)
    agent = await register_agent(harness, "coder-7", WORKER)
    await harness.file("long")
    assert (await agent.work("continue", text="half"))["accepted"] is True
    dispatch = await agent.claim()
    assert dispatch["attempt"] == 2
    assert dispatch["history"][0]["text"] == "half"


async def test_an_unknown_dispatch_is_not_found(harness: ServerHarness) -> None:
    agent = await register_agent(harness, "coder-7", WORKER)
    for name in ("nonsense", "run.d1", "run.dx", ".d", "run.d99999999999999999999"):
        for what in ("result", "heartbeat", "release"):
            body = {"fence": 1, "outcome": "success"}
            answer = await agent.http.post(f"/dispatches/{name}/{what}", json=body)
            assert answer.status_code == 404, (name, what, answer.text)


async def test_what_an_agent_says_it_measured_is_only_what_it_says(harness: ServerHarness) -> None:
    await harness.define(PLAIN)
    agent = await register_agent(harness, "coder-7", WORKER)
    bead = await harness.file("plain")
    checks = [{"command": "pytest", "exit_code": 0}]
    await agent.work("success", evidence={"checks": checks, "measured": True})
    (step,) = expect_json(await harness.viewer.get(f"/executions/{bead['execution_id']}/steps"))[
        "items"
    ]
    assert step["result"]["evidence"]["checks"] == checks
    assert not step["result"]["evidence"].get("measured", False)


@pytest.mark.requirement("H6.1", "K20")
async def test_a_team_hands_over_by_the_last_line_of_a_text(harness: ServerHarness) -> None:
    agents = await register_hub_agents(harness)
    bead = await harness.file("hub")
    first = await agents["orchestrator"].work(None, text="Let me see.\nHANDOFF: memory: seen it?")
    assert first["accepted"] is True
    assert first["execution"]["current_node_id"] == "memory"
    await agents["memory"].work(None, text="no\n**HANDOFF: orchestrator: never seen.**")
    await agents["orchestrator"].work(None, text="HANDOFF: summary: write it up")
    marked = await agents["summary"].work(None, text="All of it.\n\nWORKFLOW_COMPLETE")
    assert marked["execution"]["current_node_id"] == "orchestrator"
    await agents["orchestrator"].work(None, text="HANDOFF: ticketing: close it")
    end = await agents["ticketing"].work(None, text="Resolved.\nTERMINATE_WORKFLOW: resolved.")
    assert end["execution"]["terminal_status"] == "done_success"
    assert end["execution"]["stop"]["reason"] == "resolved"
    view = expect_json(await harness.viewer.get(f"/executions/{bead['execution_id']}"))
    assert [hand["to"] for hand in view["handoff_sequence"]] == [
        "memory",
        "orchestrator",
        "summary",
        "orchestrator",
        "ticketing",
    ]


@pytest.mark.requirement("H6.1", "K20")
async def test_a_text_that_says_neither_is_refused_and_costs_a_step(harness: ServerHarness) -> None:
    agents = await register_hub_agents(harness)
    bead = await harness.file("hub")
    answer = await agents["orchestrator"].work(None, text="HANDOFF: memory: x\nor maybe not")
    assert answer["accepted"] is False
    assert "hand off or terminate" in answer["reason"]
    again = await agents["orchestrator"].claim()
    assert again["agent"] == "orchestrator"
    assert "hand off or terminate" in again["last_refusal"]
    assert await warning_codes(harness, bead["execution_id"]) == ["says_neither"]


@pytest.mark.requirement("H6.1", "K20")
async def test_the_third_refused_move_in_a_row_ends_the_run(harness: ServerHarness) -> None:
    agents = await register_hub_agents(harness)
    await harness.file("hub")
    moves = (
        {"outcome": "terminate", "reason": "done"},
        {"outcome": "handoff", "to": "a stranger", "reason": "help"},
        {"outcome": "success"},
    )
    answers = [await agents["orchestrator"].work(**move) for move in moves]
    assert [answer["accepted"] for answer in answers] == [False] * 3
    assert [answer["execution"]["terminal_status"] for answer in answers[:2]] == [None, None]
    assert answers[2]["execution"]["terminal_status"] == "aborted_stuck"
    assert answers[2]["execution"]["stop"]["rule"] == "protocol"
    assert "hand off or terminate" in answers[2]["reason"]
    assert (await agents["orchestrator"].claims()).status_code == 204


@pytest.mark.parametrize(
    "result",
    [
        {"outcome": "handoff", "reason": "to nobody"},
        {"outcome": "terminate", "status": "done_partial", "reason": "enough"},
        {"outcome": "terminate", "status": "done_partial", "remaining": [" "]},
        {"outcome": "terminate", "status": "aborted_stuck", "reason": "I say so"},
    ],
)
async def test_a_move_that_lacks_something_costs_nothing(
    harness: ServerHarness, result: dict[str, Any]
) -> None:
    agents = await register_hub_agents(harness)
    bead = await harness.file("hub")
    await agents["orchestrator"].work("handoff", to="ticketing", reason="close it")
    dispatch = await agents["ticketing"].claim()
    before = await last_seq(harness, bead["execution_id"])
    refused = await agents["ticketing"].report(dispatch, **{"outcome": None, **result})
    assert refused.status_code == 422, refused.text
    assert await last_seq(harness, bead["execution_id"]) == before
    done = {"status": "done_partial", "remaining": ["the printer"], "reason": "enough"}
    end = expect_json(await agents["ticketing"].report(dispatch, "terminate", **done))
    assert end["execution"]["terminal_status"] == "done_partial"
    assert end["execution"]["stop"]["remaining"] == ["the printer"]


@pytest.mark.requirement("H5.5")
async def test_the_terminators_own_last_line_wins_over_its_handoff(harness: ServerHarness) -> None:
    agents = await register_hub_agents(harness)
    bead = await harness.file("hub")
    await agents["orchestrator"].work("handoff", to="ticketing", reason="close it")
    end = await agents["ticketing"].work(
        "handoff", to="orchestrator", reason="?", text="Resolved.\n**TERMINATE_WORKFLOW**"
    )
    assert end["execution"]["terminal_status"] == "done_success"
    assert await warning_codes(harness, bead["execution_id"]) == ["marker_wins"]


async def test_an_agents_question_waits_for_a_person_and_comes_back_with_the_answer(
    harness: ServerHarness,
) -> None:
    await harness.define(PLAIN)
    agent = await register_agent(harness, "coder-7", WORKER)
    await harness.file("plain")
    asked = await agent.work("ask", question="Which one?", options=["a", "b"])
    assert asked["execution"]["status"] == "waiting"
    assert (await agent.claims()).status_code == 204
    (question,) = expect_json(await harness.viewer.get("/approvals", params={"status": "open"}))[
        "items"
    ]
    path = f"/approvals/{question['id']}/answer"
    expect_json(await harness.operator.post(path, json={"text": "the second"}))
    assert (await agent.claim())["answer"] == "the second"


async def test_the_same_key_and_body_again_gets_the_first_answer(harness: ServerHarness) -> None:
    await harness.define(PLAIN)
    agent = await register_agent(harness, "coder-7", WORKER)
    bead = await harness.file("plain")
    dispatch = await agent.claim()
    path, body = f"/dispatches/{dispatch['id']}/result", {"fence": dispatch["fence"]}
    body |= {"outcome": "failure", "reason": "no"}
    key = {"Idempotency-Key": "one"}
    first = expect_json(await agent.http.post(path, json=body, headers=key))
    seq = await last_seq(harness, bead["execution_id"])
    assert expect_json(await agent.http.post(path, json=body, headers=key)) == first
    assert await last_seq(harness, bead["execution_id"]) == seq
    assert await harness.notes(bead["execution_id"]) == []
