"""Teams over HTTP whose agents measure nothing that Handrail could see: what they claim counts."""

from typing import Any

import pytest
from tests.engine.engines import team
from tests.server.harness import ServerHarness, expect_json
from tests.server.http_agents import register_agent

RULES = {"max_handoffs": 200, "max_steps": None}


async def play(harness: ServerHarness, claims: list[dict[str, Any]], **rules: Any) -> Any:
    """The coder claims this, round by round, and the tester hands back; gives the run."""
    hands = {"coder": ["tester"], "tester": ["coder"]}
    stop_rules = {**RULES, **rules}
    await harness.define(team(hands, terminator="tester", id="better", stop_rules=stop_rules))
    coder = await register_agent(harness, "coder-1", "coder")
    tester = await register_agent(harness, "tester-1", "tester")
    path = f"/executions/{(await harness.file('better'))['execution_id']}"
    for evidence in claims:
        said = await coder.work("handoff", to="tester", reason="better", evidence=evidence)
        if said["execution"]["terminal_status"] is None:
            said = await tester.work("handoff", to="coder", reason="go on")
        if said["execution"]["terminal_status"] is not None:
            break
    return expect_json(await harness.viewer.get(path))


@pytest.mark.requirement("S16")
async def test_a_team_that_gets_better_every_round_is_not_stopped(harness: ServerHarness):
    rounds = [
        {"failures": [f"test {i}" for i in range(n)], "files": {"app.py": f"{n}"}}
        for n in range(12, -1, -1)
    ]
    run = await play(harness, rounds)
    assert (run["terminal_status"], run["stop"]) == (None, None)
    assert {one["code"] for one in run["warnings"]} <= {"same_target_twice"}


@pytest.mark.requirement("S16")
async def test_a_poll_with_a_new_state_each_time_goes_on_eight_times(harness: ServerHarness):
    run = await play(harness, [{"ticket_state": f"{n} %"} for n in range(40)])
    assert run["stop"]["rule"] == "repeated_pattern"
    assert run["last_progress_step"] == 15, "the eighth round of two steps"
    assert [one["code"] for one in run["warnings"]].count("claim_not_counted") == 1


@pytest.mark.requirement("S16")
@pytest.mark.parametrize(
    ("claims", "progress_max"),
    [
        ([{"files": {f"notes-{n}.md": "x"}} for n in range(100)], 1),
        ([{"failures": [f"{i}" for i in range(n)]} for n in range(200, 100, -1)], 20),
        (
            [
                {"checks": [{"command": f"check {n // 2}", "exit_code": 1 - n % 2, "stderr": "x"}]}
                for n in range(100)
            ],
            20,
        ),
    ],
    ids=["scratch files", "failures counted down", "invented commands"],
)
async def test_what_agents_invent_ends_the_run_all_the_same(
    harness: ServerHarness, claims: list[dict[str, Any]], progress_max: int
):
    run = await play(harness, claims)
    assert run["terminal_status"] == "aborted_stuck"
    assert run["stop"]["rule"] in ("repeated_pattern", "same_error")
    events = expect_json(
        await harness.viewer.get(f"/beads/{run['bead_id']}/history", params={"limit": 500})
    )["items"]
    progress = [event for event in events if event.get("weighed", {}).get("progress")]
    assert 0 < len(progress) <= progress_max


@pytest.mark.requirement("S16")
async def test_where_only_measured_evidence_counts_nothing_of_it_does(harness: ServerHarness):
    run = await play(harness, [{"ticket_state": f"{n} %"} for n in range(40)], evidence="measured")
    assert (run["stop"]["rule"], run["last_progress_step"]) == ("repeated_pattern", 0)
    assert "measured" in run["warnings"][0]["message"]
