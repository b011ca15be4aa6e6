"""Loops, each run on the real engine until it is stopped: where, by what, and what is said of it.

The three simulations of the stop rules (S15) on a real folder, and the loops that public projects
ran into. Every one is compared with what it came to: the step, the rule, the evidence and the why.
"""

import itertools
import re
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest
from inline_snapshot import snapshot
from tests.engine.interactive_runs import run_to_end
from tests.kernel.driven_run import team

from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.services.runs import InteractiveRun
from handrail.kernel.result import Check, Evidence, Outcome, Result, Usage
from handrail.kernel.run.events import Ended
from handrail.teams import load_builtin, load_scripted_agents
from handrail.teams.coding import scripted_agents
from handrail.teams.coding.workspaces import write_sample
from handrail.teams.scripted import ScriptedAgent, hand_off
from handrail.testing.clock import ManualClock
from handrail.views.report import build_report, report_markdown, snitch_entry

HASH = re.compile(r"#[0-9a-f]{12}")
"""Of a signature: another Python may word its tracebacks in another way."""
PAIR = team({"a": ["b"], "b": ["a"]}, terminator="a", id="pair")


def coding(
    folder: Path, *bugs: str, rules: dict[str, Any] | None = None, **instead: ScriptedAgent
) -> InteractiveRun:
    """The coding team in a real folder with these bugs; some of its agents replaced."""
    folder.mkdir(exist_ok=True)
    write_sample(folder, bugs)
    document = load_builtin("coding")
    document["stop_rules"] |= rules or {}
    _, trusted = load_scripted_agents("coding")
    return run_to_end(
        document,
        {**scripted_agents((str(folder),)), **instead},
        trusted=trusted - frozenset(instead),
        clock=ManualClock().now,
        title="Initials are wrong",
        context={"folder": str(folder)},
    )


def stopped(local: InteractiveRun) -> str:
    """Where it stopped and what the report says; that nothing came after the end, and that the
    report is the same when it is made again."""
    told = build_report(local.events)
    assert isinstance(local.events[-1], Ended)
    assert sum(isinstance(event, Ended) for event in local.events) == 1
    assert told.terminal_status is not None
    assert told.stop is not None
    again = msgspec.json.encode(build_report(list(local.events)), order="deterministic")
    assert again == msgspec.json.encode(told, order="deterministic")
    assert f"- rule: {told.stop.rule}" in report_markdown(told)
    assert bool(snitch_entry(told)) == told.terminal_status.startswith("aborted")
    ended = f"{told.terminal_status}, {told.stop.rule}, after step {told.totals.steps}"
    lines = [
        f"{ended} and {told.totals.handoffs} handoffs",
        *textwrap.wrap(HASH.sub("#…", told.why), 90),
        *textwrap.wrap(f"evidence: {', '.join(told.stop.evidence)}", 90),
        f"it could have gone on with: {told.stop.remedy}",
    ]
    return "\n".join(lines)


def always(to: str, reason: str = "go on", **more: Any) -> ScriptedAgent:
    return lambda dispatch: hand_off(to, reason, **more)


# S15


@pytest.mark.requirement("S15", "S2")
def test_planner_and_researcher_bounce_although_everything_is_known(tmp_path: Path) -> None:
    local = coding(tmp_path, "not-written-yet", planner=always("researcher", "still unsure"))
    assert stopped(local) == snapshot("""\
aborted_stuck, research_exhausted, after step 11 and 10 handoffs
Stuck: researcher was visited 3 times with no better score: research is good enough (best
1) (limit 3).
evidence: step 4, step 9, step 11
it could have gone on with: a score better by 0.05, or going on without it\
""")


@pytest.mark.requirement("S15", "S2")
def test_planner_and_researcher_bounce_with_detours_that_hide_the_pattern(tmp_path: Path) -> None:
    def planner(dispatch: Dispatch) -> Result:
        turn = len(dispatch.history) // 2
        return hand_off("verifier" if turn in (1, 3) else "researcher", "still unsure")

    local = coding(tmp_path, planner=planner)
    assert stopped(local) == snapshot("""\
aborted_stuck, research_exhausted, after step 15 and 14 handoffs
Stuck: researcher was visited 3 times with no better score: research is good enough (best
1) (limit 3).
evidence: step 6, step 13, step 15
it could have gone on with: a score better by 0.05, or going on without it\
""")


@pytest.mark.requirement("S15", "S3")
def test_the_same_red_command_is_run_again_and_again(tmp_path: Path) -> None:
    local = coding(tmp_path, "not-written-yet", planner=always("verifier", "perhaps now"))
    assert stopped(local) == snapshot("""\
aborted_stuck, same_error, after step 6 and 5 handoffs
Stuck: the same failure 3 times without progress: python -m unittest | AssertionError:
'ADA LOVELACE' != 'A. L.' | #… (limit 3).
evidence: step 2, step 4, step 6
it could have gone on with: a check that turns green, fewer failures, or another error in between\
""")


