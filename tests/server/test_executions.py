"""Runs as the API shows them: listed, in full, step by step, and why they stand where they do."""

from datetime import timedelta

import pytest
from tests.engine.engines import chain, edge, node, team, workflow
from tests.server.harness import (
    ASKS,
    PLAIN,
    WORKER,
    ServerHarness,
    expect_json,
    expect_problem,
    list_all,
)

from handrail.kernel.result import Evidence, Outcome, Result, Usage
from handrail.views.run_view import RUN_IDS_MAX

CONTRACT = {
    *("id", "bead_id", "workflow_id", "workflow_version", "current_node_id", "current_node_ids"),
    *("status", "phase", "phase_detail", "terminal_status", "stop", "final_agent", "attempts"),
    *("loop_counters", "handoff_sequence", "warnings", "iterations", "usage"),
    *("last_progress_step", "total_steps", "remaining", "created_at", "updated_at", "ended_at"),
    "duration",
}
PARTS = ("", "/whole", "/transitions", "/steps", "/report", "/why")


@pytest.mark.requirement("S1", "S5", "H7.5")
async def test_a_run_shows_every_field_of_the_contract(harness: ServerHarness):
    await harness.define(PLAIN)
    bead = await harness.file("plain")
    run = expect_json(await harness.viewer.get(f"/executions/{bead['execution_id']}"))
    assert set(run) >= CONTRACT
    assert (run["status"], run["terminal_status"], run["stop"]) == ("running", None, None)
    assert (run["current_node_id"], run["current_node_ids"]) == ("fix", ["fix"])
    assert run["remaining"] > 0
    harness.works()
    await harness.quiet()
    run = expect_json(await harness.viewer.get(f"/executions/{bead['execution_id']}"))
    assert (run["status"], run["terminal_status"]) == ("ended", "done_success")
    assert (run["current_node_id"], run["remaining"]) == (None, 0)
    assert run["stop"]["rule"] == "completed"
    assert run["ended_at"] is not None


async def test_an_unknown_run_is_not_found_by_any_call(harness: ServerHarness):
    for part in PARTS:
        expect_problem(await harness.viewer.get(f"/executions/none{part}"), 404, "unknown_run")
    body = {"action": "close", "reason": "why not"}
    expect_problem(
        await harness.ceo.post("/executions/none/override", json=body), 404, "unknown_run"
    )
    answer = await harness.viewer.get("/executions/none", params={"wait": 5})
    expect_problem(answer, 404, "unknown_run")


async def test_only_people_look_at_runs(harness: ServerHarness):
    await harness.define(PLAIN)
    run_id = (await harness.file("plain"))["execution_id"]
    for path in ("/executions", *(f"/executions/{run_id}{part}" for part in PARTS)):
        expect_json(await harness.viewer.get(path))
        expect_problem(await harness.agent.get(path), 403, "forbidden")
        expect_problem(await harness.reporter.get(path), 403, "forbidden")
        expect_problem(await harness.nobody.get(path), 401, "no_token")


async def test_the_whole_run_is_what_its_parts_say(harness: ServerHarness):
    bead_id = (await harness.asked())["original_bead_id"]
    bead = expect_json(await harness.viewer.get(f"/beads/{bead_id}"))
    run_id = bead["execution_id"]
    parts = {
        one: expect_json(await harness.viewer.get(f"/executions/{run_id}{path}"))
        for one, path in {"run": "", "report": "/report", "why": "/why", "steps": "/steps"}.items()
    }
    whole = expect_json(await harness.viewer.get(f"/executions/{run_id}/whole"))
    parts["report"] |= {"steps": []}
    assert whole == {**parts, "steps": parts["steps"]["items"], "bead": bead}
    went = expect_json(await harness.viewer.get(f"/executions/{run_id}/transitions"))
    ways = [(one["from_node_id"], one["to_node_id"]) for one in whole["report"]["transitions"]]
    assert ways == [(one["from_node_id"], one["to_node_id"]) for one in went]


# Lists


async def test_what_a_list_shows_of_its_runs_is_asked_in_one_go(harness: ServerHarness):
    await harness.define(PLAIN)
    done = (await harness.file("plain"))["execution_id"]
    harness.works(Result(outcome=Outcome.SUCCESS, usage=Usage(tokens=10, cost=0.5)))
    await harness.quiet()
    harness.works(Result(outcome=Outcome.FAILURE, text="no"))
    await harness.define(ASKS)
    going = (await harness.file("asks"))["execution_id"]
    asked = f"/executions/summaries?ids={done},none,{going}"
    found = {one["id"]: one for one in expect_json(await harness.viewer.get(asked))["items"]}
    assert set(found) == {done, going}, "one that nobody knows is left out"
    for run_id, summary in found.items():
        view = expect_json(await harness.viewer.get(f"/executions/{run_id}"))
        assert summary == {name: view[name] for name in summary}
    assert (found[done]["usage"]["cost"], found[done]["total_steps"]) == (0.5, 1)
    assert found[going]["remaining"] > 0
    assert expect_json(await harness.viewer.get("/executions/summaries?ids="))["items"] == []
    many = ",".join(["none"] * (RUN_IDS_MAX + 1))
    expect_problem(await harness.viewer.get(f"/executions/summaries?ids={many}"), 422, "bad_limit")


