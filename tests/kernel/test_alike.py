"""What was alike in the steps that a stop cites, and the code of the stop."""

import msgspec
import pytest
from tests.kernel.driven_run import DrivenRun, files, red, team
from tests.kernel.test_news import LONG, call, hand, leave, play, say

from handrail.guard import Guard
from handrail.guard.run import GuardedRun
from handrail.kernel.definition.limits import ProfileName, StopRules
from handrail.kernel.result import Usage
from handrail.kernel.run.events import Ended, HandedOff, Reported, RunEvent, Warned
from handrail.kernel.run.lookahead import apply_guarded_events
from handrail.kernel.run.state import Stop, build_stop
from handrail.kernel.stop.alike import (
    WHAT_CHARS_MAX,
    AlikeStep,
    alike_steps,
    describe_finding,
    stop_code,
)
from handrail.kernel.stop.findings import FindingReader
from handrail.kernel.stop.ledger import Ledger, find_edge
from handrail.kernel.stop.rules import RuleContext, judge_handoff, judge_result


def stop_of(run: GuardedRun) -> Stop:
    assert run.stop is not None
    return run.stop


def whats(stop: Stop) -> list[str]:
    return [step.what for step in stop.alike]


def is_consistent(stop: Stop) -> bool:
    return tuple(step.citation for step in stop.alike) == stop.evidence


def strict(**rules: object) -> DrivenRun:
    return DrivenRun(team({"a": ["a", "b"], "b": ["a"]}, terminator="a", stop_rules=rules))


def last(d: DrivenRun) -> Stop:
    assert d.run.stop is not None
    return d.run.stop


def test_the_same_call_again_names_agent_and_tool_and_no_text() -> None:
    stop = stop_of(play([call("cat /etc/secret", "hunter2")] * 9))
    assert (stop.code, stop.profile) == ("same_call_bash", "observed")
    assert whats(stop) == ["coder, bash: same arguments, same answer"] * 3
    assert {step.kind for step in stop.alike} == {"call"}
    assert is_consistent(stop)
    assert "hunter2" not in repr(stop)
    assert "secret" not in repr(stop)


def test_one_failure_of_different_calls_is_said_as_that() -> None:
    steps = [call(str(n), error="Error: connection refused") for n in range(9)]
    stop = stop_of(play(steps))
    assert stop.code == "same_error_bash"
    assert set(whats(stop)) == {"coder, bash: other arguments, same failure"}
    assert is_consistent(stop)


def test_one_text_again_and_again_is_a_text() -> None:
    stop = stop_of(play([say("continue")] * 9))
    assert stop.code == "monologue_coder"
    assert [(step.kind, step.what) for step in stop.alike] == [("text", "coder: same text")] * 3
    stop = stop_of(play([say(LONG)] * 9, monologue_limit=None))
    assert stop.code == "same_text_coder"


def test_a_state_that_stays_is_a_state() -> None:
    stop = stop_of(play([leave("coder", files=["a.py"])] * 9))
    assert stop.code == "same_state_coder"
    assert [(step.kind, step.what) for step in stop.alike] == [("state", "coder: same state")] * 3


def test_a_cycle_says_what_each_of_its_steps_found() -> None:
    steps = [hand("b", "a"), say("after you", "a"), hand("a", "b"), say("no, you", "b")] * 9
    stop = stop_of(play(steps))
    assert stop.code == "a_b_loop"
    assert whats(stop) == ["a: same text", "b: same text", "a: same text", "b: same text"]
    assert is_consistent(stop)


def test_repeated_handoffs_are_named_in_their_order() -> None:
    with Guard().run("r", raises=False) as run:
        for _ in range(9):
            run.handoff("planner", "researcher")
            run.handoff("researcher", "planner")
    stop = stop_of(run)
    assert (stop.rule, stop.code) == ("repeated_pattern", "planner_researcher_loop")
    assert whats(stop) == ["planner -> researcher", "researcher -> planner"] * 3
    assert is_consistent(stop)


def test_a_handoff_that_was_refused_is_neither_cited_nor_described() -> None:
    d = DrivenRun(team({"a": ["a"]}, terminator="a", stop_rules={"max_handoffs": 2}))
    for _ in range(3):
        d.hand("a")
    assert [step.step for step in last(d).alike] == [1, 2]
    assert is_consistent(last(d))


def test_strict_says_what_was_alike_as_far_as_it_knows() -> None:
    d = strict(repeat_limit=None, max_edge=3)
    while d.run.stop is None:
        d.hand("b" if "a" in d.run.positions else "a")
    assert last(d).code == "a_b_loop"
    assert whats(last(d)) == ["a -> b"] * 3
    for evidence, code, what in (
        (files(), "no_change", "left every file as it was"),
        (red(), "same_error", "same failure: "),
    ):
        d = strict(repeat_limit=None)
        while d.run.stop is None:
            d.hand("a", evidence=evidence)
        assert last(d).code == code
        assert all(text.startswith(what) for text in whats(last(d)))
        assert is_consistent(last(d))


