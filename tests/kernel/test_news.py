"""Rules that judge what steps found: what stops a run, what never does, and the evidence."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernel.driven_run import DrivenRun, team

from handrail.guard import Guard
from handrail.guard.run import GuardedRun
from handrail.kernel.definition.limits import StopRules
from handrail.kernel.result import Evidence, Outcome
from handrail.kernel.run.events import Ended, Reported, Started, Warned
from handrail.kernel.run.state import Stop
from handrail.kernel.stop.findings import KEYS_KEPT, FindingKind, StepFinding
from handrail.kernel.stop.ledger import Ledger, renew
from handrail.kernel.stop.news import (
    CYCLE_STEPS_MAX,
    News,
    Repeats,
    add_findings,
    assess_findings,
)

LONG = "we are working on the request of the user, and this is the plan " * 4
Step = Callable[[GuardedRun], Stop | None]


def call(arguments: str, result: str | None = "ok", error: str | None = None) -> Step:
    return lambda run: run.called("coder", "bash", arguments, result, error)


def say(text: str, agent: str = "coder") -> Step:
    return lambda run: run.said(agent, text)


def leave(agent: str, **state: object) -> Step:
    return lambda run: run.state(agent, state)


def hand(source: str, target: str) -> Step:
    return lambda run: run.handoff(source, target)


def play(steps: Sequence[Step], **rules: object) -> GuardedRun:
    """Play the steps under profile `observed`, until the run stops."""
    guard = Guard(StopRules(profile="observed", **rules))  # type: ignore[arg-type]
    with guard.run("r", raises=False) as run:
        for step in steps:
            if step(run) is not None:
                break
    return run


def rule_of(run: GuardedRun) -> str:
    assert run.stop is not None
    return run.stop.rule.value


def steps_of(run: GuardedRun) -> int:
    return sum(isinstance(event, Reported) for event in run.events)


def news_of(run: GuardedRun) -> list[News]:
    return [event.weighed.news for event in run.events if isinstance(event, Reported)]


@pytest.mark.requirement("K34")
def test_the_same_call_with_the_same_answer_ends_the_run_at_the_fourth_time() -> None:
    run = play([call("pwd"), *[call("ls")] * 10])
    assert (rule_of(run), steps_of(run)) == ("no_change", 5)
    assert run.stop is not None
    assert run.stop.evidence == ("step 3", "step 4", "step 5")
    assert news_of(run)[1:] == [News.STRONG, News.NOTHING, News.NOTHING, News.NOTHING]


def test_a_run_that_has_found_nothing_else_is_ended_at_the_third_time() -> None:
    run = play([call("ls")] * 10)
    assert (rule_of(run), steps_of(run)) == ("no_change", 3)
    assert run.stop is not None
    assert run.stop.evidence == ("step 1", "step 2", "step 3")
    assert run.stop.seen == run.stop.limit == 3
    failing = play([call("pwd"), *[call("ls", "Error: no such folder")] * 10])
    assert (rule_of(failing), steps_of(failing)) == ("no_change", 4)
    before = play([call("ls", "Error: no such folder"), call("pwd"), *failing_steps(3)])
    assert (rule_of(before), steps_of(before)) == ("no_change", 5), "what came before news is over"


def failing_steps(count: int) -> list[Step]:
    return [call("ls", "Error: no such folder")] * count


def test_answers_that_differ_in_figures_are_not_the_same_from_the_first_time() -> None:
    run = play([call("date", f"visitors so far {n}") for n in range(6)])
    assert rule_of(run) == "completed"


def test_different_calls_that_meet_the_same_failure_end_the_run_at_the_third() -> None:
    run = play([call(f"select {n}", "Error: no table t") for n in range(10)])
    assert (rule_of(run), steps_of(run)) == ("same_error", 3)


def test_another_call_that_fails_like_a_retried_one_is_cited_alone() -> None:
    steps = [call("pwd"), call("ls"), *[call("z", "Error: broken")] * 3, call("q", "Error: broken")]
    run = play(steps)
    assert (rule_of(run), steps_of(run)) == ("same_error", 6)
    assert run.stop is not None
    assert (run.stop.evidence, run.stop.seen) == (("step 6",), 4), "one retry less is enough"


def test_failures_that_say_nothing_are_not_the_same() -> None:
    run = play([call(f"grep {n}", None, "exit code 1") for n in range(50)])
    assert rule_of(run) == "completed"


def test_a_new_answer_between_them_forgives_what_was_repeated() -> None:
    steps = [step for n in range(20) for step in (call("make test", "2 failed"), call(f"edit {n}"))]
    assert rule_of(play(steps)) == "completed"


def test_to_undo_check_and_redo_is_no_loop() -> None:
    fix, undo = call("git stash pop"), call("git stash")
    red, green = call("pytest", "1 failed"), call("pytest", "all good")
    assert rule_of(play([fix, green, undo, red, fix, green])) == "completed"


@pytest.mark.parametrize("period", [*range(2, 9), CYCLE_STEPS_MAX])
def test_a_whole_round_that_brings_nothing_new_ends_the_run(period: int) -> None:
    run = play([call(f"cat {n}") for n in range(period)] * 5)
    assert (rule_of(run), steps_of(run)) == ("oscillation", 2 * period)
    assert run.stop is not None
    every = [f"step {n + 1}" for n in range(2 * period)]
    shorter = every[period] if period > 2 else ""  # without it, the others are a shorter cycle
    assert run.stop.evidence == tuple(step for step in every if step != shorter)


def test_a_longer_round_is_not_looked_for() -> None:
    run = play([call(f"cat {n}") for n in range(CYCLE_STEPS_MAX + 1)] * 5)
    assert (rule_of(run), steps_of(run)) == ("no_change", 3 * (CYCLE_STEPS_MAX + 1) + 1)


def test_a_round_of_states_and_one_of_long_texts_ends_the_run() -> None:
    states = play([leave("a", at=n) for n in "abcdefgh"] * 3)
    assert (rule_of(states), steps_of(states)) == ("oscillation", 16)
    texts = play([say(f"{letter} {LONG * 2} {letter * 3}", letter) for letter in "abcdef"] * 3)
    assert (rule_of(texts), steps_of(texts)) == ("oscillation", 12)


def test_a_call_between_the_same_words_is_repeated_as_often_as_without_them() -> None:
    steps = [call("pwd"), *[say("once more"), call("ls")] * 10]
    run = play(steps)
    assert (rule_of(run), steps_of(run)) == ("no_change", 9)
    patient = play(steps, no_change_limit=None)
    assert (rule_of(patient), steps_of(patient)) == ("oscillation", 9)
    assert patient.stop is not None
    assert patient.stop.evidence == tuple(f"step {n}" for n in range(2, 10))


def note(text: str) -> Step:
    return lambda run: run.called("coder", "write_todos", text, "saved")


def test_a_note_is_weak_news_and_forgives_nothing() -> None:
    steps = [step for n in range(10) for step in (note(f"idea {n}"), call("ls"))]
    run = play([call("pwd"), *steps])
    assert (rule_of(run), steps_of(run)) == ("no_change", 9)
    assert rule_of(play([note(f"idea {n}") for n in range(50)])) == "completed"


def test_the_same_note_counts_only_while_nothing_is_done() -> None:
    run = play([call("pwd"), *[note("a, b")] * 10])
    assert (rule_of(run), steps_of(run)) == ("no_change", 5)
    looks = [call(f"grep {n}", None, "exit code 1") for n in range(40)]
    assert rule_of(play([step for look in looks for step in (note("a, b"), look)])) == "completed"


def test_a_round_with_a_new_text_in_it_is_no_repetition() -> None:
    steps = [step for n in range(20) for step in (say(f"thought {n}", "a"), say("go on", "b"))]
    assert rule_of(play(steps)) == "completed"


def test_the_same_text_three_times_in_a_row_is_a_monologue() -> None:
    run = play([say("I will now continue.")] * 10)
    assert (rule_of(run), steps_of(run)) == ("monologue", 3)


def test_the_same_plan_again_and_again_ends_the_run_though_others_speak_in_between() -> None:
    steps = [step for n in range(20) for step in (say(LONG), say(f"thought {n}", "other"))]
    run = play(steps, monologue_limit=None)
    assert rule_of(run) == "no_change"


def test_two_agents_that_say_the_same_to_each_other_are_stopped() -> None:
    steps = [say("after you", "a"), hand("a", "b"), say("no, after you", "b"), hand("b", "a")] * 9
    run = play(steps)
    assert (rule_of(run), steps_of(run)) == ("oscillation", 4)


def test_idle_pairs_are_stopped_where_they_were_seen_to_be_idle() -> None:
    steps = [leave("a", x=1), hand("a", "b"), leave("b", x=1), hand("b", "a")] * 9
    assert rule_of(play(steps)) == "oscillation"
    steps = [leave("a", x=1), hand("a", "b"), hand("b", "a")] * 9
    assert rule_of(play(steps, no_change_limit=None, oscillation_limit=None)) == "completed"


def test_a_pattern_of_names_stops_only_where_the_visits_brought_nothing_new() -> None:
    off = {"no_change_limit": None, "oscillation_limit": None, "monologue_limit": None}
    steps = [leave("a", x=1), hand("a", "b"), leave("b", x=1), hand("b", "a")] * 9
    run = play(steps, **off)
    assert rule_of(run) == "repeated_pattern"
    assert rule_of(play([hand("a", "b"), hand("b", "a")] * 9)) == "completed"
    named = [
        step
        for n in range(9)
        for step in (say(f"text {n}", "a"), hand("a", "b"), say(f"text {n}", "b"), hand("b", "a"))
    ]
    assert rule_of(play(named)) == "completed"


def test_a_counter_that_only_counts_is_stopped_by_the_tenth_time() -> None:
    run = play([leave("node", count=n) for n in range(30)])
    assert rule_of(run) == "no_change"
    assert steps_of(run) <= 10


def test_a_list_that_appends_the_same_is_stopped() -> None:
    run = play([leave("node", notes=["same"] * (n + 1)) for n in range(30)])
    assert (rule_of(run), steps_of(run)) == ("no_change", 4)


def test_a_node_that_works_through_files_goes_on() -> None:
    todo = [f"file{chr(97 + n)}" for n in range(26)]
    steps = [leave("worker", todo=todo[n:]) for n in range(26)]
    assert rule_of(play(steps)) == "completed"


def test_a_poll_of_fifty_calls_goes_on() -> None:
    run = play([call("status", "still running")] * 50 + [call("status", "done")])
    assert rule_of(run) == "completed"
    assert set(news_of(run)) == {News.WAITING, News.STRONG}


def test_an_agent_that_waits_is_not_idle() -> None:
    run = play([lambda run: run.waiting("coder", "the build", 5.0)] * 20)
    assert rule_of(run) == "completed"


def test_after_a_wait_several_looks_may_find_what_was_there() -> None:
    looks = [call("ls out", "nothing yet"), call("tail log", "step one"), call("ps", "make")]
    poll = [call("sleep 9", ""), say("let me see"), *looks]
    assert rule_of(play([*looks, *poll[:-1] * 30])) == "completed"
    run = play([*looks, *poll * 30])
    assert (rule_of(run), steps_of(run)) == ("no_change", 18), "a fourth look is no part of a wait"


def test_what_is_new_after_a_wait_ends_the_wait() -> None:
    run = play([call("sleep 9", ""), call("sleep 9", ""), call("ls"), *[call("pwd")] * 5])
    assert (rule_of(run), steps_of(run)) == ("no_change", 7)


def test_a_call_whose_answer_nobody_knows_proves_nothing() -> None:
    run = play([call("ls", None)] * 30)
    assert rule_of(run) == "completed"
    assert news_of(run)[:2] == [News.STRONG, News.BLIND]


def test_calls_of_one_step_came_again_as_often_as_the_rarest() -> None:
    guard = Guard(StopRules(profile="observed"))
    with guard.run("r", raises=False) as run:
        old = run.reader.read_call("a", "t", "old", "x")
        for n in range(30):
            new = run.reader.read_call("a", "t", f"new {n}", "x")
            evidence = Evidence(measured=True, findings=(old, new))
            assert run.result("a", evidence=evidence) is None
        assert run.result("a", evidence=Evidence(measured=True, findings=(old, old))) is None


def test_checks_and_files_of_the_host_are_findings_too() -> None:
    red = {"checks": [{"command": "make", "exit_code": 2, "stderr": "no rule"}]}
    with Guard(StopRules(profile="observed")).run("r", raises=False) as run:
        for _ in range(2):
            assert run.result("a", evidence=red) is None
        stop = run.result("a", evidence=red)
        assert stop is not None
        assert stop.rule == "no_change"
    with Guard(StopRules(profile="observed")).run("r", raises=False) as run:
        for n in range(20):
            assert run.result("a", evidence={"files": {"a.py": str(n)}}) is None
    (finding,) = (e.result.evidence.findings[0] for e in run.events[1:2] if isinstance(e, Reported))
    assert finding.kind is FindingKind.STATE


def test_first_visits_are_free_and_a_pipeline_of_sixty_nodes_ends() -> None:
    steps = [hand(f"n{n}", f"n{n + 1}") for n in range(60)]
    assert rule_of(play(steps, max_handoffs=20)) == "completed"
    assert rule_of(play([*steps, *steps], max_handoffs=20)) == "max_handoffs"


def test_new_texts_postpone_an_edge_a_bounded_number_of_times() -> None:
    steps = [
        step
        for n in range(60)
        for step in (say(f"text {n}", "a"), hand("a", "b"), say(f"text {n}", "b"), hand("b", "a"))
    ]
    assert rule_of(play(steps, max_edge=8)) == "max_edge"
    few = play(steps[: 4 * 16], max_edge=8)
    assert rule_of(few) == "completed"


def test_in_strict_findings_count_for_nothing() -> None:
    with Guard().run("r", raises=False) as run:
        for _ in range(20):
            assert run.said("a", "the same") is None
            assert run.state("a", {"x": 1}) is None
            assert run.waiting("a", "a build") is None
    assert set(news_of(run)) == {News.UNSEEN}
    with Guard().run("r", raises=False) as run:
        stops = [run.called("a", "ls", "", "same") for _ in range(6)]
    assert stops[-1] is not None


alphabet = st.sampled_from(
    [
        call("x"),
        call("y"),
        call("z", "Error: broken"),
        call("q", "Error: broken"),
        call("s", None, "exit 1"),
        call("w", "still running"),
        call("u", None),
        say("hm"),
        say(LONG),
        say("hm", "b"),
        leave("n", x="1"),
        leave("n", x="2"),
        hand("coder", "b"),
        hand("b", "coder"),
        note("a"),
        note("b"),
        call("sleep 1", ""),
        call("job", "40%"),
    ]
)


@given(st.lists(alphabet, max_size=30))
@settings(max_examples=400, deadline=None)
def test_every_cited_step_is_necessary(steps: list[Step]) -> None:
    run = play(steps, max_steps=1_000)
    assert run.stop is not None
    if not run.stop.evidence or not all(cited.startswith("step") for cited in run.stop.evidence):
        return
    played = _played(steps, run)
    for cited in run.stop.evidence:
        number = int(cited.removeprefix("step "))
        index = _index_of_step(played, number)
        without = play(played[:index] + played[index + 1 :], max_steps=1_000)
        assert without.stop is not None
        assert without.stop.rule != run.stop.rule or _ended_before(without, played)


def _played(steps: list[Step], run: GuardedRun) -> list[Step]:
    return steps[: _acts(run)]


def _index_of_step(played: Sequence[Step], number: int) -> int:
    """Which of the steps played is the step of this number: handoffs open turns."""
    guard = Guard(StopRules(profile="observed"))
    with guard.run("r", raises=False) as run:
        for index, step in enumerate(played):
            before = len(run.events)
            step(run)
            event = run.events[before]
            if isinstance(event, Reported) and event.fence == number:
                return index
    raise AssertionError(number)


def _ended_before(run: GuardedRun, played: Sequence[Step]) -> bool:
    return _acts(run) < len(played) - 1


def _acts(run: GuardedRun) -> int:
    """Events without the start, the end and what was only warned of."""
    return sum(not isinstance(event, Started | Warned | Ended) for event in run.events)


def finding(number: int, *, pending: bool = False) -> StepFinding:
    return StepFinding(
        kind=FindingKind.CALL, key=f"k{number}", answer="" if pending else "a", pending=pending
    )


def test_what_is_remembered_of_findings_is_bounded() -> None:
    repeats = Repeats()
    for number in range(KEYS_KEPT + 5):
        repeats = add_findings(repeats, number, (finding(number),), News.STRONG)
    assert len(repeats.answers) == KEYS_KEPT
    for number in range(KEYS_KEPT + 5):
        repeats = add_findings(repeats, number, (finding(number),), News.NOTHING)
    assert len(repeats.again) == KEYS_KEPT


def test_a_call_that_waits_beside_others_is_left_out() -> None:
    findings = (finding(1), finding(2, pending=True))
    assert assess_findings(Repeats(), findings) is News.STRONG
    repeats = add_findings(Repeats(), 1, findings, News.STRONG)
    assert [*repeats.answers] == ["k1"]


def test_counts_begin_anew_with_a_persons_act_and_what_was_seen_stays_known() -> None:
    ledger = Ledger(repeats=add_findings(Repeats(), 1, (finding(1),), News.WEAK))
    assert renew(ledger).repeats == Repeats(answers=ledger.repeats.answers)
    assert renew(Ledger()).repeats == Repeats()


def talk(texts: Sequence[str], profile: str) -> DrivenRun:
    """An agent of the engine's own that hands over to itself, with these texts."""
    d = DrivenRun(team({"a": ["a"]}, terminator="a", stop_rules={"profile": profile}))
    for text in texts:
        if d.run.has_ended:
            break
        d.report(outcome=Outcome.HANDOFF, to="a", reason="on", text=text)
    return d


