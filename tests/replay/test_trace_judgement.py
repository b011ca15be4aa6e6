"""Runs that others recorded, judged as a guard would have judged them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from handrail.guard import Guard
from handrail.kernel.definition.limits import (
    OBSERVED,
    PROFILES,
    STRICT,
    Constraints,
    Limits,
    ProfileName,
    StopRules,
)
from handrail.replay.trace_judgement import (
    GroupJudgement,
    TraceJudgement,
    group_judgements,
    judge_trace,
    judge_traces,
)
from handrail.replay.traces.model import Trace, TraceCall, TraceStep


def step(
    agent: str = "coder",
    text: str = "",
    result: str | None = None,
    arguments: str | None = "ls",
    user_text: str = "",
    tokens: int | None = None,
) -> TraceStep:
    """An answer; with a result, one that calls a tool."""
    calls = () if result is None else (TraceCall(tool="bash", arguments=arguments, result=result),)
    return TraceStep(agent=agent, text=text, calls=calls, user_text=user_text, tokens=tokens)


def judge(*steps: TraceStep, success: bool | None = False, **limits: int | None) -> TraceJudgement:
    trace = Trace(dataset="mine", id="1", success=success, steps=steps)
    return judge_trace(trace, replace(OBSERVED, **limits), "runs.jsonl")


def test_a_run_that_does_nothing_but_repeat_one_call_is_stopped_at_the_third_time() -> None:
    verdict = judge(*[step(result="same", tokens=10)] * 10)
    assert (verdict.stopped, verdict.step, verdict.rule) == (True, 3, "no_change")
    assert verdict.evidence == ("step 1", "step 2", "step 3")
    assert verdict.tokens_saved == 70


def test_warnings_stand_beside_the_verdict_with_their_steps() -> None:
    steps = [step(result="Error: timed out", arguments=str(n)) for n in range(9)]
    verdict = judge(*steps, same_error_limit=None)
    assert [(one.step, one.code) for one in verdict.warnings] == [(4, "timeouts")]
    pair = [step("a"), step("b")]
    verdict = judge(*pair * 10)
    assert not verdict.stopped
    assert [(one.step, one.code) for one in verdict.warnings] == [(6, "pattern_by_names")]


def test_a_rule_that_fires_at_the_last_step_stops_nothing() -> None:
    verdict = judge(*[step(result="same")] * 3)
    assert (verdict.stopped, verdict.step, verdict.rule) == (False, None, None)


def test_calls_with_unknown_arguments_are_like_no_other() -> None:
    assert not judge(*[step(result="same", arguments=None)] * 20).stopped


def test_another_agents_step_is_a_handoff() -> None:
    pair = [step("a", text="after you"), step("b", text="no, you")]
    verdict = judge(*pair * 10, oscillation_limit=None, no_change_limit=None)
    assert verdict.rule == "repeated_pattern"


def test_what_a_person_says_is_news_and_a_silent_step_is_none() -> None:
    steps = [step(text="hm", user_text=f"request {n}") for n in range(20)]
    assert not judge(*steps).stopped
    assert not judge(*[step()] * 20).stopped


def test_the_step_limit_counts_every_step() -> None:
    verdict = judge(*[step(text=f"thought {n}") for n in range(20)], max_steps=7)
    assert (verdict.step, verdict.rule, verdict.tokens_saved) == (7, "max_steps", UNSET)


def test_verdicts_are_counted_by_dataset() -> None:
    looping, fine = [step(result="same")] * 10, [step(text="done")]
    verdicts = [
        judge(*looping, success=True),
        judge(*fine, success=True),
        judge(*looping, success=False),
        judge(*fine, success=False),
        judge(*looping, success=None),
    ]
    (group,) = group_judgements(verdicts)
    assert group == GroupJudgement(
        dataset="mine", good=2, cut=1, failed=2, caught=1, steps_failed=11, steps_saved=7
    )


def test_files_are_judged_in_their_order() -> None:
    line = b'{"dataset": "d", "id": "%d", "success": true, "events": []}\n'
    judgements = judge_traces([("a", line % 1 + line % 2), ("b", line % 3)], OBSERVED, view="A")
    assert [(item.file, item.id) for item in judgements.items] == [
        ("a", "1"),
        ("a", "2"),
        ("b", "3"),
    ]
    assert (judgements.profile, judgements.view) == ("observed", "A")
    assert [group.good for group in judgements.groups] == [3]


def test_a_run_is_nudged_once_before_it_is_stopped() -> None:
    verdict = judge(*[step(result="same")] * 10)
    assert (verdict.step, verdict.nudges) == (3, (2,))
    assert judge(*[step(result=answer) for answer in ("one", "two", "three", "four")]).nudges == ()


def test_a_good_run_that_comes_near_a_rule_is_merely_nudged() -> None:
    verdict = judge(*[step(result="same")] * 2, step(result="other"), step(text="done"))
    assert (verdict.stopped, verdict.nudges) == (False, (2,))


made_calls = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.sampled_from(["ls", "cat a.txt", "pytest"]),
        st.sampled_from(["ok", "1 failed", "Error: broken", "took 3 s", "took 4 s"]),
        st.booleans(),
    ),
    max_size=30,
)


@pytest.mark.parametrize("profile", PROFILES)
@given(made_calls)
@settings(max_examples=50, deadline=None)
def test_a_trace_is_judged_as_a_guard_with_the_same_profile_judges(
    profile: ProfileName, made: list[tuple[str, str, str, bool]]
) -> None:
    steps = [
        TraceStep(
            agent=agent,
            calls=(TraceCall(tool="bash", arguments=asked, result=answer, failed=failed or None),),
        )
        for agent, asked, answer, failed in made
    ]
    trace = Trace(dataset="mine", id="1", success=None, steps=(*steps, step(text="the end")))
    verdict = judge_trace(trace, PROFILES[profile])
    rule = _guard_rule(profile, made)
    assert (verdict.rule or "completed") == rule


def _guard_rule(profile: ProfileName, made: list[tuple[str, str, str, bool]]) -> str:
    with Guard(StopRules(profile=profile)).run("r", raises=False) as run:
        last_agent = ""
        for agent, asked, answer, failed in made:
            stop = run.handoff(last_agent, agent) if last_agent not in ("", agent) else None
            last_agent = agent
            result, error = (None, answer) if failed else (answer, None)
            if stop or run.called(agent, "bash", asked, result, error):
                break
    assert run.stop is not None
    return run.stop.rule.value


def test_in_strict_a_step_that_shows_no_call_is_no_evidence() -> None:
    trace = Trace(dataset="d", id="1", success=None, steps=(step(text="the same"),) * 50)
    assert not judge_trace(trace, STRICT).stopped
    unknown = Trace(
        dataset="d", id="1", success=None, steps=(step(result="x", arguments=None),) * 50
    )
    assert not judge_trace(unknown, STRICT).stopped


def test_a_clock_ends_a_trace_only_where_it_has_times() -> None:
    start = datetime(2026, 5, 4, tzinfo=UTC)
    slow = [replace(step(text=f"{n}"), at=start + timedelta(minutes=4 * n)) for n in range(9)]
    trace = Trace(dataset="d", id="1", success=None, steps=tuple(slow))
    verdict = judge_trace(trace, STRICT)
    assert (verdict.rule, verdict.step) == ("max_duration", 4)
    without = Trace(dataset="d", id="1", success=None, steps=(step(text="x"),) * 9)
    assert not judge_trace(without, STRICT).stopped


@pytest.mark.parametrize("limits", [OBSERVED, STRICT])
def test_constraints_see_the_commands_of_a_trace(limits: Limits) -> None:
    forbidding = replace(limits, constraints=Constraints(commands=("*rm -rf*",)))
    steps = (step(result="ok", arguments="rm -rf /"), step(text="done"))
    verdict = judge_trace(Trace(dataset="d", id="1", success=None, steps=steps), forbidding)
    assert verdict.rule == "constraint"


def test_a_run_without_times_may_wait_a_hundred_times() -> None:
    poll, end = step(result="the job is running"), step(text="done")
    assert not judge(*[poll] * 101, end).stopped, "the first one begins the job"
    verdict = judge(*[poll] * 102, end)
    assert (verdict.stopped, verdict.step, verdict.rule) == (True, 102, "wait_deadline")
    assert verdict.reason == "coder waits once more after 100 waits, and no times are known"


def test_a_run_with_times_may_wait_until_the_deadline() -> None:
    poll, end = step(result="the job is running"), step(text="done")
    polls = [
        replace(poll, at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=20 * n))
        for n in range(200)
    ]
    verdict = judge(*polls, end)
    assert (verdict.stopped, verdict.step, verdict.rule) == (True, 92, "wait_deadline")
