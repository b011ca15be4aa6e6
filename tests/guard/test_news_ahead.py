"""A guard that takes news ahead of its ledger sees what one sees that asks every rule each time."""

import tracemalloc
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from handrail import Guard, StopRules
from handrail.guard import GuardedRun
from handrail.guard.tool_calls import ToolCall
from handrail.kernel.definition.limits import Constraints, Ladder
from handrail.kernel.result import Usage
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.lookahead import apply_guarded_events
from handrail.kernel.stop.findings import COMPARED_CHARS, KEYS_KEPT
from handrail.kernel.stop.ledger import Ledger
from handrail.testing.clock import ManualClock

Move = Callable[[GuardedRun, ManualClock], Any]
AGENTS = st.sampled_from("ab")
FEW = st.integers(0, 4)
PLAN = "we are working on the request of the user, and this is the plan that we have " * 4
TEXTS = st.sampled_from([*"xyz", *(f"{PLAN} {n}" for n in "uvw"), "another begin. " + PLAN])
ANSWERS = st.sampled_from(
    [None, "one", "two", "three pages 1", "three pages 2", "running", "Error: no file",
     "Error: timed out", "Error: 429 too many requests", ""]
)  # fmt: skip
CALLS: st.SearchStrategy[tuple[Any, ...]] = st.tuples(
    st.sampled_from(["look", "wait"]), FEW, ANSWERS, st.none() | st.just("ValueError: bad")
)


def step(agent: str, text: str, calls: list[Any], state: Any, handoff: Any) -> Move:
    """A step as an adapter records it."""

    def move(run: GuardedRun, clock: ManualClock) -> None:
        made = [ToolCall(agent, *call) for call in calls]
        evidence = run.step_reader.read_step(agent, text, made, state, handoff)
        run.record_result(agent, text, evidence, Usage(tokens=len(text) % 3))

    return move


STATES = st.none() | st.builds(lambda n, m: {"n": n, "m": "abc"[m % 3]}, FEW, FEW)
MOVES: st.SearchStrategy[Move] = st.one_of(
    st.builds(lambda a, c: lambda run, _: run.called(a, *c), AGENTS, CALLS),
    st.builds(lambda a, t: lambda run, _: run.said(a, t), AGENTS, TEXTS),
    st.builds(lambda a, s: lambda run, _: run.state(a, s or {}), AGENTS, STATES),
    st.builds(lambda a, b: lambda run, _: run.handoff(a, b), AGENTS, AGENTS),
    st.builds(lambda a, b: lambda run, _: run.handoff(a, b), AGENTS, AGENTS),
    st.builds(lambda a: lambda run, _: run.waiting(a, "build"), AGENTS),
    st.builds(
        step,
        AGENTS,
        st.just("") | TEXTS,
        st.lists(CALLS, max_size=3),
        STATES,
        st.none() | st.tuples(AGENTS, st.sampled_from(["", "please"])),
    ),
    st.builds(lambda a, n: lambda run, _: run.result(a, usage={"tokens": n}), AGENTS, FEW),
    st.builds(
        lambda a, e: lambda run, _: run.result(a, evidence=e),
        AGENTS,
        st.sampled_from(
            [{"score": 0.5}, {"files": {"a.py": "1"}}, {"failures": ["x"]}, {"ticket_state": "y"},
             {"checks": [{"command": "look", "exit_code": 1, "stderr": "E"}]},
             {"checks": [{"command": "look", "exit_code": 0}]}]
        ),
    ),
    st.builds(lambda n: lambda run, clock: clock.advance(n), FEW),
)  # fmt: skip
AGAIN: st.SearchStrategy[list[Move]] = st.builds(
    lambda before, unit, times, after: before + unit * times + after,
    st.lists(MOVES, max_size=10),
    st.lists(MOVES, min_size=1, max_size=3),
    st.integers(2, 5),
    st.lists(MOVES, max_size=6),
)
WARNED: st.SearchStrategy[list[Move]] = st.builds(
    lambda again: [lambda run, _: talk(run, 4, "news {}"), *again], AGAIN
)
"""First, names alone repeat, of which a run warns once."""
LIMITS: dict[str, st.SearchStrategy[Any]] = {
    "max_handoffs": st.integers(1, 20),
    "max_steps": st.integers(1, 30),
    "max_edge": st.integers(1, 8),
    "max_duration": st.integers(1, 60),
    "repeat_limit": st.integers(2, 4),
    "max_tokens": st.integers(1, 40),
    "same_error_limit": st.none() | st.integers(1, 4),
    "no_change_limit": st.none() | st.integers(1, 4),
    "oscillation_limit": st.none() | st.integers(1, 4),
    "monologue_limit": st.none() | st.integers(2, 4),
    "research_limit": st.integers(1, 3),
    "weak_news_max": FEW,
    "tool_limits": st.just({"look": 3}),
    "constraints": st.just(Constraints(commands=("look*4*",), paths=("a.py",))),
    "wait_deadline": st.integers(1, 10),
    "ladder": st.builds(Ladder, nudge=st.booleans(), conclude=st.booleans()),
    "profile": st.sampled_from(["observed", "conversation"]),
}
RULES = st.builds(
    lambda limits: StopRules(**{"profile": "observed"} | limits),
    st.fixed_dictionaries({}, optional=LIMITS),
)


