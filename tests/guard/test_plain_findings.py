"""What plain functions are given and return counts, where nothing else of a turn is seen."""

import asyncio
from typing import Any

import pytest

from handrail import Guard, Stopped
from handrail.guard.plain import agent, guarded, nudge, tool, used
from handrail.kernel.run.events import Reported
from handrail.kernel.stop.findings import StepFinding

ROUNDS_MAX = 10


def findings(guard: Guard) -> list[StepFinding]:
    assert guard.last is not None
    return [
        finding
        for event in guard.last.events
        if isinstance(event, Reported)
        for finding in event.result.evidence.findings
    ]


def rounds_until_stopped(loop: Any) -> int:
    rounds: list[int] = []
    with pytest.raises(Stopped):
        guarded(loop)(rounds)
    return len(rounds)


def test_a_loop_that_shows_only_names_is_stopped() -> None:
    @agent("planner")
    def plan() -> str:
        return "coder"

    @agent("coder")
    def code() -> str:
        return "planner"

    def loop(rounds: list[int]) -> None:
        while True:
            rounds.append(1)
            plan()
            code()

    assert rounds_until_stopped(loop) <= ROUNDS_MAX


def test_a_history_that_grows_by_the_same_is_stopped() -> None:
    @agent("a")
    async def say(messages: list[dict[str, str]]) -> dict[str, str]:
        return {"role": "a", "content": "after you"}

    async def loop(rounds: list[int]) -> None:
        messages = [{"role": "user", "content": "go"}]
        while True:
            rounds.append(1)
            messages.append(await say(messages))

    rounds: list[int] = []
    with pytest.raises(Stopped):
        asyncio.run(guarded(loop)(rounds))
    assert len(rounds) <= ROUNDS_MAX


def test_functions_that_are_given_something_else_each_time_go_on() -> None:
    @agent("worker")
    def work(file: str, options: dict[str, Any]) -> str:
        return "ok"

    @agent("checker")
    def check(files: set[str]) -> bool:
        return True

    def loop() -> str:
        done: set[str] = set()
        for n in range(40):
            work(f"file {n}", {"strict": True})
            done.add(f"file {n}")
            check(done)
        return "done"

    assert guarded(loop)() == "done"


def test_a_function_that_returns_nothing_shows_nothing() -> None:
    @agent("worker")
    def work() -> None: ...

    @agent("other")
    def rest() -> None: ...

    def loop() -> str:
        for _ in range(40):
            work()
            rest()
        return "done"

    guard = Guard()
    assert guarded(loop, guard)() == "done"
    assert findings(guard) == []


def test_a_poll_of_a_function_is_waiting() -> None:
    @agent("poller")
    def poll(job: str) -> str:
        return "running"

    def loop() -> str:
        for _ in range(50):
            poll("job 7")
        return "done"

    assert guarded(loop)() == "done"


def test_where_a_tool_or_a_model_is_seen_the_function_s_own_result_counts_for_nothing() -> None:
    @tool
    def search(words: str) -> str:
        return "nothing found"

    @agent("seeker")
    def seek(turn: int) -> int:
        search("trees")
        return turn

    @agent("writer")
    def write(turn: int) -> int:
        used(tokens=1, text="nothing yet")
        return turn

    def loop(rounds: list[int]) -> None:
        while True:
            rounds.append(1)
            seek(len(rounds))
            write(len(rounds))

    assert rounds_until_stopped(loop) <= ROUNDS_MAX


def test_a_function_that_fails_again_and_again_is_stopped() -> None:
    @agent("builder")
    def build(target: str) -> str:
        raise OSError("disk full")

    def loop(rounds: list[int]) -> None:
        while True:
            rounds.append(1)
            try:
                build("all")
            except OSError:
                continue

    assert rounds_until_stopped(loop) <= ROUNDS_MAX


def test_only_digests_are_kept_and_deep_or_large_values_are_bounded() -> None:
    @agent("a")
    def look(value: Any) -> Any:
        return value

    deep: Any = ["secret"]
    for _ in range(100):
        deep = [deep, {"secret": deep}]
        deep = deep[0:1] if len(str(deep)) > 10_000 else deep
    guard = Guard()
    guarded(lambda: (look(deep), look(["secret"] * 100_000), look("secret " * 500_000)), guard)()
    assert guard.last is not None
    assert len(findings(guard)) == 3
    assert "secret" not in str(guard.last.events[1:])


def test_a_loop_can_tell_its_model_that_a_rule_is_near() -> None:
    @agent("seeker")
    def seek(prompt: str) -> str:
        used(tokens=1, text="I am on it")
        return "seeker"

    nudges: list[str] = []

    def loop(rounds: list[int]) -> None:
        while True:
            rounds.append(1)
            seek("go on")
            nudges.append(nudge())

    assert rounds_until_stopped(loop) <= ROUNDS_MAX
    assert next(filter(None, nudges)).startswith("The stop rule")
    assert nudge() == ""
