"""Crews of CrewAI under guard, with stub models. It wants an environment of its own, with its own
versions; docs/guard-crewai.md has the command.
"""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from crewai import Crew, Process
from crewai.events import crewai_event_bus
from crewai.hooks import InterceptionPoint, get_hooks
from crewai.tools import ToolFailure, tool
from tests.frameworks.crewai_stubs import (
    DONE,
    Stub,
    acts,
    agent,
    calls,
    crew,
    delegates,
    handoffs,
    look,
    run,
    says,
    task,
)
from tests.patience import PATIENCE

from handrail import (
    BudgetSpent,
    Guard,
    LimitReached,
    LoopDetected,
    NoProgress,
    Stopped,
    StopRules,
)
from handrail.guard import crewai as adapter
from handrail.guard import plain
from handrail.guard.crewai import guarded

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _nothing_goes_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No thread of a crew is left when a test has ended."""
    monkeypatch.setattr(adapter, "EVENT_FLUSH_SECONDS", PATIENCE)
    before = set(threading.enumerate())
    yield
    crewai_event_bus.flush(PATIENCE)
    left = set(threading.enumerate()) - before
    assert not [one for one in left if one.daemon and "_execute_task_async" in one.name]


def test_when_nothing_fires_the_crew_s_own_result_comes_back():
    guard = Guard()
    team = crew(agent("planner", says("a")), agent("coder", says("b")))
    assert guarded(team, guard).kickoff().raw == "b"
    assert handoffs(guard) == [("planner", "coder")]
    assert guard.last.report().usage.tokens == 20
    assert run(guarded(team, guard).akickoff()).raw == "b"
    assert run(guarded(team, guard).kickoff_async()).raw == "b"
    assert handoffs(guard) == [("planner", "coder")]
    assert guard.last.report().usage.tokens == 20


def test_a_manager_that_delegates_for_ever_is_stopped_with_what_is_done():
    manager = agent("planner", delegates, allow_delegation=True)
    coder = agent("coder", says("ok"))
    team = Crew(agents=[manager, coder], tasks=[task(coder), task(manager)])
    for _ in range(2):  # what an earlier run had done is no part of it
        with pytest.raises(LoopDetected) as caught:
            guarded(team).kickoff()
        assert caught.value.stop.pattern == ("planner -> coder",)
        assert [output.raw for output in caught.value.partial] == ["ok"]
    assert manager.llm.asked == 6
    manager.llm.says = says("left in good order")
    assert team.kickoff().raw == "left in good order"


class Listens(Stub):
    """Keeps the messages that it is asked with."""

    inputs: list[str] = []

    def call(self, messages, *given, **more):
        self.inputs.append(str(messages))
        return super().call(messages, *given, **more)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("start", ["kickoff", "akickoff"])
def test_a_model_is_told_once_that_a_stop_is_near(native, start):
    again = {"where": "the drawer"}
    model = Listens(
        model="stub",
        says=lambda n: calls("look", again) if native else acts("look", **again),
        native=native,
    )
    guard = Guard()
    team = guarded(crew(agent("seeker", says(""), llm=model, tools=[look])), guard)
    with pytest.raises(Stopped) as caught:
        team.kickoff() if start == "kickoff" else run(team.akickoff())
    assert caught.value.stop.rule in ("no_change", "same_error", "repeated_pattern")
    nudges = [text.count("The stop rule") for text in model.inputs]
    assert nudges[-1] == 1, "the model was told before the end"
    assert nudges[:2] == [0, 0], "and not before there was a reason"


def test_a_guarded_crew_passes_for_the_crew_itself():
    team = crew(agent("planner", says("a")))
    guarded_team = guarded(team)
    assert isinstance(guarded_team, Crew)
    assert guarded_team.agents is team.agents
    assert guarded_team.kickoff(inputs={"ticket": "4711"}).raw == "a"
    results = run(guarded_team.kickoff_for_each_async(inputs=[{"n": "1"}, {"n": "2"}]))
    assert [result.raw for result in results] == ["a", "a"]
    assert run(guarded_team.akickoff_for_each([{"n": "1"}]))[0].raw == "a"


@pytest.mark.parametrize("native", [False, True])
def test_a_hierarchical_crew_whose_manager_asks_for_ever_is_stopped(native):
    given = {"task": "again", "context": "-", "coworker": "coder"}
    asks = (lambda n: calls("delegate_work_to_coworker", given)) if native else delegates
    coder, manager = agent("coder", says("ok")), agent("boss", asks, native=native)
    team = Crew(
        agents=[coder], tasks=[task(None)], process=Process.hierarchical, manager_agent=manager
    )
    guard = Guard()
    with pytest.raises(LoopDetected):
        guarded(team, guard).kickoff()
    assert handoffs(guard) == [("boss", "coder")] * 3
    assert guard.last.report().usage.tokens == 50, "answers that only call tools cost something too"


@pytest.mark.parametrize("native", [False, True])
def test_a_coworker_that_calls_what_it_has_not_got_is_stopped(native):
    asks = (lambda n: calls("fly", {"to": f"{n}"})) if native else None
    lost = agent("lost", asks or (lambda n: acts("fly", to=f"{n}")), tools=[look], native=native)
    manager = agent(
        "planner",
        lambda n: acts("ask_question_to_coworker", question="?", context="-", coworker="lost"),
        allow_delegation=True,
    )
    guard = Guard()
    with pytest.raises(NoProgress):
        guarded(Crew(agents=[manager, lost], tasks=[task(manager)]), guard).kickoff()
    assert handoffs(guard) == [("planner", "lost")]
    assert (manager.llm.asked, lost.llm.asked) == (1, 3)


def test_a_tool_that_fails_the_same_way_is_a_failure_and_nothing_more_is_spent():
    @tool("look")
    def missing(where: str) -> str:
        """Looks there."""
        raise ValueError("not there")

    @tool("look")
    def reports(where: str) -> Any:
        """Looks there."""
        return ToolFailure(message="not there")

    for one, native in ((missing, False), (missing, True), (reports, True)):
        asks = (lambda n: calls("look", {"where": f"{n}"})) if native else None
        seeker = agent(
            "seeker", asks or (lambda n: acts("look", where=f"{n}")), tools=[one], native=native
        )
        with pytest.raises(NoProgress) as caught:
            guarded(crew(seeker)).kickoff()
        assert caught.value.stop.rule == "same_error"
        assert seeker.llm.asked == 3
    with pytest.raises(Stopped) as caught:
        seeker = agent("seeker", lambda n: acts("look", where=f"{n}"), tools=[look])
        guarded(crew(seeker), Guard(StopRules(max_tokens=25))).kickoff()
    assert (caught.value.stop.rule, caught.value.stop.seen) == ("budget", 30)


@pytest.mark.parametrize("native", [False, True])
def test_a_tool_that_is_asked_the_same_and_says_the_same_is_no_progress(native):
    asks = (lambda n: calls("look", {"where": "x"})) if native else None
    seeker = agent(
        "seeker", asks or (lambda n: acts("look", where="x")), tools=[look], native=native
    )
    team = crew(seeker)
    with pytest.raises(NoProgress) as caught:
        guarded(team).kickoff()
    assert caught.value.stop.rule == "no_change"
    assert seeker.llm.asked == 4


def test_many_calls_of_one_answer_are_one_step_of_the_agent_that_made_them():
    places = [{"where": f"{number}"} for number in range(6)]
    seeker = agent(
        "seeker",
        lambda n: calls("look", *places) if n == 1 else "found",
        tools=[look],
        native=True,
    )
    guard = Guard()
    assert guarded(crew(seeker), guard).kickoff().raw == "found"
    (first, _) = [event.result for event in guard.last.events if hasattr(event, "result")]
    assert len(first.evidence.checks) == 6
    assert handoffs(guard) == []


def test_tasks_beside_each_other_hand_over_to_nobody_and_are_handed_to_by_who_came_before():
    first, last = agent("first", says("go")), agent("last", says("done"))
    workers = [
        agent(
            f"w{one}",
            lambda n, one=one: acts("look", where=f"{one}.{n}") if n < 4 else DONE.format("ok"),
            tools=[look],
        )
        for one in range(3)
    ]
    tasks = [task(first), *(task(one, async_execution=True) for one in workers)]
    team = Crew(agents=[first, *workers, last], tasks=[*tasks, task(last, context=tasks)])
    for kickoff in (
        lambda one: one.kickoff(),
        lambda one: run(one.akickoff()),
        lambda one: run(one.kickoff_async()),
    ):
        for one in workers:
            one.llm.asked = 0
        guard = Guard()
        assert kickoff(guarded(team, guard)).raw == "done"
        *found, (source, target) = handoffs(guard)
        assert sorted(found) == [("first", f"w{one}") for one in range(3)]
        assert (source[0], target) == ("w", "last")
        assert guard.last.report().usage.tokens == 140


def test_a_stop_leaves_no_task_beside_the_others_going_on():
    loops = agent("loops", lambda n: acts("look", where=f"a{n}"), tools=[look])
    other = agent("other", lambda n: acts("look", where=f"b{n}"), tools=[look])
    last = agent("last", says("done"))
    tasks = [task(loops, async_execution=True), task(other, async_execution=True), task(last)]
    team = Crew(agents=[loops, other, last], tasks=tasks)
    rules = Guard(StopRules(max_tokens=200))
    for kickoff in (
        lambda one: one.kickoff(),
        lambda one: run(one.akickoff()),
        lambda one: run(one.kickoff_async()),
    ):
        with pytest.raises(Stopped):
            kickoff(guarded(team, rules))
        asked = loops.llm.asked, other.llm.asked
        assert last.llm.asked == 0
        assert asked == (loops.llm.asked, other.llm.asked)


def test_a_long_list_of_tasks_between_the_same_agents_is_no_loop():
    planner, coder = agent("planner", says("a")), agent("coder", says("b"))
    guard = Guard()
    assert guarded(crew(*[planner, coder] * 6), guard).kickoff().raw == "b"
    assert handoffs(guard) == [("planner", "coder"), ("coder", "planner")]


def test_a_guardrail_that_is_never_content_ends_as_it_does_without_a_guard():
    one = agent("writer", says("bad"))
    team = Crew(
        agents=[one],
        tasks=[task(one, guardrail=lambda out: (False, "no"), guardrail_max_retries=2)],
    )
    guard = Guard()
    with pytest.raises(Exception, match="guardrail") as caught:
        guarded(team, guard).kickoff()
    assert not isinstance(caught.value, Stopped)
    assert guard.last.stop.rule == "agent_lost"
    assert one.llm.asked == 3
    with pytest.raises(Stopped, match="max_steps"):
        guarded(team, Guard(StopRules(max_steps=1))).kickoff()


def test_an_agent_at_its_own_limit_gives_the_answer_that_it_is_made_to():
    one = agent("seeker", lambda n: acts("look", where=f"{n}") if n < 4 else DONE.format("so"))
    one.tools, one.max_iter = [look], 3
    assert guarded(crew(one)).kickoff().raw == "so"


def test_a_crew_that_ran_before_without_a_guard_is_guarded_now_and_free_afterwards():
    planner = agent("planner", says("a"))
    team = crew(planner)
    assert team.kickoff().raw == "a"
    planner.llm.says = lambda n: acts("look", where="x") if n < 20 else DONE.format("b")
    planner.tools = [look]
    with pytest.raises(NoProgress):
        guarded(team).kickoff()
    planner.llm.asked = 16
    assert team.kickoff().raw == "b"
    assert get_hooks(InterceptionPoint.PRE_MODEL_CALL) == []


def test_each_input_of_many_is_a_run_of_its_own():
    model = Stub(model="stub", says=says("ok"))
    one, two = agent("planner", says("-"), llm=model), agent("coder", says("-"), llm=model)
    guard = Guard()
    inputs = [{"n": number} for number in range(5)]
    found = guarded(crew(one, two), guard).kickoff_for_each(inputs)
    assert [output.raw for output in found] == ["ok"] * 5
    assert guard.last.report().usage.tokens == 20


def test_two_crews_at_once_that_share_a_model_do_not_see_each_other():
    model = Stub(model="stub", says=says("ok"))
    both = threading.Barrier(2, timeout=PATIENCE)

    def meets(number: int) -> str:
        if number <= 2:
            both.wait()
        return DONE.format("ok")

    model.says = meets
    guards = [Guard(), Guard()]
    teams = [
        crew(agent(f"a{one}", says("-"), llm=model), agent(f"b{one}", says("-"), llm=model))
        for one in range(2)
    ]
    threads = [
        threading.Thread(target=lambda one=one: guarded(teams[one], guards[one]).kickoff())
        for one in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert [handoffs(guard) for guard in guards] == [[("a0", "b0")], [("a1", "b1")]]
    assert [guard.last.report().usage.tokens for guard in guards] == [20, 20]


def test_a_crew_in_a_guarded_loop_of_ones_own_is_a_run_inside_it():
    outer = Guard()
    manager = agent("planner", delegates, allow_delegation=True)
    inner = guarded(crew(manager, agent("coder", says("ok"))))

    def team() -> None:
        inner.kickoff()

    with pytest.raises(LoopDetected):
        plain.guarded(team, outer)()
    assert outer.last.stop.reason.startswith("a run inside it was stopped: repeated_pattern")


def test_a_stream_is_refused():
    with pytest.raises(NotImplementedError, match="cannot be guarded"):
        guarded(crew(agent("planner", delegates), stream=True)).kickoff()


def looks_on(number: int) -> str:
    return acts("look", where=f"place {number}")


def test_a_crew_is_stopped_at_max_cost_with_the_figure():
    guard = Guard(StopRules(max_cost=0.001), prices={"stub": (1.0, 30.0)})
    team = guarded(crew(agent("a", looks_on, tools=[look])), guard)
    with pytest.raises(BudgetSpent) as caught:
        team.kickoff()
    assert caught.value.stop.limit_name == "max_cost"
    assert caught.value.stop.seen == pytest.approx(0.0012)
    assert guard.last.report().usage.unpriced_calls == 0


def test_a_crew_is_stopped_at_the_limit_of_a_tool():
    guard = Guard(StopRules(tool_limits={"look": 4}))
    with pytest.raises(LimitReached) as caught:
        guarded(crew(agent("a", looks_on, tools=[look])), guard).kickoff()
    stop = caught.value.stop
    assert (stop.rule, stop.limit, stop.seen) == ("tool_limit", 4, 5)
