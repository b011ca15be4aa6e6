"""Plain Python under guard: decorators for agents, tools and the team."""

import asyncio

import pytest

from handrail import BudgetSpent, Guard, LoopDetected, NoProgress, StopRules
from handrail.guard.plain import agent, guarded, tool, used
from handrail.kernel.definition.limits import Constraints
from handrail.kernel.run.events import HandedOff


@pytest.fixture(autouse=True)
def _strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the profile that counts names, too; what is new by findings has tests of its own."""
    monkeypatch.setattr("handrail.guard.adapter.DEFAULT_PROFILE", "strict")


WORDS = ("oak", "elm", "ash", "fir", "yew", "bay", "fig", "may")


@agent("planner")
def plan() -> str:
    used(tokens=10)
    return "coder"


@agent("coder")
def code() -> str:
    return "planner"


def team(rounds: int = 50) -> str:
    for _ in range(rounds):
        plan()
        code()
    return "done"


def handoffs(guard: Guard) -> list[tuple[str, str]]:
    assert guard.last is not None
    return [(e.source, e.target) for e in guard.last.events if isinstance(e, HandedOff)]


def test_agents_that_call_for_each_other_in_a_loop_are_stopped():
    with pytest.raises(LoopDetected) as caught:
        guarded(team)()
    assert caught.value.stop.pattern == ("planner -> coder", "coder -> planner")


def test_outside_a_guarded_team_the_functions_are_what_they_were():
    assert team() == "done"
    assert plan.__name__ == "plan"


def test_a_team_that_comes_to_its_end_returns_its_own_result():
    guard = Guard()
    assert guarded(team, guard)(2) == "done"
    assert handoffs(guard) == [
        ("planner", "coder"),
        ("coder", "planner"),
        ("planner", "coder"),
    ]


def test_an_async_team_is_guarded_too():
    @agent("a")
    async def a() -> None: ...

    @tool
    async def look(place: str) -> str:
        return f"nothing in {place}"

    @agent("b")
    async def b() -> None:
        await look("here")

    async def loop() -> None:
        while True:
            await a()
            await b()

    with pytest.raises(LoopDetected):
        asyncio.run(guarded(loop)())


def test_an_agent_that_another_one_asks_gives_the_turn_back():
    @agent("expert")
    def expert(question: int) -> int:
        return question

    @agent("clerk")
    def clerk() -> None:
        expert(1)

    @agent("boss")
    def boss() -> None: ...

    def office() -> None:
        clerk()
        boss()

    guard = Guard()
    guarded(office, guard)()
    assert handoffs(guard) == [("clerk", "expert"), ("clerk", "boss")]


def test_what_is_used_is_counted_against_the_budget_before_more_is():
    guard = Guard(StopRules(max_tokens=25, repeat_limit=None, max_edge=None))
    with pytest.raises(BudgetSpent) as caught:
        guarded(team, guard)()
    assert caught.value.stop.seen == 30


def test_a_tool_that_fails_the_same_way_three_times_ends_the_run():
    @tool
    def build() -> None:
        raise OSError("disk full")

    @agent("builder")
    def turn() -> None:
        for _ in range(9):
            used(tokens=1)
            with pytest.raises(OSError, match="disk full"):
                build()

    with pytest.raises(NoProgress) as caught:
        guarded(turn)()
    assert caught.value.stop.rule == "same_error"


def office(found) -> None:
    """Two agents in turn, the first of which looks something up each time."""

    @tool
    def look(number: int) -> str:
        return found(number)

    @agent("seeker")
    def seek(number: int) -> None:
        used(tokens=1)
        look(number)

    @agent("keeper")
    def keep() -> None: ...

    for number in range(8):
        seek(number % 2)
        keep()


def test_a_tool_that_finds_something_new_each_time_is_progress():
    pages = iter("abcdefgh")
    guarded(office)(lambda number: f"page {next(pages)}")


def test_another_time_of_day_is_nothing_new():
    minutes = iter(range(10, 60))
    with pytest.raises((LoopDetected, NoProgress)):
        guarded(office)(lambda number: f"it is 2026-11-16T10:{next(minutes)}:00Z")


def test_arguments_are_kept_as_digests_unless_they_have_to_be_compared():
    @tool
    def run(command: str) -> str:
        return "ok"

    @agent("operator")
    def turn() -> None:
        used(tokens=1)
        run("rm -rf secret")

    guard = Guard()
    guarded(turn, guard)()
    assert guard.last is not None
    assert "secret" not in str(guard.last.events)
    forbidden = Guard(StopRules(constraints=Constraints(commands=("*rm -rf*",))))
    with pytest.raises(Exception, match="constraint"):
        guarded(turn, forbidden)()


def test_an_agent_that_is_called_again_and_again_does_not_hand_over_to_itself():
    @agent("x")
    def turn() -> None: ...

    def team() -> str:
        for _ in range(9):
            turn()
        return "done"

    assert guarded(team)() == "done"


def test_an_agent_that_is_asked_many_things_at_once_is_handed_to_once_by_who_asks():
    @agent("expert")
    async def expert(number: int) -> None:
        await asyncio.sleep(0)

    @agent("clerk")
    async def clerk() -> None:
        await asyncio.gather(*[expert(number) for number in range(50)])

    guard = Guard()
    asyncio.run(guarded(clerk, guard)())
    assert handoffs(guard) == [("clerk", "expert")]


@pytest.mark.parametrize("where", ["found", "given"])
def test_what_is_new_far_down_a_long_text_is_something_new(where: str):
    long = "".join(f"line {n} of what stays the same\n" for n in range(400))

    @tool
    def look(place: str) -> str:
        return long + WORDS[turns[0]] if where == "found" else "nothing"

    @agent("a")
    def turn() -> None:
        used(tokens=1)
        look(long + WORDS[turns[0]] if where == "given" else "there")

    @agent("b")
    def other() -> None:
        used(tokens=1)

    def team() -> str:
        for number in range(len(WORDS)):
            turns[0] = number
            turn()
            other()
        return "done"

    turns = [0]
    assert guarded(team)() == "done"


def test_what_yields_cannot_be_guarded_and_is_refused_when_it_is_decorated():
    def pieces():
        yield 1

    async def pieces_async():
        yield 1

    for function in (pieces, pieces_async):
        for decorate in (guarded, tool, agent("a")):
            with pytest.raises(ValueError, match="yields"):
                decorate(function)


def test_an_object_that_is_called_like_an_async_function_is_guarded_like_one():
    class Team:
        async def __call__(self) -> None:
            team()

    with pytest.raises(LoopDetected):
        asyncio.run(guarded(Team(), name="team")())


def test_what_a_function_leaves_to_be_run_later_is_refused():
    async def later() -> None: ...

    def pages():
        yield 1

    for function, kind in ((later, "coroutine"), (pages, "generator")):
        with pytest.raises(ValueError, match=f"returned a {kind}"):
            guarded(lambda function=function: function())()
        looks = tool(lambda function=function: function())
        with pytest.raises(ValueError, match="still to be run"):
            guarded(lambda looks=looks: looks())()
    assert list(tool(lambda: pages())()) == [1], "outside a guarded team it is what it was"