def test_a_total_that_was_passed_has_nothing_alike() -> None:
    d = strict(max_tokens=5)
    d.hand("b", usage=Usage(tokens=9))
    stop = last(d)
    assert (stop.code, stop.limit_name, stop.alike) == ("budget_tokens", "max_tokens", ())
    d = strict(max_handoffs=0)
    d.hand("b")
    assert (last(d).code, last(d).limit_name) == ("max_handoffs", "max_handoffs")


def test_effects_since_the_last_progress_are_listed() -> None:
    def mail(run: GuardedRun) -> Stop | None:
        return run.called("clerk", "send_mail", "to ann", "sent", effect=True)

    stop = stop_of(play([call("ls", "a"), mail, mail, mail, mail]))
    assert [(call.step, call.agent, call.tool) for call in stop.effects] == [
        (n, "clerk", "send_mail") for n in (2, 3, 4, 5)
    ]


def test_progress_leaves_only_the_effects_of_its_own_step() -> None:
    def mail(run: GuardedRun) -> Stop | None:
        return run.called("clerk", "send_mail", "to ann", "sent", effect=True)

    stop = stop_of(play([mail, mail, *[call("ls", "a")] * 9]))
    assert stop.effects == ()


def test_a_guard_by_hand_lists_effects_too() -> None:
    with Guard(StopRules(repeat_limit=None)).run("r", raises=False) as run:
        for _ in range(9):
            run.called("clerk", "send_mail", "to ann", "sent", effect=True)
    stop = stop_of(run)
    assert stop.rule == "no_change"
    assert {call.tool for call in stop.effects} == {"send_mail"}


def test_full_texts_are_quoted_and_short() -> None:
    guard = Guard(StopRules(profile="observed"), record_texts="full")
    with guard.run("r", raises=False) as run:
        for _ in range(9):
            run.called("coder", "bash", "cat " + "x" * 1_000, "no such file")
    (what,) = {step.what for step in stop_of(run).alike}
    assert what.startswith("coder, bash: same arguments, same answer: cat xxx")
    assert what.endswith("-> no such file")
    assert len(what) <= WHAT_CHARS_MAX


def test_more_events_than_texts_repeat_the_texts_and_end_with_the_last() -> None:
    steps = alike_steps(["handoff 2", "handoff 3", "handoff 4"], "handoff", ["a", "b"])
    assert [(step.step, step.what) for step in steps] == [(2, "b"), (3, "a"), (4, "b")]


@pytest.mark.parametrize(
    ("names", "code"),
    [
        ((), "monologue"),
        (("?", ""), "monologue"),
        (("Web Surfer", "web surfer"), "monologue_web_surfer"),
        (("a", "b", "c", "d"), "monologue_a_b_c"),
        (("x" * 99,), f"monologue_{'x' * 40}"),
    ],
)
def test_a_code_is_short_and_of_plain_characters(names: tuple[str, ...], code: str) -> None:
    assert stop_code("monologue", (), names) == code


def test_every_kind_of_finding_has_words() -> None:
    reader = FindingReader()
    assert describe_finding(reader.read_person("go on")) == "a person: said the same"
    handed = reader.read_handoff("a", "b", "your turn")
    assert describe_finding(handed) == "a: handed over in the same words"
    failed = reader.read_call("a", "bash", "ls", "boom", failed=True)
    assert describe_finding(failed) == "a, bash: same arguments, same failure"


def test_a_citation_says_whether_the_number_is_a_handoffs() -> None:
    assert AlikeStep(step=3, kind="call", what="").citation == "step 3"
    assert AlikeStep(step=3, kind="handoff", what="").citation == "handoff 3"


@pytest.mark.parametrize("profile", ["observed", "strict"])
def test_a_recorded_run_judged_again_has_the_same_alike(profile: ProfileName) -> None:
    """The findings and names on record are all that the words are made of."""
    with Guard(StopRules(profile=profile)).run("r", raises=False) as run:
        for n in range(30):
            run.called("coder", "bash", f"ls {n % 2}", "same")
            run.handoff("coder", "planner")
            run.called("planner", "bash", "pwd", "here")
            run.handoff("planner", "coder")
    stop = stop_of(run)
    assert stop.alike
    *told, last_act, end = [event for event in run.events if not isinstance(event, Warned)]
    assert isinstance(end, Ended)
    decoded = msgspec.json.decode(msgspec.json.encode(told), type=list[RunEvent])
    ledger = apply_guarded_events(Ledger(steps=1), run.limits, decoded)
    if isinstance(last_act, Reported):
        ledger = apply_guarded_events(ledger, run.limits, [last_act])
        evidence, step = last_act.result.evidence, last_act.fence
        ctx = RuleContext(ledger, run.limits, agent=last_act.agent, evidence=evidence, step=step)
        fired = judge_result(ctx)
    else:
        assert isinstance(last_act, HandedOff)
        edge = find_edge(ledger, last_act.source, last_act.target)
        ctx = RuleContext(
            ledger, run.limits, source=last_act.source, target=last_act.target, edge=edge
        )
        fired = judge_handoff(ctx)
        ledger = apply_guarded_events(ledger, run.limits, [last_act])
    again = build_stop(fired, stop.agent, ledger, profile)
    assert (again.alike, again.code) == (stop.alike, stop.code)
