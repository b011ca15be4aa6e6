"""Classes of runs that the rules meet outside: the good ones go on, the bad ones are stopped.

Each class is a generator of steps of any length; its details are drawn, so that no rule fits a
text. A good run is played for thirty rounds; a bad one is stopped by its tenth repetition.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random

import pytest
from tests.kernel.test_news import LONG, Step, play, rule_of, steps_of

from handrail.guard.run import GuardedRun
from handrail.kernel.stop.rules import StopRule

ROUNDS = 30
Play = Callable[[Random], Iterator[Step]]


def call(
    tool: str, arguments: object, result: object, error: str | None = None, agent: str = "agent"
) -> Step:
    return lambda run: run.called(agent, tool, arguments, result, error)


def say(text: str, agent: str = "agent") -> Step:
    return lambda run: run.said(agent, text)


def word(random: Random) -> str:
    return "".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=8))


def words(random: Random, count: int) -> str:
    return " ".join(word(random) for _ in range(count))


def edit_and_test(random: Random) -> Iterator[Step]:
    """A coding agent: the same test run between edits, red until the end."""
    while True:
        edit = {"command": "str_replace", "path": "a.py", "new_str": words(random, 5)}
        yield call("str_replace_editor", edit, "The file a.py has been edited.")
        yield call("execute_bash", {"command": "pytest -q"}, "1 failed, 11 passed in 0.31s")


def look_again_after_changes(random: Random) -> Iterator[Step]:
    """An interactive shell: `ls` again after each change, which it does not show."""
    yield call("bash", "ls", "notes.txt")
    while True:
        yield call("bash", f"echo {word(random)} >> notes.txt", "")
        yield call("bash", "ls", "notes.txt")


def undo_check_redo(random: Random) -> Iterator[Step]:
    """The fix is undone to see the test fail, and applied again; then the next one."""
    while True:
        fix = word(random)
        for patch, result in (("apply", "ok"), ("revert", "1 failed"), ("apply", "ok")):
            yield call("bash", f"git {patch} {fix}", "")
            yield call("bash", "pytest", result)


def pages_by_cursor(random: Random) -> Iterator[Step]:
    """The same call with a cursor."""
    cursor = ""
    while True:
        rows = [{"name": word(random)} for _ in range(5)]
        yield call("list_orders", {"cursor": cursor}, {"rows": rows, "next": cursor})
        cursor = word(random)


def pages_without_cursor(random: Random) -> Iterator[Step]:
    """`next_page` takes no argument, and its JSON has no white space."""
    while True:
        yield call("next_page", {}, {"items": [{"id": word(random)} for _ in range(5)]})


def poll(random: Random) -> Iterator[Step]:
    while True:
        yield call("get_job", {"id": 7}, {"status": "running", "percent": random.randrange(100)})


def poll_with_pauses(random: Random) -> Iterator[Step]:
    """Sleep, and look; sleep, and look."""
    while True:
        yield call("bash", "sleep 30", "")
        yield call("bash", "tail -1 build.log", "compiling kernel")


def retry_with_backoff(random: Random) -> Iterator[Step]:
    seconds = 1
    while True:
        yield call("http_get", {"url": "/orders"}, None, "HTTP 503 Service Unavailable")
        yield call("sleep", {"seconds": seconds}, "")
        seconds *= 2


def wait_for_a_server(random: Random) -> Iterator[Step]:
    while True:
        command = "sleep 2; curl -s localhost:8000"
        yield call("bash", command, None, "curl: (7) Failed to connect to localhost port 8000")


def rate_limited_searches(random: Random) -> Iterator[Step]:
    """Different calls meet a provider that is away."""
    while True:
        yield call("search", {"q": words(random, 3)}, None, "Error: rate limited, try again later")


def support_chat(random: Random) -> Iterator[Step]:
    """A customer who answers, and an agent that asks the same way."""

    def hear(answer: str) -> Step:
        finding = {"kind": "person", "key": "person", "answer": answer}
        return lambda run: run.result("agent", evidence={"findings": [finding]})

    while True:
        yield hear(word(random))
        yield say("Could you give me your order number, please?")


def browse(random: Random) -> Iterator[Step]:
    """Scrolling down a page: the frame stays, the contents change."""
    frame = words(random, 20)
    while True:
        yield call("scroll", {"direction": "down"}, f"{frame} {words(random, 60)}")


def research_team(random: Random) -> Iterator[Step]:
    """An orchestrator that says the same to people who find something else each time."""
    while True:
        yield say("Please look further into this and report back.", "orchestrator")
        yield call("search", words(random, 4), words(random, 80), agent="researcher")
        yield say(words(random, 60), "writer")


def silent_commands(random: Random) -> Iterator[Step]:
    """Commands that say nothing, and greps that find nothing."""
    while True:
        yield call("bash", f"mkdir -p {word(random)}", "")
        yield call("bash", f"grep -r {word(random)} .", None, "")


def long_results(random: Random) -> Iterator[Step]:
    """Another file each time, of which only the middle differs."""
    head, tail = words(random, 300), words(random, 300)
    while True:
        yield call("read", {"path": word(random)}, f"{head} {words(random, 300)} {tail}")


def chinese_search(random: Random) -> Iterator[Step]:
    while True:
        page = "，".join(chr(random.randrange(0x4E00, 0x9FA5)) * 3 for _ in range(20))
        yield call("搜索", {"页": "下一页"}, page)


def same_call(random: Random) -> Iterator[Step]:
    while True:
        yield call("get_user", {"id": 7}, {"name": "ada", "plan": "free"})


def same_click_on_a_noisy_page(random: Random) -> Iterator[Step]:
    """A click that does nothing, on a page with other adverts and another request id each time."""
    frame = words(random, 200)
    while True:
        yield call("click", {"element": 5}, f"{frame} {words(random, 4)} {random.getrandbits(64)}")


def same_answer_with_clocks_and_ids(random: Random) -> Iterator[Step]:
    while True:
        result = {
            "request_id": f"{random.getrandbits(64):016x}",
            "at": f"2026-05-04T10:{random.randrange(60):02}:11Z",
            "created": 1_760_000_000 + random.randrange(10**6),
            "took": f"{random.randrange(900)} ms",
            "matches": [],
        }
        yield call("search", {"q": "handrail"}, result)


def same_long_answer_with_an_id(random: Random) -> Iterator[Step]:
    body = words(random, 400)
    while True:
        yield call("fetch", {"url": "/"}, f"{body} request {random.getrandbits(128):032x}")


def same_failure_of_different_calls(random: Random) -> Iterator[Step]:
    while True:
        yield call("sql", f"select {word(random)}", '{"error": "no database selected"}')


def same_failure_in_german(random: Random) -> Iterator[Step]:
    while True:
        yield call("abfrage", word(random), "Fehler: keine Verbindung zur Datenbank")


def same_empty_answer(random: Random) -> Iterator[Step]:
    while True:
        yield call("bash", "grep needle haystack.txt", "")


def two_calls_in_turn(random: Random) -> Iterator[Step]:
    while True:
        yield call("bash", "cat a.txt", "see b.txt")
        yield call("bash", "cat b.txt", "see a.txt")


def same_text(random: Random) -> Iterator[Step]:
    while True:
        yield say("I will now continue with the next step.")


def same_plan_in_other_words(random: Random) -> Iterator[Step]:
    plan = words(random, 100)
    while True:
        yield say(f"{plan} {words(random, 3)}")


def two_agents_that_agree(random: Random) -> Iterator[Step]:
    while True:
        yield say("Great, anything else?", "a")
        yield say("No, thank you. Anything else?", "b")


def counter(random: Random) -> Iterator[Step]:
    number = 0
    while True:
        number += 1
        yield call("next_id", {}, f"the next id is {number}")


def apology(random: Random) -> Iterator[Step]:
    """The same long apology, with a thought of somebody else in between."""
    while True:
        yield say(LONG)
        yield say(word(random), "critic")


GOOD: list[Play] = [
    edit_and_test,
    look_again_after_changes,
    undo_check_redo,
    pages_by_cursor,
    pages_without_cursor,
    poll,
    poll_with_pauses,
    retry_with_backoff,
    wait_for_a_server,
    rate_limited_searches,
    support_chat,
    browse,
    research_team,
    silent_commands,
    long_results,
    chinese_search,
]
BAD: list[tuple[Play, int]] = [
    (same_call, 1),
    (same_click_on_a_noisy_page, 1),
    (same_answer_with_clocks_and_ids, 1),
    (same_long_answer_with_an_id, 1),
    (same_failure_of_different_calls, 1),
    (same_failure_in_german, 1),
    (same_empty_answer, 1),
    (two_calls_in_turn, 2),
    (same_text, 1),
    (same_plan_in_other_words, 1),
    (two_agents_that_agree, 2),
    (counter, 1),
    (apology, 2),
]
"""Each with the steps of one repetition."""


def start(random: Random) -> list[Step]:
    """Some work before, or none."""
    return [call("bash", word(random), words(random, 9)) for _ in range(random.choice((0, 0, 3)))]


def played(generator: Play, seed: int, count: int) -> tuple[GuardedRun, int]:
    random = Random(seed)
    before = start(random)
    return play([*before, *islice(generator(random), count)]), len(before)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("generator", GOOD)
def test_a_run_that_gets_somewhere_or_waits_goes_on(generator: Play, seed: int) -> None:
    run, _ = played(generator, seed, 2 * ROUNDS)
    assert rule_of(run) == StopRule.COMPLETED


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("generator", "period"), BAD)
def test_a_run_that_repeats_itself_is_stopped_by_the_tenth_time(
    generator: Play, period: int, seed: int
) -> None:
    run, before = played(generator, seed, ROUNDS * period)
    assert rule_of(run) != StopRule.COMPLETED
    assert steps_of(run) - before <= 10 * period
