"""Warnings that never stop a run, each once in a stretch."""

from collections.abc import Sequence

from tests.kernel.driven_run import DrivenRun, team
from tests.kernel.test_news import LONG, Step, call, hand, play, say

from handrail.guard import Guard
from handrail.guard.run import GuardedRun
from handrail.kernel.definition.limits import StopRules
from handrail.kernel.run.events import Warned
from handrail.kernel.stop.early_warnings import EARLY_CODES
from handrail.kernel.stop.findings import KEYS_KEPT, FindingKind, FindingReader, StepFinding
from handrail.kernel.stop.ledger import Ledger, add_warning, renew
from handrail.kernel.stop.news import News, Repeats, add_findings

PAIR = [hand("a", "b"), hand("b", "a")]


def codes(run: GuardedRun) -> list[str]:
    return [event.code for event in run.events if isinstance(event, Warned)]


def warned(steps: Sequence[Step], **rules: object) -> list[str]:
    run = play(steps, **rules)
    assert run.stop is not None
    assert run.stop.rule == "completed"
    return codes(run)


def test_a_pattern_of_names_alone_is_warned_of_once_and_goes_on() -> None:
    assert warned(PAIR * 30) == ["pattern_by_names"]


def test_visits_that_bring_new_words_only_are_names_alone() -> None:
    steps = [
        step
        for n in range(12)
        for step in (say(f"thought {n}", "a"), PAIR[0], say(f"idea {n}", "b"), PAIR[1])
    ]
    assert warned(steps) == ["pattern_by_names"]


def test_visits_with_strong_news_are_no_pattern() -> None:
    steps = [step for n in range(12) for step in (call(str(n)), *PAIR)]
    assert warned(steps) == []


def test_without_a_limit_of_repetitions_there_is_none_of_names() -> None:
    assert warned(PAIR * 30, repeat_limit=None) == []


def test_strict_stops_instead() -> None:
    with Guard().run("r", raises=False) as run:
        for _ in range(9):
            run.handoff("a", "b")
            run.handoff("b", "a")
    assert (run.stop and run.stop.rule, codes(run)) == ("repeated_pattern", ["nudged"])


def test_long_texts_of_one_agent_that_begin_alike_are_warned_of_at_the_third() -> None:
    def plan(n: int, agent: str = "coder") -> Step:
        return say(LONG[:80] + " ".join("abcdefghij"[n] * i for i in range(1, 40)), agent)

    assert warned([plan(1), plan(2)]) == []
    assert warned([plan(n) for n in range(2, 9)]) == ["plans_again"]
    assert warned([plan(1, "a"), plan(2, "b"), plan(3, "c")]) == []


def test_four_timeouts_are_warned_of() -> None:
    steps = [call(str(n), error=f"command {n} timed out after 30 s") for n in range(4)]
    assert warned(steps[:3], same_error_limit=None) == []
    assert warned(steps, same_error_limit=None) == ["timeouts"]


def test_a_success_that_speaks_of_timeouts_is_none() -> None:
    assert warned([call(str(n), f"option {n}: timeout") for n in range(9)]) == []


def test_a_team_of_the_engine_warns_too_and_goes_on() -> None:
    rules = {"profile": "observed", "max_steps": 50}
    d = DrivenRun(team({"a": ["b"], "b": ["a"]}, terminator="a", stop_rules=rules))
    for n in range(12):
        d.hand("ba"[n % 2], text=f"thought {n}")
    warnings = [e for e in d.events if isinstance(e, Warned) and e.code in EARLY_CODES]
    assert [(event.code, event.step_id) for event in warnings] == [("pattern_by_names", "b")]
    assert not d.run.has_ended
    assert d.run.ledger.warned == ("pattern_by_names",)


def test_a_new_stretch_may_be_warned_again() -> None:
    ledger = add_warning(add_warning(Ledger(), "timeouts"), "timeouts")
    assert ledger.warned == ("timeouts",)
    assert add_warning(ledger, "") is ledger
    assert renew(ledger).warned == ()


def test_what_is_counted_is_bounded() -> None:
    repeats = Repeats()
    for n in range(KEYS_KEPT + 9):
        text = StepFinding(kind=FindingKind.TEXT, key="k", answer="a", start=str(n))
        repeats = add_findings(repeats, n, (text,), News.WEAK)
    assert len(repeats.begun) == KEYS_KEPT


def test_only_long_texts_have_a_beginning() -> None:
    reader = FindingReader()
    short, long = reader.read_text("a", "go on"), reader.read_text("a", LONG)
    assert short is not None
    assert not short.start
    assert long is not None
    assert long.start


def test_a_dry_run_records_each_rule_that_would_have_stopped_it() -> None:
    guard = Guard(StopRules(max_handoffs=8), dry_run=True)
    with guard.run("r") as run:
        for _ in range(9):
            run.handoff("a", "b")
            run.handoff("b", "a")
    report = run.report()
    assert report.dry_run
    told = [(would.rung, would.rule, would.step) for would in report.would_have]
    assert told == [(would.rung, would.rule, would.step) for would in run.would_have]
    stops = [rule for rung, rule, _ in told if rung == "stop"]
    assert stops == ["repeated_pattern", "max_handoffs", "max_edge"]
    assert set(codes(run)) == {"would_nudge", "would_stop"}
