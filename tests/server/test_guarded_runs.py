"""Guarded runs on a server: what they may say, what is logged and counted of them, two servers."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.client.live_server import Server
from tests.server.captured_log import capture_log
from tests.server.harness import CEO, OPERATOR, PLAIN, ServerHarness, expect_json, expect_problem
from tests.server.test_prometheus import scraped

from handrail import Guard
from handrail.api.runs import GuardedRunCalls
from handrail.client.clients import Client
from handrail.client.errors import ConflictError
from handrail.kernel.definition.limits import STRICT
from handrail.kernel.input_checks import RESULT_BYTES_MIN
from handrail.kernel.run.events import HandedOff
from handrail.kernel.run.guarded import AGENTS_MAX, NAME_CHARS_MAX

pytest_plugins = ["tests.fixtures_postgres"]

AT = "2026-01-01T12:00:00Z"
END = {"type": "ended", "at": AT, "status": "done_success"}
END |= {"stop": {"rule": "completed", "reason": "done"}}


def handoff(source: str = "a", target: str = "b", **more: Any) -> dict[str, Any]:
    named = {"source": source, "target": target, "reason": ""}
    return {"type": "handed_off", "at": AT, **named, **more}


def result(agent: str = "a", **more: Any) -> dict[str, Any]:
    said = {"place": agent, "fence": 1, "agent": agent, "result": {"text": "t"}}
    return {"type": "reported", "at": AT, **said, **more}


async def begun(harness: ServerHarness, **wanted: Any) -> str:
    body = {"team": "crew", "limits": {}, "agent": "a", **wanted}
    return expect_json(await harness.operator.post("/guarded-runs", json=body), 201)["id"]


async def tell(harness: ServerHarness, run_id: str, *events: dict[str, Any]) -> Any:
    body = {"events": events, "at": AT}
    return await harness.operator.post(f"/guarded-runs/{run_id}/events", json=body)


async def test_a_guarded_run_is_logged_and_counted_as_others_are(harness: ServerHarness):
    with capture_log() as log:
        run_id = await begun(harness)
        stop = {"rule": "repeated_pattern", "reason": "again", "pattern": ["a -> b", "b -> a"]}
        end = {**END, "status": "aborted_stuck", "stop": stop}
        expect_json(await tell(harness, run_id, handoff(), end))
        silent = await begun(harness)
        harness.clock.advance(minutes=6)
        await harness.quiet()
    started = log.told("started", "execution_id", "workflow_id", "first_agent", "actor")
    assert started == [(one, "crew", "a", OPERATOR) for one in (run_id, silent)]
    assert log.told("handed_off", "source", "target") == [("a", "b")]
    assert log.told("ended", "execution_id", "rule") == [
        (run_id, "repeated_pattern"),
        (silent, "agent_lost"),
    ]
    assert log.told("loop_detected", "pattern") == [(["a -> b", "b -> a"],)]
    assert log.of("state_transition") == []  # its agents are not the server's
    found, stuck = await scraped(harness), "aborted_stuck"
    assert found("handrail_runs_started_total") == 2
    for rule in ("repeated_pattern", "agent_lost"):
        assert found("handrail_runs_ended_total", terminal_status=stuck, rule=rule) == 1


async def test_a_guard_speaks_neither_for_people_nor_for_the_server(harness: ServerHarness):
    run_id = await begun(harness)
    expect_problem(await tell(harness, run_id, {**END, "by": CEO}), 403, "forged_author")
    expect_problem(await tell(harness, run_id, {**END, "by": OPERATOR}), 403, "not_allowed")
    assert await harness.notes(run_id) == [(OPERATOR, "forged_author")]
    stops = [
        ("closed_by_human", "closed"),
        ("aborted_stuck", "human_deadline"),
        ("done_success", "terminated"),
        ("done_success", "same_error"),
        ("closed_by_human", "completed"),
    ]
    for status, rule in stops:
        stop = {"rule": rule, "reason": "r"}
        answer = await tell(harness, run_id, {**END, "status": status, "stop": stop})
        expect_problem(answer, 422, "unusable")
    run = expect_json(await harness.viewer.get(f"/executions/{run_id}"))
    assert run["status"] == "running"


async def test_only_what_a_guard_says_is_taken_over(harness: ServerHarness):
    run_id = await begun(harness)
    result_of = {"text": "t", "data": {"goal": "x"}, "outcome": "terminate", "question": "q?"}
    odd = result(result=result_of, done="a/t", committed=True, asking=True, fence=2**60)
    expect_json(
        await tell(harness, run_id, odd, handoff(number=2**60, task="t", already_done=True))
    )
    bead = expect_json(await harness.viewer.get(f"/executions/{run_id}"))["bead_id"]
    assert "goal" not in expect_json(await harness.viewer.get(f"/beads/{bead}"))["context"]
    history = await harness.engine.runs.history(run_id)
    (handed,) = [event for event in history if isinstance(event, HandedOff)]
    assert (handed.number, handed.task, handed.already_done) == (1, "", False)


TIGHT = {"max_handoffs": 20, "max_steps": 5}
WIDE = {"max_handoffs": 10_000, "max_steps": None}
MANY = [{"command": f"c{n}", "exit_code": 0, "stderr": ""} for n in range(51)]


@pytest.mark.parametrize(
    ("limits", "events"),
    [
        (TIGHT, [handoff(target="b" * (NAME_CHARS_MAX + 1))]),
        (TIGHT, [result(result={"evidence": {"checks": MANY}})]),
        (WIDE, [result(result={"text": "t" * RESULT_BYTES_MIN})]),
        (TIGHT, [handoff(accepted=False), handoff()]),
        (TIGHT, [{**END, "stop": {"rule": "completed", "reason": "r", "seen": 2**60}}]),
        (WIDE, [handoff("a", f"b{n}") for n in range(AGENTS_MAX)]),
        ({"max_handoffs": 2}, [handoff(), handoff("b", "a"), handoff()]),
        (TIGHT, [result() for _ in range(6)]),
    ],
    ids=["name", "checks", "text", "after_refusal", "stop", "agents", "handoffs", "steps"],
)
async def test_what_no_guard_says_is_refused_and_changes_nothing(
    harness: ServerHarness, limits, events
):
    run_id = await begun(harness, limits=limits)
    expect_problem(await tell(harness, run_id, *events), 422, "unusable")
    assert len(await harness.engine.runs.history(run_id)) == 1


async def test_a_team_whose_agents_have_always_new_names_is_seen_anew(harness: ServerHarness):
    for n in range(3):
        run_id = await begun(harness, limits=WIDE)
        some = [handoff("a", f"{n}.{m}") for m in range(AGENTS_MAX // 2 + 1)]
        expect_json(await tell(harness, run_id, *some, END))
    found = expect_json(await harness.viewer.get("/workflows/crew"))
    assert len(found["definition"]["agents"]) == AGENTS_MAX // 2 + 2


async def test_a_guarded_team_takes_nobodys_name(harness: ServerHarness):
    await harness.define({**PLAIN, "id": "plain-1", "name": "Deploy"})
    body = {"team": "Deploy", "limits": {}, "agent": "a"}
    expect_problem(await harness.operator.post("/guarded-runs", json=body), 409, "not_guarded")
    for name in ("a/b", "..", "a\\b"):
        answer = await harness.operator.post("/guarded-runs", json={**body, "team": name})
        assert answer.status_code == 422


async def test_nobody_tells_of_a_run_that_only_says_it_is_guarded(harness: ServerHarness):
    agents = [{"id": "a", "hands_off_to": [], "role": "backend-engineer"}]
    document = {"name": "sham", "kind": "team", "start": "a", "terminator": "a", "agents": agents}
    await harness.define({**document, "id": "sham", "metadata": {"guarded": True}})
    body = {"title": "t", "workflow_id": "sham"}
    expect_problem(await harness.operator.post("/beads", json=body), 409, "guarded")


def test_two_servers_on_one_postgresql_hear_of_one_run_and_take_each_word_once(postgres_url):
    with Server(postgres_url) as here, Server(postgres_url) as there:
        token = here.token("operator", "program")
        with (
            Client(here.url, token) as a,
            Client(there.url, token) as b,
            Client(there.url, here.token("ceo", "ann")) as person,
        ):
            run_id = a.guarded_runs.begin("pair", STRICT, agent="x").id
            at = datetime.now(UTC)
            ways = [HandedOff(at=at, source=s, target=t, reason="") for s, t in ("xy", "yz")]
            for client, way in zip((b, a), ways, strict=True):
                word = GuardedRunCalls.record.call(run_id, [way], at, key=way.target)
                client.execute(word)
                assert {c.execute(word).id for c in (a, b)} == {run_id}
            asked = b.guarded_runs.request_approval(run_id, "may I?", 3600).question
            with pytest.raises(ConflictError, match="waits for a person's answer"):
                a.guarded_runs.record(run_id, ways[:1], at)
            person.approvals.answer(asked, "do")
            assert a.approvals.get(asked).status == "answered"
            a.guarded_runs.record(run_id, [HandedOff(at=at, source="z", target="x", reason="")], at)
            person.runs.override(run_id, "close", "enough")
            for client in (a, b):
                with pytest.raises(ConflictError, match="enough"):
                    client.guarded_runs.record(run_id, [], at)
            steps = [way.to_node_id for way in person.runs.list_transitions(run_id)]
            assert steps == ["x", "y", "z", "x"]
            with Guard(record=there.url, token=token).run("r", team="pair", raises=False) as run:
                for source, target in ("xy", "yx") * 5:
                    run.handoff(source, target)
            assert run.unrecorded == 0
            ended = a.runs.get(run.recorded).stop
            assert ended is not None
            assert ended.rule == "repeated_pattern"
            found = person.runs.replay([run_id, run.recorded], "strict").items
            assert [one.verdict for one in found] == ["same", "same"]