@pytest.mark.requirement("S15", "S4")
def test_a_coder_keeps_proposing_empty_patches(tmp_path: Path) -> None:
    coder = always("planner", "here it is", evidence=Evidence(files={}))
    local = coding(tmp_path, "not-written-yet", planner=always("coder", "mend it"), coder=coder)
    assert stopped(local) == snapshot("""\
aborted_stuck, no_change, after step 6 and 5 handoffs
Stuck: 3 turns left every file as it was, the last one of coder (limit 3).
evidence: step 2, step 4, step 6
it could have gone on with: a turn that changes a file\
""")


@pytest.mark.requirement("S15", "S4")
def test_a_coder_keeps_proposing_the_same_patch(tmp_path: Path) -> None:
    coder = always("verifier", "here it is", evidence=Evidence(files={"shop/words.py": "same"}))
    local = coding(tmp_path, "not-written-yet", planner=always("coder", "mend it"), coder=coder)
    assert stopped(local) == snapshot("""\
aborted_stuck, same_error, after step 9 and 8 handoffs
Stuck: the same failure 3 times without progress: python -m unittest | AssertionError:
'ADA LOVELACE' != 'A. L.' | #… (limit 3).
evidence: step 3, step 6, step 9
it could have gone on with: a check that turns green, fewer failures, or another error in between\
""")


@pytest.mark.requirement("S13", "S15")
def test_with_yolo_the_same_loops_end_sooner(tmp_path: Path) -> None:
    yolo = {"profile": "yolo"}
    red = coding(tmp_path / "red", "not-written-yet", rules=yolo, planner=always("verifier"))
    idle = coding(
        tmp_path / "idle",
        "not-written-yet",
        rules=yolo,
        planner=always("coder"),
        coder=always("planner", evidence=Evidence(files={})),
    )
    asks = coding(tmp_path / "asks", "not-written-yet", rules=yolo, planner=always("researcher"))
    found = [stopped(local).splitlines()[0] for local in (red, idle, asks)]
    assert found == snapshot(
        [
            "aborted_stuck, same_error, after step 4 and 3 handoffs",
            "aborted_stuck, no_change, after step 4 and 3 handoffs",
            "aborted_stuck, research_exhausted, after step 9 and 8 handoffs",
        ]
    )


# What public projects ran into


def test_two_agents_hand_over_to_each_other_for_ever() -> None:
    local = run_to_end(
        PAIR, {"a": always("b"), "b": always("a")}, clock=ManualClock().now, title="T"
    )
    assert stopped(local) == snapshot("""\
aborted_stuck, repeated_pattern, after step 6 and 6 handoffs
Stuck: a and b handed over the same way 3 times in a row without progress (limit 3).
evidence: handoff 1, handoff 2, handoff 3, handoff 4, handoff 5, handoff 6
it could have gone on with: progress in between, another way, or a higher repeat_limit\
""")
    sequence = [(h.from_, h.to) for h in build_report(local.events).handoff_sequence]
    assert sequence == [("a", "b"), ("b", "a")] * 3, "complete: no repeat is left out"


def test_the_helpdesk_looped_although_its_prompts_forbade_it() -> None:
    own, trusted = load_scripted_agents("helpdesk")
    loop = {"orchestrator": always("memory", "look again"), "memory": always("orchestrator")}
    local = run_to_end(
        load_builtin("helpdesk"),
        {**own, **loop},
        trusted=trusted,
        clock=ManualClock().now,
        title="VPN drops every hour",
    )
    assert stopped(local) == snapshot("""\
aborted_stuck, repeated_pattern, after step 8 and 5 handoffs
Stuck: orchestrator and memory handed over the same way 3 times in a row without progress
(limit 3).
evidence: handoff 3, handoff 4, handoff 5
it could have gone on with: progress in between, another way, or a higher repeat_limit\
""")


def test_an_agent_handed_over_to_itself() -> None:
    alone = team({"a": ["a", "b"], "b": []}, terminator="b", id="alone")
    local = run_to_end(alone, {"a": always("a")}, clock=ManualClock().now, title="T")
    assert stopped(local) == snapshot("""\
aborted_stuck, repeated_pattern, after step 3 and 3 handoffs
Stuck: a handed over to itself 3 times in a row without progress (limit 3).
evidence: handoff 1, handoff 2, handoff 3
it could have gone on with: progress in between, another way, or a higher repeat_limit\
""")