async def test_runs_are_listed_the_newest_first_and_filtered(harness: ServerHarness):
    await harness.define(PLAIN, ASKS)
    done = await harness.file("plain", title="Invoice 4711 fails")
    harness.works()
    await harness.quiet()
    harness.clock.advance(hours=1)
    waits = await harness.file("asks", title="a red button")
    await harness.quiet()
    closed = await harness.file("asks", title="an INVOICE again")
    body = {"action": "close", "reason": "filed twice"}
    await harness.quiet()
    expect_json(await harness.ceo.post(f"/executions/{closed['execution_id']}/override", json=body))

    async def ids(**query: str) -> list[str]:
        return [run["bead_id"] for run in await list_all(harness.viewer, "/executions", **query)]

    assert await ids() == [closed["id"], waits["id"], done["id"]]
    assert await ids(status="waiting") == [waits["id"]]
    assert await ids(status="ended") == [closed["id"], done["id"]]
    assert await ids(terminal_status="closed_by_human") == [closed["id"]]
    assert await ids(workflow_id="plain") == [done["id"]]
    assert await ids(workflow_id="none") == []
    assert await ids(q="invoice") == [closed["id"], done["id"]]
    assert await ids(q=waits["execution_id"]) == [waits["id"]]
    assert await ids(q=done["id"]) == [done["id"]]
    assert await ids(q="100%_\\") == []
    assert await ids(status="ended", q="invoice", workflow_id="asks") == [closed["id"]]
    half_past = harness.clock.now() - timedelta(minutes=30)
    assert await ids(since=half_past.isoformat()) == [closed["id"], waits["id"]]
    assert await ids(ended_since=half_past.isoformat()) == [closed["id"]]
    assert await ids(ended_before=half_past.isoformat()) == [done["id"]]
    assert await ids(since=half_past.replace(tzinfo=None).isoformat()) == [
        *(closed["id"], waits["id"])
    ]


async def test_a_filter_that_makes_no_sense_is_named(harness: ServerHarness):
    for query in (
        {"status": "lost"},
        {"terminal_status": "well"},
        {"since": "yesterday"},
        {"ended_since": "yesterday"},
        {"since": "9999-12-31T23:59:59-10:00"},
        {"since": "253402300800"},
        {"q": "x" * 201},
    ):
        answer = await harness.viewer.get("/executions", params=query)
        found = expect_problem(answer, 422, "bad_parameter")
        assert [one["path"] for one in found["errors"]] == list(query)


async def test_paging_meets_every_run_once_while_new_ones_begin(harness: ServerHarness):
    await harness.define(PLAIN)
    begun = [(await harness.file("plain"))["execution_id"] for _ in range(9)]
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        query = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = expect_json(await harness.viewer.get("/executions", params=query))
        seen += [run["id"] for run in page["items"]]
        cursor = page["next_cursor"]
        await harness.file("plain")
    assert [run_id for run_id in seen if run_id in begun] == begun[::-1]
    assert len(seen) == len(set(seen))


# What happened


@pytest.mark.requirement("L4.3", "L10.3")
async def test_transitions_say_where_the_run_went_when_and_who_sent_it(harness: ServerHarness):
    asked = await harness.asked()
    expect_json(await harness.ceo.post(f"/approvals/{asked['id']}/answer", json={"text": "ok"}))
    path = f"/executions/{asked['execution_id']}/transitions"
    found = expect_json(await harness.viewer.get(path))
    assert [(one["from_node_id"], one["to_node_id"]) for one in found] == [
        *(("", "start"), ("start", "fix"), ("fix", "look"), ("look", "end"))
    ]
    assert found[-1]["actor"] == "ana"
    assert all({"id", "outcome", "reason", "timestamp"} <= set(one) for one in found)
    assert len({one["id"] for one in found}) == len(found)


async def test_steps_carry_each_result_in_full(harness: ServerHarness):
    await harness.define(PLAIN)
    said = Result(
        outcome=Outcome.SUCCESS,
        text="fixed",
        data={"patch": [1, 2]},
        evidence=Evidence(files={"a.py": "0" * 64}),
        usage=Usage(tokens=7, cost=0.5),
    )
    harness.works(said)
    bead = await harness.file("plain")
    await harness.quiet()
    (step,) = expect_json(await harness.viewer.get(f"/executions/{bead['execution_id']}/steps"))[
        "items"
    ]
    assert (step["place"], step["role"], step["attempt"]) == ("fix", WORKER, 1)
    assert (step["outcome"], step["text"]) == ("success", "fixed")
    assert step["result"]["data"] == {"patch": [1, 2]}
    assert step["result"]["usage"] == {"tokens": 7, "cost": 0.5}
    assert step["dispatch_id"].startswith(bead["execution_id"])


