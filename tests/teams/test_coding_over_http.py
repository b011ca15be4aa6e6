"""Every S requirement, end to end: the built-in coding team on real folders, asked over HTTP."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.teams.coding_server import CodingServer, expect_json, rule

from handrail.engine.dispatch.dispatch import Dispatch
from handrail.kernel.result import Evidence, Outcome, Result, Usage
from handrail.teams.coding import scripted_agents
from handrail.teams.coding.workspaces import load_sample_files
from handrail.teams.scripted import hand_off

SCENES = [
    ("", "done_success", "terminated"),
    ("partial", "done_partial", "terminated"),
    ("research", "aborted_stuck", "research_exhausted"),
    ("same_error", "aborted_stuck", "same_error"),
    ("no_change", "aborted_stuck", "no_change"),
    ("constraint", "aborted_constraint", "constraint"),
]


@pytest.fixture(scope="module")
def coding_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CodingServer]:
    found = CodingServer(tmp_path_factory.mktemp("office"))
    found.open()
    try:
        yield found
    finally:
        found.close()


@pytest.fixture(scope="module")
def scenes(coding_server: CodingServer) -> dict[str, dict[str, Any]]:
    """One run of each scene of the sample."""
    return {name: coding_server.plays(context={"demo": name}) for name, _, _ in SCENES}


def calls(run: dict[str, Any]) -> list[str]:
    """Who was handed the turn, in order."""
    return [one["to"] for one in run["handoff_sequence"] if one["accepted"]]


@pytest.mark.requirement("S1")
@pytest.mark.parametrize(("scene", "status", "by"), SCENES)
def test_s1_every_ending_really_happens_and_is_the_same_everywhere(
    coding_server: CodingServer, scenes: dict[str, Any], scene: str, status: str, by: str
) -> None:
    run = scenes[scene]
    assert (run["terminal_status"], rule(run)) == (status, by)
    report = coding_server.report(run)
    assert (report["terminal_status"], report["stop"]["rule"]) == (status, by)
    bead = coding_server.bead(run)
    assert bead["status"] == ("error" if status.startswith("aborted") else "closed")
    ended = [event for event in coding_server.events(run) if event["type"] == "ended"]
    assert len(ended) == 1


@pytest.mark.requirement("S2")
def test_s2_the_researcher_is_not_asked_again_once_enough_is_known(scenes: dict[str, Any]) -> None:
    assert calls(scenes[""]).count("researcher") == 1
    assert calls(scenes["no_change"]).count("researcher") == 1


@pytest.mark.requirement("S2", "S8")
def test_s2_a_planner_that_asks_it_all_the_same_is_overruled(coding_server: CodingServer) -> None:
    def planner(dispatch: Dispatch) -> Result:
        turn = len(dispatch.history) // 2
        return hand_off("verifier" if turn in (0, 2, 5) else "researcher", "I must know more")

    name = coding_server.hire("asks-again", planner=planner)
    run = coding_server.plays(
        name, title="frobnicate_ledger is wrong", context={"demo": "research"}
    )
    assert (run["terminal_status"], rule(run)) == ("aborted_stuck", "research_exhausted")
    assert "research is exhausted (best 0)" in run["stop"]["reason"]
    assert calls(run).count("researcher") == 4


@pytest.mark.requirement("S3")
def test_s3_the_same_red_command_is_escalated_to_the_snitch_and_ends_the_run(
    coding_server: CodingServer, scenes: dict[str, Any]
) -> None:
    run = scenes["same_error"]
    assert calls(run)[-1] == "snitch"
    assert (run["stop"]["limit"], run["stop"]["seen"]) == (3, 3)
    last = coding_server.report(run)["last_command"]
    assert (last["command"], last["seen"]) == ("python -m unittest", 3)
    assert "No module named 'exchange_rates_service'" in run["stop"]["reason"]


@pytest.mark.requirement("S4")
def test_s4_a_coder_that_changes_nothing_is_not_called_again(
    coding_server: CodingServer, scenes: dict[str, Any]
) -> None:
    run = scenes["no_change"]
    assert calls(run).count("coder") == 2
    assert [step["result"]["evidence"]["files"] for step in coding_server.steps(run, "coder")] == [
        {},
        {},
    ]
    assert calls(run)[-1] == "snitch"


@pytest.mark.requirement("S5")
def test_s5_the_run_holds_counters_with_reasons_progress_and_steps(scenes: dict[str, Any]) -> None:
    run = scenes["no_change"]
    counter = run["loop_counters"]["planner_to_coder"]
    assert (counter["count"], counter["limit"]) == (2, 8)
    assert counter["reasons"] == ["the checks are red (python -m unittest)"] * 2
    assert run["total_steps"] == 10
    assert 0 < run["last_progress_step"] < run["total_steps"]


@pytest.mark.requirement("S6")
def test_s6_files_checks_scores_failures_and_the_ticket_are_progress(
    coding_server: CodingServer, scenes: dict[str, Any]
) -> None:
    found = [what.partition(":")[0] for what in coding_server.progress(scenes[""])]
    assert found == ["score", "files", "green", "failures", "claim"]
    stuck = [what.partition(":")[0] for what in coding_server.progress(scenes["no_change"])]
    assert stuck == ["score"]


@pytest.mark.requirement("S7")
def test_s7_steps_and_uses_of_an_edge_are_limited_and_the_loop_is_named(
    coding_server: CodingServer,
) -> None:
    few = coding_server.hire("few-steps", rules={"max_steps": 5})
    run = coding_server.plays(few, context={"demo": ""})
    assert (rule(run), run["total_steps"]) == ("max_steps", 5)

    def planner(dispatch: Dispatch) -> Result:
        return hand_off("researcher", "what else?")

    def researcher(dispatch: Dispatch) -> Result:
        return hand_off("planner", "nothing")

    rules = {"max_edge": 2, "repeat_limit": None}
    narrow = coding_server.hire("narrow", rules=rules, planner=planner, researcher=researcher)
    run = coding_server.plays(narrow, context={"demo": "research"})
    assert (run["terminal_status"], rule(run)) == ("aborted_stuck", "max_edge")
    assert run["stop"]["reason"].startswith("planner_researcher_loop: ")
    assert coding_server.report(run)["limits"]["max_steps"] == 100


@pytest.mark.requirement("S8")
def test_s8_what_the_planner_may_not_is_refused_and_said(coding_server: CodingServer) -> None:
    honest = scripted_agents(coding_server.workspaces)["planner"]

    def planner(dispatch: Dispatch) -> Result:
        if dispatch.step == 1:
            return Result(outcome=Outcome.TERMINATE, reason="I say it is done")
        if dispatch.step == 2:
            assert "only 'ticket_closer' may" in dispatch.last_refusal
            return hand_off("the-internet", "look it up")
        return honest(dispatch)

    run = coding_server.plays(coding_server.hire("bold", planner=planner), context={"demo": ""})
    assert run["terminal_status"] == "done_success"
    assert [one["code"] for one in run["warnings"]][:2] == ["terminate_refused", "bad_target"]
    refused = [one for one in run["handoff_sequence"] if not one["accepted"]]
    assert [one["to"] for one in refused] == ["the-internet"]


@pytest.mark.requirement("S8")
def test_s8_a_planner_that_never_listens_is_sent_on_and_ends_stuck(
    coding_server: CodingServer,
) -> None:
    def planner(dispatch: Dispatch) -> Result:
        return hand_off("researcher", "I must know more")

    coder_saw: list[str] = []

    def coder(dispatch: Dispatch) -> Result:
        coder_saw.append(dispatch.redirected.proposed if dispatch.redirected else "")
        return hand_off("planner", "nothing to change")

    name = coding_server.hire("deaf", planner=planner, coder=coder)
    run = coding_server.plays(name, context={"demo": "no_change"})
    assert (run["terminal_status"], coder_saw) == ("aborted_stuck", ["researcher"])
    (redirect,) = run["redirects"]
    assert (redirect["from"], redirect["proposed"], redirect["to"]) == (
        "planner",
        "researcher",
        "coder",
    )
    assert "redirected" in [one["code"] for one in run["warnings"]]


@pytest.mark.requirement("S9")
def test_s9_the_same_failure_in_another_folder_has_the_same_signature(
    coding_server: CodingServer,
) -> None:
    found: list[str] = []
    for name in ("first", "second"):
        folder = coding_server.project(name, "not-written-yet")
        run = coding_server.plays(context={"folder": folder})
        found.append(coding_server.report(run)["last_command"]["signature"])
    assert found[0] == found[1]
    assert found[0].startswith("python -m unittest | AssertionError: 'ADA LOVELACE' != 'A. L.' | #")


@pytest.mark.requirement("S10")
def test_s10_a_coders_turn_is_known_by_the_digests_of_what_it_wrote(
    coding_server: CodingServer, scenes: dict[str, Any]
) -> None:
    (step,) = coding_server.steps(scenes[""], "coder")
    evidence = step["result"]["evidence"]
    assert list(evidence["files"]) == ["shop/totals.py"]
    assert evidence["measured"] is True
    assert scenes["no_change"]["stop"]["evidence"] == ["step 6", "step 8", "step 10"]


@pytest.mark.requirement("S11")
@pytest.mark.parametrize("scene", ["", "no_change"])
def test_s11_the_report_lies_in_the_runs_folder_as_the_api_gives_it(
    coding_server: CodingServer, scenes: dict[str, Any], scene: str
) -> None:
    run = scenes[scene]
    written = json.loads((coding_server.runs / f"{run['id']}.json").read_text(encoding="utf-8"))
    assert written == coding_server.report(run)
    assert {"terminal_status", "loop_counters", "stop", "why", "profile"} <= set(written)
    shown = coding_server.viewer.get(
        f"/executions/{run['id']}/report", headers={"Accept": "text/markdown"}
    )
    assert (coding_server.runs / f"{run['id']}.md").read_text(encoding="utf-8") == shown.text


@pytest.mark.requirement("S12", "S14")
@pytest.mark.parametrize("scene", ["no_change", "constraint"])
def test_s12_the_issues_file_has_the_loop_the_reason_and_the_command(
    coding_server: CodingServer, scenes: dict[str, Any], scene: str
) -> None:
    run = scenes[scene]
    text = coding_server.issues.read_text(encoding="utf-8")
    heading = f"## {run['terminal_status']}: {rule(run)} in run {run['id']}\n"
    assert text.count(heading) == 1
    entry = text.split(heading)[1].split("\n## ")[0]
    assert "- loop: " in entry
    assert "planner → " in entry
    assert "- last command: python -m unittest (exit code 1" in entry


@pytest.mark.requirement("S12")
def test_s12_a_run_that_ended_well_is_no_issue(
    coding_server: CodingServer, scenes: dict[str, Any]
) -> None:
    text = coding_server.issues.read_text(encoding="utf-8")
    assert scenes[""]["id"] not in text
    assert scenes["partial"]["id"] not in text


@pytest.mark.requirement("S13")
def test_s13_strict_tries_more_than_yolo_on_the_same_stuck_task(
    coding_server: CodingServer, scenes: dict[str, Any]
) -> None:
    strict = scenes["no_change"]
    yolo = coding_server.plays(
        coding_server.hire("yolo", rules={"profile": "yolo"}), context={"demo": "no_change"}
    )
    assert (rule(yolo), coding_server.report(yolo)["profile"]) == ("no_change", "yolo")
    assert (calls(strict).count("coder"), calls(yolo).count("coder")) == (2, 1)
    assert yolo["total_steps"] < strict["total_steps"]


@pytest.mark.requirement("S13")
def test_s13_a_goal_that_is_met_with_something_left_is_partial(
    coding_server: CodingServer, scenes: dict[str, Any]
) -> None:
    assert scenes["partial"]["stop"]["remaining"] == ["tests.test_words.Words.test_initials fails"]

    def planner(dispatch: Dispatch) -> Result:
        return hand_off("verifier", "once more")

    name = coding_server.hire("stubborn", rules={"repeat_limit": None}, planner=planner)
    folder = coding_server.project("met", "not-written-yet")
    context = {"folder": folder, "goal": {"command": "python -m unittest tests.test_totals"}}
    context["checks"] = ["python -m unittest tests.test_words"]
    run = coding_server.plays(name, context=context)
    assert (run["terminal_status"], rule(run)) == ("done_partial", "same_error")


@pytest.mark.requirement("S13")
@pytest.mark.parametrize(("scope", "steps"), [("tiny", 50), ("small", 100), ("large", 200)])
def test_s13_the_scope_of_the_task_halves_keeps_or_doubles_the_steps(
    coding_server: CodingServer, scope: str, steps: int
) -> None:
    run = coding_server.plays(context={"demo": "same_error", "task_scope": scope})
    assert coding_server.report(run)["limits"]["max_steps"] == steps


@pytest.mark.requirement("S14")
def test_s14_a_repair_in_a_forbidden_folder_is_not_written(
    coding_server: CodingServer, scenes: dict[str, Any]
) -> None:
    folder = coding_server.project("vendored", "fault-in-vendor")
    before = Path(folder, "vendor", "rates.py").read_bytes()
    run = coding_server.plays(context={"folder": folder})
    assert (run["terminal_status"], rule(run)) == ("aborted_constraint", "constraint")
    assert Path(folder, "vendor", "rates.py").read_bytes() == before
    (step,) = coding_server.steps(run, "coder")
    assert step["result"]["evidence"]["files"] == {"vendor/rates.py": "refused: not written"}
    assert "vendor" in scenes["constraint"]["stop"]["reason"]


@pytest.mark.requirement("S14")
def test_s14_a_forbidden_command_is_not_run(coding_server: CodingServer) -> None:
    folder = coding_server.project("pushes")
    run = coding_server.plays(context={"folder": folder, "checks": ["git push --force"]})
    assert (run["terminal_status"], rule(run)) == ("aborted_constraint", "constraint")
    (check,) = coding_server.steps(run, "verifier")[0]["result"]["evidence"]["checks"]
    assert (check["command"], check["exit_code"]) == ("git push --force", 126)


@pytest.mark.requirement("S14")
@pytest.mark.parametrize(
    "command",
    [
        "sh -c 'echo >> vendor/rates.py'",
        "sh -c 'rm vendor/rates.py'",
        "sh -c 'mkdir -p .git/hooks; touch .git/hooks/pre-commit'",
    ],
)
def test_s14_a_command_that_touched_what_must_not_be_is_found_out(
    coding_server: CodingServer, command: str
) -> None:
    folder = coding_server.project(f"touched{len(command)}")
    run = coding_server.plays(context={"folder": folder, "checks": [command]})
    assert (run["terminal_status"], rule(run)) == ("aborted_constraint", "constraint")
    assert run["stop"]["reason"].startswith("verifier touched '")


@pytest.mark.requirement("S14")
def test_s14_a_spent_budget_ends_the_run(coding_server: CodingServer) -> None:
    def planner(dispatch: Dispatch) -> Result:
        return hand_off("verifier", "think hard", usage=Usage(tokens=600))

    name = coding_server.hire("spends", rules={"max_tokens": 1_000}, planner=planner)
    run = coding_server.plays(name, context={"demo": "no_change"})
    assert (run["terminal_status"], rule(run)) == ("aborted_constraint", "budget")
    assert run["usage"]["tokens"] == 1_200


@pytest.mark.requirement("S15")
def test_s15_planner_and_researcher_that_bounce_are_stopped(
    coding_server: CodingServer, scenes: dict[str, Any]
) -> None:
    run = scenes["research"]
    assert rule(run) == "research_exhausted"
    assert run["total_steps"] <= 14
    assert [one["rule"] for one in run["redirects"]] == ["repeated_pattern"]


@pytest.mark.requirement("S15")
def test_s15_the_same_red_command_again_and_again_is_stopped(coding_server: CodingServer) -> None:
    def planner(dispatch: Dispatch) -> Result:
        return hand_off("verifier", "perhaps it is green by now")

    name = coding_server.hire("hopes", planner=planner)
    run = coding_server.plays(name, context={"demo": "no_change"})
    assert (rule(run), calls(run).count("verifier")) == ("same_error", 3)


@pytest.mark.requirement("S15")
@pytest.mark.parametrize("change", ["nothing", "the same", "a scratch file"])
def test_s15_a_coder_with_empty_same_or_useless_patches_is_stopped(
    coding_server: CodingServer, change: str
) -> None:
    def coder(dispatch: Dispatch) -> Result:
        root = Path(dispatch.bead.context["folder"])
        files: dict[str, str] = {}
        if change != "nothing":
            name = "same.txt" if change == "the same" else f"scratch{dispatch.step}.txt"
            (root / name).write_text("x")
            files = {name: "sha-of-x"}
        return hand_off("verifier", "try this", evidence=Evidence(files=files))

    def planner(dispatch: Dispatch) -> Result:
        return hand_off("coder", "go on")

    name = coding_server.hire(f"idle-{change.replace(' ', '-')}", planner=planner, coder=coder)
    folder = coding_server.project(name, "not-written-yet")
    run = coding_server.plays(name, context={"folder": folder})
    assert run["terminal_status"] == "aborted_stuck"
    assert rule(run) in ("no_change", "same_error")
    assert calls(run).count("coder") <= 6


@pytest.mark.requirement("S16")
def test_s16_a_run_that_gets_on_each_round_is_not_stopped_early(
    coding_server: CodingServer,
) -> None:
    bugs = ("misspelt-name", "missing-import", "missing-empty-check", "misspelt-attribute")
    folder = coding_server.project("four-bugs", *bugs)
    name = coding_server.hire("impatient", rules={"profile": "yolo"})
    run = coding_server.plays(name, context={"folder": folder})
    assert (run["terminal_status"], rule(run)) == ("done_success", "terminated")
    assert calls(run).count("coder") == len(bugs)
    for path in ("shop/totals.py", "shop/stock.py", "shop/words.py"):
        assert Path(folder, path).read_text() == load_sample_files()[path]


# Where it may work


def test_a_folder_that_is_not_allowed_ends_the_run_with_what_to_do(
    coding_server: CodingServer, tmp_path: Path
) -> None:
    run = coding_server.plays(context={"folder": str(tmp_path)})
    assert run["terminal_status"] == "aborted_stuck"
    assert "lies in no folder that coding runs may work in" in run["stop"]["reason"]
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_the_bead_is_searched_as_a_document(coding_server: CodingServer) -> None:
    bead = expect_json(
        coding_server.operator.post("/beads", json={"title": "frobnicate_ledger is wrong"}), 201
    )
    coding_server.operator.post(
        f"/beads/{bead['id']}/files", params={"name": "notes.txt"}, content=b"see frobnicate_ledger"
    ).raise_for_status()
    body = {"workflow_id": "coding"}
    started = expect_json(
        coding_server.operator.post(f"/beads/{bead['id']}/executions", json=body), 201
    )
    run = expect_json(coding_server.viewer.get(f"/executions/{started['id']}", params={"wait": 30}))
    (step,) = coding_server.steps(run, "researcher")
    assert "notes.txt:1" in step["text"]


def test_a_command_ends_with_the_run_that_wanted_it(coding_server: CodingServer) -> None:
    folder = Path(coding_server.project("endless"))
    os.mkfifo(folder / "pipe")
    context = {"folder": str(folder), "checks": ["sh -c 'echo $$ > pipe; exec sleep 1000'"]}
    body = {"title": "Never ends", "workflow_id": "coding", "context": context}
    filed = expect_json(coding_server.operator.post("/beads", json=body), 201)
    number = int((folder / "pipe").read_text())
    assert Path(f"/proc/{number}").exists()
    close = {"action": "close", "reason": "enough"}
    expect_json(coding_server.ceo.post(f"/executions/{filed['execution_id']}/override", json=close))
    deadline = time.monotonic() + 60
    while Path(f"/proc/{number}").exists():
        assert time.monotonic() < deadline, "the command is still there"
        time.sleep(0.01)


def test_work_in_a_worktree_leaves_the_repository_as_it_was(coding_server: CodingServer) -> None:
    folder = Path(coding_server.project("repository", "misspelt-name"))
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "--quiet"], ["add", "."], [*who, "commit", "--quiet", "-m", "first"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    run = coding_server.plays(context={"repository": str(folder)})
    assert run["terminal_status"] == "done_success"
    made = folder / ".handrail" / "worktrees" / run["id"]
    assert (made / "shop/words.py").read_text() == load_sample_files()["shop/words.py"]
    assert "endng" in (folder / "shop/words.py").read_text()
    left = subprocess.run(
        ["git", "status", "--porcelain"], cwd=folder, capture_output=True, text=True, check=True
    )
    assert left.stdout == ""


def test_what_an_agent_writes_into_the_bead_changes_neither_its_folder_nor_its_checks(
    coding_server: CodingServer,
) -> None:
    chosen = {"checks": ["true"], "goal": {"command": "true"}, "folder": str(coding_server.folder)}

    def planner(dispatch: Dispatch) -> Result:
        return hand_off(
            "verifier" if dispatch.step < 4 else "ticket_closer", "trust me", data=chosen
        )

    name = coding_server.hire("chooses", planner=planner)
    run = coding_server.plays(name, context={"demo": "no_change"})
    assert run["terminal_status"] == "aborted_stuck"
    ran = [step["result"]["evidence"]["checks"] for step in coding_server.steps(run, "verifier")]
    assert {check["command"] for checks in ran for check in checks} == {"python -m unittest"}