def played(
    rules: StopRules, moves: list[Move], threads: int, dry_run: bool
) -> list[tuple[list[RunEvent], Ledger, list[Any]]]:
    """The moves, in several runs of one thread."""
    clock = ManualClock()
    guard = Guard(rules, clock=clock.now, dry_run=dry_run)
    seen: list[Any] = []
    for part in range(threads):
        with guard.run("r", raises=False, thread="t" if threads > 1 else "", task="x") as run:
            for move in moves[part::threads]:
                move(run, clock)
            ledger = run._catch_up()
        seen.append((run.events, ledger, run.would_have))
    return seen


@given(RULES, st.lists(MOVES, max_size=60) | AGAIN | WARNED, st.integers(1, 2), st.booleans())
@settings(max_examples=300, deadline=None)
def test_news_taken_ahead_is_what_every_rule_would_have_seen(
    rules: StopRules, moves: list[Move], threads: int, dry_run: bool
) -> None:
    seen = played(rules, moves, threads, dry_run)
    with (
        patch("handrail.guard.fast_path.look_for_news", lambda *_: None),
        patch("handrail.guard.fast_path.may_repeat_blindly", lambda *_: False),
    ):
        assert played(rules, moves, threads, dry_run) == seen


def talk(run: GuardedRun, rounds: int, word: str) -> None:
    for number in range(rounds):
        for agent, other in ("ab", "ba"):
            run.said(agent, word.format(number))
            run.handoff(agent, other)


def test_handoffs_are_not_counted_once_the_run_has_warned_of_names_that_repeat() -> None:
    with (
        patch("handrail.guard.run.apply_guarded_events", wraps=apply_guarded_events) as counted,
        Guard().run("r", profile="observed", raises=False) as run,
    ):
        talk(run, 4, "first {}")
        assert counted.call_count > 0
        counted.reset_mock()
        talk(run, 40, "then {}")
        assert counted.call_count == 0


def test_a_pattern_without_news_ends_a_run_that_was_warned_of_its_names() -> None:
    off = dict.fromkeys(("no_change_limit", "oscillation_limit", "monologue_limit"))
    with Guard(StopRules(**off)).run("r", profile="observed", raises=False) as run:
        talk(run, 8, "news {}")
        assert run.stop is None
        talk(run, 4, "the same")
    assert run.stop is not None
    assert (run.stop.rule, run.stop.evidence[-1]) == ("repeated_pattern", "handoff 22")


def test_steps_that_bring_news_are_not_counted_until_one_brings_none() -> None:
    with (
        patch("handrail.guard.run.apply_guarded_events", wraps=apply_guarded_events) as counted,
        Guard().run("r", profile="observed", raises=False) as run,
    ):
        for number in range(20):
            run.called("a", "look", {"number": number}, f"page {number}")
            run.said("a", f"this is page {number}")
            run.handoff("a", "b")
            run.state("b", {"found": f"page {number}"})
            run.handoff("b", "a")
        assert counted.call_count == 0
        run.called("a", "look", {"number": 1}, "page 1")
        assert counted.call_count > 0
    assert run.stop is not None
    assert run.stop.rule == "completed"


def test_the_same_answer_again_after_news_taken_ahead_still_ends_the_run() -> None:
    with Guard().run("r", profile="observed", raises=False) as run:
        for number in range(5):
            run.called("a", "look", {"number": number}, f"page {number}")
        for _ in range(3):
            run.called("a", "look", {"number": 1}, "page 1")
    assert run.stop is not None
    assert (run.stop.rule, run.stop.evidence) == ("no_change", ("step 6", "step 7", "step 8"))


def test_weak_news_does_not_hide_that_a_call_came_again() -> None:
    with Guard().run("r", profile="observed", raises=False) as run:

        def look(*calls: tuple[int, str]) -> None:
            made = [ToolCall("a", "look", number, answer) for number, answer in calls]
            run.record_result("a", "", run.step_reader.tool_evidence(made), Usage())

        for calls in (
            [(1, "three pages 1")],
            [(2, "one")],
            [(1, "three pages 1")],
            [(1, "three pages 1"), (2, "one")],
        ):
            look(*calls)
        assert run.take_nudge() is None
        look((1, "three pages 2"))
        assert "no_change has counted 2 of 3" in (run.take_nudge() or "")


def test_a_long_run_keeps_a_bounded_record_of_each_call_however_long_its_answer() -> None:
    rules = StopRules(max_steps=10**6)
    pages = ["".join(f"word{n}x{m} " for m in range(2_000)) for n in range(20)]

    def look(run: GuardedRun, numbers: range) -> None:
        for number in numbers:
            run.called("a", "look", {"number": number}, f"{number} {pages[number % 20]}")

    with Guard(rules).run("r", profile="observed", raises=False) as run:
        look(run, range(KEYS_KEPT + 100))  # as many answers are kept as ever
        tracemalloc.start()
        look(run, range(KEYS_KEPT + 100, KEYS_KEPT + 600))
        kept_bytes, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert run.stop is not None
    assert run.stop.rule == "completed"
    compared_bytes = KEYS_KEPT * 2 * COMPARED_CHARS  # in place of answers that were kept before
    assert kept_bytes < compared_bytes + 500 * 1_500