def test_a_definition_may_ask_for_findings_to_be_judged() -> None:
    d = talk(["I will now continue."] * 10, "observed")
    assert d.run.stop is not None
    assert d.run.stop.rule == "monologue"
    assert not talk([f"thought {n}" for n in range(30)], "observed").run.has_ended
    assert talk([f"thought {n}" for n in range(30)], "strict").run.has_ended


def test_an_agent_cannot_claim_findings() -> None:
    for profile in ("observed", "strict"):
        claims = iter(range(100))
        d = DrivenRun(team({"a": ["a"]}, terminator="a", stop_rules={"profile": profile}))
        while not d.run.has_ended:
            claim = Evidence(findings=(finding(next(claims)),))
            d.report(outcome=Outcome.HANDOFF, to="a", reason="on", text="same", evidence=claim)
        assert next(claims) < 10


def test_measured_evidence_of_an_engines_agent_is_news() -> None:
    d = DrivenRun(team({"a": ["a"]}, terminator="a", stop_rules={"profile": "observed"}))
    for n in range(20):
        evidence = Evidence(files={"a.py": str(n)}, measured=True)
        d.report(outcome=Outcome.HANDOFF, to="a", reason="on", text="same", evidence=evidence)
    assert not d.run.has_ended


def test_first_visits_may_be_counted_as_well() -> None:
    steps = [hand(f"n{n}", f"n{n + 1}") for n in range(60)]
    assert rule_of(play(steps, max_handoffs=20, free_visits=False)) == "max_handoffs"
