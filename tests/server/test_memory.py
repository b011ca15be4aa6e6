"""Remembered resolutions over HTTP: who may look, correct and remove, and what the record says."""

from typing import Any

from tests.server.house import CEO, OPERATOR, PLAIN, House, pages, problem, told

from handrail.views.memories import QUERY_CHARS_MAX, RESOLUTION_CHARS_MAX

MTU = "Set the MTU to 1400."


async def taught(house: House, *titles: str) -> list[str]:
    """What was learned from a ticket each; their ids."""
    found: list[str] = []
    await house.define(PLAIN)
    house.works()
    for title in titles:
        bead = await house.file("plain", title=title)
        kept = await house.engine.memory.remember(
            execution_id=bead["execution_id"],
            bead_id=bead["id"],
            title=title,
            resolution=MTU,
            by="memory",
        )
        assert kept is not None
        found.append(kept.id)
    await house.quiet()
    return found


async def test_memories_are_listed_in_pages_and_found_by_a_part_of_them(house: House):
    names = await taught(house, "VPN drops", "Printer is empty", "VPN is slow")
    found = await pages(house.viewer, "/memory", limit=2)
    assert [one["id"] for one in found] == names[::-1]
    (one,) = told(await house.viewer.get("/memory", params={"q": "PRINTER"}))["items"]
    assert (one["title"], one["resolution"], one["status"]) == ("Printer is empty", MTU, "kept")
    assert told(await house.viewer.get(f"/memory/{one['id']}")) == one
    fields = {"bead_id", "execution_id", "remembered_by", "created_at", "times_used", "used_at"}
    assert fields | {"corrected_by", "corrected_at", "ticket"} <= set(one)
    assert told(await house.viewer.get("/memory", params={"q": '" OR *'}))["items"] == []


async def test_what_cannot_be_looked_for_is_told(house: House):
    for query in ({"q": "x" * (QUERY_CHARS_MAX + 1)}, {"limit": 0}, {"limit": 501}):
        answer = await house.viewer.get("/memory", params=query)
        assert answer.status_code == 422
    problem(await house.viewer.get("/memory", params={"q": "a\x01"}), 422, "bad_query")
    problem(await house.viewer.get("/memory/nobody"), 404, "unknown_memory")


async def test_an_operator_corrects_and_the_record_says_who(house: House):
    (name,) = await taught(house, "VPN drops")
    house.clock.advance(60)
    body = {"resolution": "Restart it."}
    problem(await house.viewer.patch(f"/memory/{name}", json=body), 403, "forbidden")
    kept = told(await house.operator.patch(f"/memory/{name}", json=body))
    assert (kept["resolution"], kept["corrected_by"]) == ("Restart it.", OPERATOR)
    assert kept["corrected_at"] > kept["created_at"]
    (event,) = await on_record(house)
    assert (event["type"], event["actor"], event["was"]) == ("memory_corrected", OPERATOR, MTU)
    assert event["stream"] == "memory:resolutions"
    checked = told(await house.viewer.get("/audit/verify"))
    assert checked["ok"]


async def test_nobody_corrects_as_somebody_else_or_to_nothing(house: House):
    (name,) = await taught(house, "VPN drops")
    forged: dict[str, Any] = {"resolution": "x", "by": CEO}
    problem(await house.operator.patch(f"/memory/{name}", json=forged), 403, "forged_author")
    for text in ("", "a\x00b", "x" * (RESOLUTION_CHARS_MAX + 1), 7):
        answer = await house.operator.patch(f"/memory/{name}", json={"resolution": text})
        problem(answer, 422, "bad_body")
    problem(await house.operator.patch(f"/memory/{name}", json={"resolution": " "}), 422, "no_text")
    problem(await house.operator.patch("/memory/nobody", json={"resolution": "x"}), 404,
            "unknown_memory")  # fmt: skip
    assert await on_record(house) == []


async def test_an_operator_removes_and_it_is_gone(house: House):
    name, other = await taught(house, "VPN drops", "VPN is slow")
    problem(await house.viewer.delete(f"/memory/{name}"), 403, "forbidden")
    assert (await house.operator.delete(f"/memory/{name}")).status_code == 204
    problem(await house.operator.delete(f"/memory/{name}"), 404, "unknown_memory")
    assert [one["id"] for one in await pages(house.viewer, "/memory")] == [other]
    (event,) = await on_record(house)
    assert (event["type"], event["actor"], event["memory_id"]) == ("memory_removed", OPERATOR, name)


async def test_a_ticket_that_is_opened_again_withdraws_what_it_taught(house: House):
    (name,) = await taught(house, "VPN drops")
    memory = told(await house.viewer.get(f"/memory/{name}"))
    again = await house.operator.post(f"/beads/{memory['bead_id']}/executions", json={})
    told(again, 201)
    assert told(await house.viewer.get(f"/memory/{name}"))["status"] == "reopened"
    answer = await house.operator.patch(f"/memory/{name}", json={"resolution": "x"})
    problem(answer, 409, "memory_withdrawn")


async def test_no_agent_gets_at_the_memory_over_http(house: House):
    (name,) = await taught(house, "VPN drops")
    for token in (house.agent, house.reporter):
        for answer in (
            await token.get("/memory"),
            await token.get(f"/memory/{name}"),
            await token.patch(f"/memory/{name}", json={"resolution": "x"}),
            await token.delete(f"/memory/{name}"),
        ):
            problem(answer, 403, "forbidden")


async def on_record(house: House) -> list[dict[str, Any]]:
    """What people did to the memory."""
    trail = await pages(house.viewer, "/audit", people="true")
    return [event for event in trail if event["type"].startswith("memory_")]
