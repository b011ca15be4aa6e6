"""Remembered resolutions over HTTP: who may look, correct and remove, and what the record says."""

from typing import Any

from tests.server.harness import (
    CEO,
    OPERATOR,
    PLAIN,
    WORKER,
    ServerHarness,
    expect_json,
    expect_problem,
    list_all,
)
from tests.server.http_agents import register_agent

from handrail.views.memories import QUERY_CHARS_MAX, RESOLUTION_CHARS_MAX

MTU = "Set the MTU to 1400."


async def taught(harness: ServerHarness, *titles: str) -> list[str]:
    """What was learned from a ticket each; their ids."""
    found: list[str] = []
    await harness.define(PLAIN)
    harness.works()
    for title in titles:
        bead = await harness.file("plain", title=title)
        kept = await harness.engine.memory.remember(
            execution_id=bead["execution_id"],
            bead_id=bead["id"],
            title=title,
            resolution=MTU,
            by="memory",
        )
        assert kept is not None
        found.append(kept.id)
    await harness.quiet()
    return found


async def test_memories_are_listed_in_pages_and_found_by_a_part_of_them(harness: ServerHarness):
    names = await taught(harness, "VPN drops", "Printer is empty", "VPN is slow")
    found = await list_all(harness.viewer, "/memory", limit=2)
    assert [one["id"] for one in found] == names[::-1]
    (one,) = expect_json(await harness.viewer.get("/memory", params={"q": "PRINTER"}))["items"]
    assert (one["title"], one["resolution"], one["status"]) == ("Printer is empty", MTU, "kept")
    assert expect_json(await harness.viewer.get(f"/memory/{one['id']}")) == one
    fields = {"bead_id", "execution_id", "remembered_by", "created_at", "times_used", "used_at"}
    assert fields | {"corrected_by", "corrected_at", "ticket"} <= set(one)
    assert expect_json(await harness.viewer.get("/memory", params={"q": '" OR *'}))["items"] == []


async def test_what_cannot_be_looked_for_is_told(harness: ServerHarness):
    for query in ({"q": "x" * (QUERY_CHARS_MAX + 1)}, {"limit": 0}, {"limit": 501}):
        answer = await harness.viewer.get("/memory", params=query)
        assert answer.status_code == 422
    expect_problem(await harness.viewer.get("/memory", params={"q": "a\x01"}), 422, "bad_query")
    expect_problem(await harness.viewer.get("/memory/nobody"), 404, "unknown_memory")


async def test_an_operator_corrects_and_the_record_says_who(harness: ServerHarness):
    (name,) = await taught(harness, "VPN drops")
    harness.clock.advance(60)
    body = {"resolution": "Restart it."}
    expect_problem(await harness.viewer.patch(f"/memory/{name}", json=body), 403, "forbidden")
    kept = expect_json(await harness.operator.patch(f"/memory/{name}", json=body))
    assert (kept["resolution"], kept["corrected_by"]) == ("Restart it.", OPERATOR)
    assert kept["corrected_at"] > kept["created_at"]
    (event,) = await on_record(harness)
    assert (event["type"], event["actor"], event["was"]) == ("memory_corrected", OPERATOR, MTU)
    assert event["stream"] == "memory:resolutions"
    checked = expect_json(await harness.viewer.get("/audit/verify"))
    assert checked["ok"]


async def test_nobody_corrects_as_somebody_else_or_to_nothing(harness: ServerHarness):
    (name,) = await taught(harness, "VPN drops")
    forged: dict[str, Any] = {"resolution": "x", "by": CEO}
    expect_problem(
        await harness.operator.patch(f"/memory/{name}", json=forged), 403, "forged_author"
    )
    for text in ("", "a\x00b", "x" * (RESOLUTION_CHARS_MAX + 1), 7):
        answer = await harness.operator.patch(f"/memory/{name}", json={"resolution": text})
        expect_problem(answer, 422, "bad_body")
    expect_problem(
        await harness.operator.patch(f"/memory/{name}", json={"resolution": " "}), 422, "no_text"
    )
    expect_problem(await harness.operator.patch("/memory/nobody", json={"resolution": "x"}), 404,
            "unknown_memory")  # fmt: skip
    assert await on_record(harness) == []


async def test_an_operator_removes_and_it_is_gone(harness: ServerHarness):
    name, other = await taught(harness, "VPN drops", "VPN is slow")
    expect_problem(await harness.viewer.delete(f"/memory/{name}"), 403, "forbidden")
    assert (await harness.operator.delete(f"/memory/{name}")).status_code == 204
    expect_problem(await harness.operator.delete(f"/memory/{name}"), 404, "unknown_memory")
    assert [one["id"] for one in await list_all(harness.viewer, "/memory")] == [other]
    (event,) = await on_record(harness)
    assert (event["type"], event["actor"], event["memory_id"]) == ("memory_removed", OPERATOR, name)