@pytest.mark.requirement("S11")
async def test_the_report_comes_as_json_or_as_markdown(harness: ServerHarness):
    asked = await harness.asked(title="A *bold* bug")
    expect_json(
        await harness.ceo.post(f"/approvals/{asked['id']}/answer", json={"decision": "reject"})
    )
    path = f"/executions/{asked['execution_id']}/report"
    for accept in ("*/*", "application/json", "text/html", "text/html, */*;q=0.1", "nonsense"):
        answer = await harness.viewer.get(path, headers={"Accept": accept})
        report = expect_json(answer)
        assert answer.headers["content-type"] == "application/json"
        assert report["terminal_status"] == "closed_by_human"
        assert report["why"]
    for accept in ("text/markdown", "text/markdown, application/json;q=0.5", "text/markdown; a=b"):
        answer = await harness.viewer.get(path, headers={"Accept": accept})
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
        assert answer.text.startswith("#")
        assert "closed_by_human" in answer.text


async def test_why_says_what_a_run_waits_for_and_later_why_it_stopped(harness: ServerHarness):
    await harness.define(ASKS)
    path = f"/executions/{(await harness.file('asks'))['execution_id']}/why"
    found = expect_json(await harness.viewer.get(path))
    assert (found["status"], found["stop"]) == ("running", None)
    (place,) = found["waiting"]
    assert (place["place"], place["code"]) == ("fix", "no_agent")
    assert place["message"]
    assert place["hint"]
    harness.works()
    await harness.quiet()
    found = expect_json(await harness.viewer.get(path))
    assert found["status"] == "waiting"
    assert [(one["place"], one["code"]) for one in found["waiting"]] == [("look", "asked")]
    body = {"action": "close", "reason": "not needed"}
    expect_json(await harness.ceo.post(path.replace("why", "override"), json=body))
    found = expect_json(await harness.viewer.get(path))
    assert (found["waiting"], found["terminal_status"]) == ([], "closed_by_human")
    assert (found["stop"]["rule"], found["stop"]["reason"]) == ("closed", "not needed")
    assert "not needed" in found["why"]


@pytest.mark.requirement("H3.1", "H7.5", "S1")
async def test_a_stopped_run_names_rule_limit_pattern_and_evidence(harness: ServerHarness):
    await harness.define(team({"a": ["b"], "b": ["a"]}, terminator="a", id="circle"))
    for one, other in (("a", "b"), ("b", "a")):
        harness.works(Result(outcome=Outcome.HANDOFF, to=other, reason="your turn"), one)
    bead = await harness.file("circle")
    await harness.quiet()
    run = expect_json(await harness.viewer.get(f"/executions/{bead['execution_id']}"))
    assert (run["terminal_status"], run["stop"]["rule"]) == ("aborted_stuck", "repeated_pattern")
    assert run["stop"]["pattern"]
    assert run["stop"]["evidence"]
    first = run["handoff_sequence"][0]
    assert (first["from"], first["to"], first["reason"]) == ("a", "b", "your turn")
    assert run["loop_counters"]["a_to_b"]["limit"] == 8


async def test_a_run_in_two_branches_shows_both_open_nodes(harness: ServerHarness):
    both = workflow(
        node("start", "start"),
        node("fork", "decision", parallel=True),
        node("left"),
        node("right"),
        node("join", "merge"),
        node("end", "end"),
        edges=[
            edge("start", "fork"),
            edge("fork", "left", "true"),
            edge("fork", "right"),
            edge("left", "join"),
            edge("right", "join"),
            edge("join", "end"),
        ],
        id="both",
    )
    await harness.define(both)
    bead = await harness.file("both")
    run = expect_json(await harness.viewer.get(f"/executions/{bead['execution_id']}"))
    assert sorted(run["current_node_ids"]) == ["left", "right"]
    assert run["current_node_id"] == run["current_node_ids"][0]


async def test_a_run_keeps_its_version_when_its_definition_changes(harness: ServerHarness):
    await harness.define(PLAIN)
    bead = await harness.file("plain")
    await harness.define(chain(node("fix"), node("more"), id="plain"))
    run = expect_json(await harness.viewer.get(f"/executions/{bead['execution_id']}"))
    assert run["workflow_version"] == 1
    again = await harness.file("plain")
    run = expect_json(await harness.viewer.get(f"/executions/{again['execution_id']}"))
    assert run["workflow_version"] == 2