def test_a_time_and_an_address_made_every_failure_look_new(tmp_path: Path) -> None:
    tries = itertools.count(1)

    def verifier(dispatch: Dispatch) -> Result:
        n = next(tries)
        said = (
            f"2026-01-0{n}T10:00:0{n}Z worker-{n}\nTypeError: <X object at 0x7f00{n:08x}> in {n}.3s"
        )
        check = Check(command="npm test", exit_code=1, stderr=said)
        return hand_off("planner", "red", evidence=Evidence(checks=(check,), measured=True))

    local = coding(tmp_path, planner=always("verifier"), verifier=verifier)
    assert stopped(local) == snapshot("""\
aborted_stuck, same_error, after step 6 and 5 handoffs
Stuck: the same failure 3 times without progress: npm test | TypeError: <X object at
<addr>> in <dur> | #… (limit 3).
evidence: step 2, step 4, step 6
it could have gone on with: a check that turns green, fewer failures, or another error in between\
""")


def test_a_new_scratch_file_every_turn_counted_as_progress(tmp_path: Path) -> None:
    def coder(dispatch: Dispatch) -> Result:
        name = f"scratch_{dispatch.step}.txt"
        (tmp_path / name).write_text(name)
        return hand_off("verifier", "tried this", evidence=Evidence(files={name: name}))

    local = coding(tmp_path, "not-written-yet", planner=always("coder"), coder=coder)
    assert stopped(local) == snapshot("""\
aborted_stuck, same_error, after step 9 and 8 handoffs
Stuck: the same failure 3 times without progress: python -m unittest | AssertionError:
'ADA LOVELACE' != 'A. L.' | #… (limit 3).
evidence: step 3, step 6, step 9
it could have gone on with: a check that turns green, fewer failures, or another error in between\
""")


def test_any_file_read_counted_as_progress_for_260_dispatches_and_766887_tokens() -> None:
    reads = team({"a": ["a", "b"], "b": []}, terminator="b", id="reads")
    reads["stop_rules"] = {"max_tokens": 50_000, "repeat_limit": 40, "max_edge": None}

    def reader(dispatch: Dispatch) -> Result:
        return hand_off("a", f"read file {dispatch.step}", usage=Usage(tokens=2_950))

    local = run_to_end(reads, {"a": reader}, clock=ManualClock().now, title="T")
    assert stopped(local) == snapshot("""\
aborted_constraint, budget, after step 17 and 16 handoffs
Constraint: the budget is spent: 50150 of 50000 tokens (limit 50000).
evidence: step 17
it could have gone on with: a larger max_tokens\
""")


def test_a_failed_close_was_taken_for_done(tmp_path: Path) -> None:
    """Whatever the planner says, the ticket closer looks at what was measured."""

    def planner(dispatch: Dispatch) -> Result:
        return hand_off("verifier" if dispatch.step == 1 else "ticket_closer", "it is done")

    local = coding(tmp_path, "not-written-yet", planner=planner)
    assert stopped(local) == snapshot("""\
aborted_stuck, repeated_pattern, after step 8 and 8 handoffs
Stuck: planner and ticket_closer handed over the same way 3 times in a row without
progress (limit 3).
evidence: handoff 3, handoff 4, handoff 5, handoff 6, handoff 7, handoff 8
it could have gone on with: progress in between, another way, or a higher repeat_limit\
""")


def test_two_versions_of_a_file_were_written_in_turns(tmp_path: Path) -> None:
    versions = itertools.cycle(("one", "two"))

    def coder(dispatch: Dispatch) -> Result:
        return hand_off("planner", "better", evidence=Evidence(files={"a.py": next(versions)}))

    local = coding(tmp_path, planner=always("coder"), coder=coder, rules={"repeat_limit": None})
    assert stopped(local) == snapshot("""\
aborted_stuck, oscillation, after step 10 and 9 handoffs
Stuck: 3 turns went back to earlier contents, the last one of coder (limit 3).
evidence: step 6, step 8, step 10
it could have gone on with: contents that were not there before\
""")


def test_an_agent_that_never_says_what_is_next_is_asked_three_times() -> None:
    vague = Result(text="I will look into it.")
    local = run_to_end(PAIR, {"a": lambda dispatch: vague}, clock=ManualClock().now, title="T")
    assert stopped(local) == snapshot("""\
aborted_stuck, protocol, after step 3 and 0 handoffs
Stuck: 3 unusable answers of a in one turn; the last time: Say explicitly: hand off or
terminate. You said neither (limit 3).
evidence: step 1, step 2, step 3
it could have gone on with: an answer that says handoff or terminate\
""")


def test_an_agent_that_may_not_end_the_run_tries_to_again_and_again() -> None:
    ends = Result(outcome=Outcome.TERMINATE, reason="I decide", text="TERMINATE_WORKFLOW")
    local = run_to_end(
        PAIR, {"a": always("b"), "b": lambda dispatch: ends}, clock=ManualClock().now, title="T"
    )
    assert stopped(local) == snapshot("""\
aborted_stuck, protocol, after step 4 and 1 handoffs
Stuck: 3 unusable answers of b in one turn; the last time: 'b' may not end the run; only
'a' may. Hand off instead (limit 3).
evidence: step 2, step 3, step 4
it could have gone on with: an answer that says handoff or terminate\
""")