async def test_a_ticket_that_is_opened_again_withdraws_what_it_taught(harness: ServerHarness):
    (name,) = await taught(harness, "VPN drops")
    memory = expect_json(await harness.viewer.get(f"/memory/{name}"))
    again = await harness.operator.post(f"/beads/{memory['bead_id']}/executions", json={})
    expect_json(again, 201)
    assert expect_json(await harness.viewer.get(f"/memory/{name}"))["status"] == "reopened"
    answer = await harness.operator.patch(f"/memory/{name}", json={"resolution": "x"})
    expect_problem(answer, 409, "memory_withdrawn")


async def test_an_agent_neither_reads_by_id_nor_corrects_nor_removes(harness: ServerHarness):
    (name,) = await taught(harness, "VPN drops")
    for token in (harness.agent, harness.reporter):
        for answer in (
            await token.get(f"/memory/{name}"),
            await token.patch(f"/memory/{name}", json={"resolution": "x"}),
            await token.delete(f"/memory/{name}"),
        ):
            expect_problem(answer, 403, "forbidden")
    expect_problem(await harness.reporter.get("/memory"), 403, "forbidden")
    expect_problem(await harness.reporter.post("/memory", json={}), 403, "forbidden")


async def test_what_an_agent_stores_is_found_once_its_run_has_ended_well(harness: ServerHarness):
    await harness.define(PLAIN)
    agent = await register_agent(harness, "coder-7", WORKER)
    bead = await harness.file("plain", title="VPN drops every hour")
    held = await agent.claim()
    body = {"bead_id": bead["id"], "text": MTU, "tags": ["wireguard"]}
    stored = expect_json(await agent.http.post("/memory", json=body), 201)
    assert (stored["status"], stored["remembered_by"]) == ("pending", "coder-7")
    assert expect_json(await agent.http.get("/memory", params={"q": "VPN drops"}))["items"] == []
    await agent.report(held, text="done")
    await harness.quiet()
    (kept,) = expect_json(await agent.http.get("/memory", params={"q": "my vpn drops"}))["items"]
    assert (kept["id"], kept["resolution"], kept["status"]) == (stored["id"], MTU, "kept")
    assert 0 < kept["score"] <= 1
    (by_tag,) = expect_json(await agent.http.get("/memory", params={"q": "wireguard"}))["items"]
    assert by_tag["score"] < kept["score"]
    assert expect_json(await agent.http.get("/memory", params={"q": "printer"}))["items"] == []
    (listed,) = expect_json(await harness.viewer.get("/memory"))["items"]
    assert listed["score"] is None


async def test_an_agent_stores_nothing_for_a_bead_it_does_not_work_on(harness: ServerHarness):
    await harness.define(PLAIN)
    agent = await register_agent(harness, "coder-7", WORKER)
    bead = await harness.file("plain", title="VPN drops")
    body = {"bead_id": bead["id"], "text": MTU}
    expect_problem(await agent.http.post("/memory", json=body), 403, "foreign_bead")
    held = await agent.claim()
    forged = {**body, "by": "somebody"}
    expect_problem(await agent.http.post("/memory", json=forged), 403, "forged_author")
    await agent.report(held, text="done")
    expect_problem(await agent.http.post("/memory", json=body), 403, "foreign_bead")
    unknown = {**body, "bead_id": "nobody"}
    expect_problem(await agent.http.post("/memory", json=unknown), 404, "unknown_bead")


async def test_an_operator_stores_for_any_bead_that_had_a_run(harness: ServerHarness):
    await harness.define(PLAIN)
    harness.works()
    bead = await harness.file("plain", title="VPN drops")
    await harness.quiet()
    body = {"bead_id": bead["id"], "text": MTU}
    expect_problem(await harness.viewer.post("/memory", json=body), 403, "forbidden")
    stored = expect_json(await harness.operator.post("/memory", json=body), 201)
    assert (stored["status"], stored["remembered_by"]) == ("kept", OPERATOR)
    again = {**body, "text": "Restart it."}
    assert (
        expect_json(await harness.operator.post("/memory", json=again), 201)["id"] == stored["id"]
    )
    (listed,) = await list_all(harness.viewer, "/memory")
    assert listed["resolution"] == "Restart it."
    waits = expect_json(await harness.operator.post("/beads", json={"title": "x"}), 201)
    never = {**body, "bead_id": waits["id"]}
    expect_problem(await harness.operator.post("/memory", json=never), 409, "no_run")
    nameless = await harness.file("plain", title="the and of")
    empty = {**body, "bead_id": nameless["id"]}
    expect_problem(await harness.operator.post("/memory", json=empty), 422, "no_words")


async def on_record(harness: ServerHarness) -> list[dict[str, Any]]:
    """What people did to the memory."""
    trail = await list_all(harness.viewer, "/audit", people="true")
    return [event for event in trail if event["type"].startswith("memory_")]
