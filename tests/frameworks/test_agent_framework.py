"""Workflows of Microsoft Agent Framework under guard, with stub executors and models."""

import asyncio
from typing import Any

import pytest
from agent_framework import (
    AgentExecutorResponse,
    Executor,
    InMemoryCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowConvergenceException,
    WorkflowExecutor,
    WorkflowRunResult,
    handler,
    workflow,
)
from tests.frameworks.agent_framework_stubs import (
    PATTERN,
    Asks,
    Node,
    agent,
    calls,
    handoffs,
    invoked,
    line,
    look,
    miss,
    nodes,
    ring,
    run,
    says,
    stopped,
    tokens,
)

from handrail import Guard, LoopDetected, Stopped, StopRules
from handrail.guard.agent_framework import guarded


def test_a_pair_that_goes_round_is_stopped_and_who_is_refused_does_not_begin():
    planner, coder = nodes("planner", "coder")
    guard = Guard()
    found = run(stopped(guarded(ring(planner, coder), guard).run("go")))
    assert isinstance(found, LoopDetected)
    assert found.stop.pattern == PATTERN
    assert len(handoffs(guard)) == 6
    assert (planner.ran, coder.ran) == (3, 3)
    assert isinstance(found.partial, WorkflowRunResult)
    assert invoked(found.partial) == ["planner", "coder"] * 3


def test_three_in_a_ring_and_one_that_sends_to_itself_are_stopped():
    guard = Guard()
    found = run(stopped(guarded(ring(*nodes("a", "b", "c")), guard).run("go")))
    assert found.stop.pattern == ("a -> b", "b -> c", "c -> a")
    assert len(handoffs(guard)) == 9
    found = run(stopped(guarded(ring(*nodes("a")), guard).run("go")))
    assert found.stop.pattern == ("a -> a",)
    assert len(handoffs(guard)) == 3


def test_executors_beside_each_other_are_handed_to_at_once():
    (first, last), many = nodes("first", "last"), nodes(*(f"n{number}" for number in range(30)))
    builder = WorkflowBuilder(start_executor=first)
    team = builder.add_fan_out_edges(first, many).add_fan_in_edges(many, last).build()
    guard = Guard()
    result = run(guarded(team, guard).run("go"))
    assert sorted(invoked(result)) == sorted(one.id for one in (first, *many, last))
    assert handoffs(guard) == [("first", "n0"), ("n0", "last")]


def test_many_messages_to_one_executor_are_one_handoff():
    class Deals(Executor):
        @handler
        async def deal(self, given: str, context: WorkflowContext[str]) -> None:
            for number in range(30):
                await context.send_message(f"{number}")

    (last,) = nodes("last")
    guard = Guard()
    run(guarded(line(Deals("first"), last), guard).run("go"))
    assert last.ran == 30
    assert handoffs(guard) == [("first", "last")]


def gathering(*team: Any, first: Executor, last: Executor) -> Any:
    """The first deals to all of the team, the last gathers and begins again."""
    builder = WorkflowBuilder(start_executor=first).add_fan_out_edges(first, team)
    return builder.add_fan_in_edges(team, last).add_edge(last, first).build()


def test_rounds_of_several_at_once_that_bring_nothing_are_stopped():
    first, a, b, last = nodes("first", "a", "b", "last")
    found = run(stopped(guarded(gathering(a, b, first=first, last=last)).run("go")))
    assert found.stop.pattern == ("first -> a", "a -> last", "last -> first")
    assert [one.ran for one in (first, a, b, last)] == [3, 3, 3, 3]


def test_rounds_of_several_at_once_that_find_something_new_go_on():
    class Gathers(Executor):
        rounds = 0

        @handler
        async def gather(
            self, given: list[AgentExecutorResponse], context: WorkflowContext[str, str]
        ) -> None:
            self.rounds += 1
            if self.rounds < 6:
                await context.send_message("go on")
            else:
                await context.yield_output("all found")

    def seeker(name: str) -> Any:
        def asks(n: int) -> Any:
            return calls("look", {"where": f"{name} {'abcdefghijkl'[n]}"}, n=n) if n % 2 else "ok"

        return agent(name, asks, tools=[look])

    (first,), last = nodes("first"), Gathers("last")
    guard = Guard()
    team = gathering(seeker("a"), seeker("b"), first=first, last=last)
    assert run(guarded(team, guard).run("go")).get_outputs()[-1] == "all found"
    assert (len(handoffs(guard)), last.rounds) == (17, 6)
    assert tokens(guard) == 2 * 2 * 6 * 10


def test_two_loops_beside_each_other_are_counted_as_one():
    first, a, b, c, d = nodes("first", "a", "b", "c", "d")
    builder = WorkflowBuilder(start_executor=first).add_fan_out_edges(first, [a, c])
    for one, other in ((a, b), (b, a), (c, d), (d, c)):
        builder.add_edge(one, other)
    guard = Guard()
    found = run(stopped(guarded(builder.build(), guard).run("go")))
    assert found.stop.pattern == ("a -> b", "b -> a")
    assert len(handoffs(guard)) == 7
    assert [one.ran for one in (a, b, c, d)] == [3, 3, 3, 3]


def test_a_loop_inside_a_sub_workflow_is_seen():
    first, planner, coder = nodes("first", "planner", "coder")
    inner = WorkflowExecutor(ring(planner, coder), id="team")
    guard, team = Guard(), line(first, inner)
    for count in (3, 6):  # and both workflows can be run again
        found = run(stopped(guarded(team, guard).run("go")))
        pattern = ("team/planner -> team/coder", "team/coder -> team/planner")
        assert found.stop.pattern == pattern
        assert handoffs(guard)[:2] == [("first", "team"), ("team", "team/planner")]
        assert (first.ran, planner.ran, coder.ran) == (count // 3, count, count)
        assert invoked(found.partial) == ["first", "team"]


def test_a_sub_workflow_that_is_part_of_a_loop_is_seen():
    class Ends(Executor):
        @handler
        async def end(self, given: str, context: WorkflowContext[str, str]) -> None:
            await context.yield_output(given)

    (planner, reader) = nodes("planner", "reader")
    inner = WorkflowExecutor(line(reader, Ends("writer")), id="team")
    found = run(stopped(guarded(ring(planner, inner)).run("go")))
    assert found.stop.pattern == (
        "planner -> team",
        "team -> team/reader",
        "team/reader -> team/writer",
        "team/writer -> planner",
    )


def test_a_loop_in_a_workflow_as_an_agent_inside_a_workflow_is_seen():
    planner, coder = agent("planner", says("a")), agent("coder", says("b"))
    guard, team = Guard(), line(agent("first", says("f")), ring(planner, coder).as_agent("team"))
    for number in (1, 2):  # and both workflows can be run again
        found = run(stopped(guarded(team, guard).run("go")))
        pattern = ("team/planner -> team/coder", "team/coder -> team/planner")
        assert found.stop.pattern == pattern
        assert tokens(guard) == 7 * 10
        assert planner.client.asked == 3 * number
        assert invoked(found.partial) == ["first", "team"]


def test_a_workflow_that_an_executor_holds_and_runs_itself_is_seen():
    class Runs(Executor):
        def __init__(self, held: Any) -> None:
            super().__init__("team")
            self.held = held

        @handler
        async def go(self, given: str, context: WorkflowContext[str]) -> None:
            await self.held.run(given)

    planner, coder = nodes("planner", "coder")
    found = run(stopped(guarded(line(Runs(ring(planner, coder)))).run("go")))
    assert found.stop.pattern == ("team/planner -> team/coder", "team/coder -> team/planner")


@pytest.mark.filterwarnings("ignore")  # the framework says that they are experimental
def test_a_functional_workflow_is_refused():
    @workflow
    async def flow(text: str) -> str:
        return text

    for one in (flow.build(), flow.build().as_agent()):
        with pytest.raises(NotImplementedError, match="functional workflow"):
            guarded(one)


def test_when_nothing_fires_the_workflow_s_own_result_comes_back():
    guard = Guard()
    team = line(agent("planner", says("a")), agent("coder", says("b")))
    result = run(guarded(team, guard, name="pair").run("go", include_status_events=True))
    assert isinstance(result, WorkflowRunResult)
    assert [one.text for one in result.get_outputs()] == ["a", "b"]
    assert any(event.type == "status" for event in result), "the caller's options are passed on"
    assert handoffs(guard) == [("planner", "coder")]
    assert (guard.last.name, tokens(guard)) == ("pair", 20)
    assert guard.last.report().terminal_status == "done_success"


def test_after_a_stop_the_workflow_goes_on_with_its_state_as_it_stands():
    class Keeps(Node):
        @handler
        async def number(self, given: int, context: WorkflowContext[str, dict[str, Any]]) -> None:
            names = ("first", "last")
            await context.yield_output({name: context.get_state(name) for name in names})
            context.set_state("first", given)

    planner, coder = Keeps("planner"), Keeps("coder")
    team = ring(planner, coder)

    async def all_of_it() -> list[Any]:
        await team.run(1)
        for _ in range(2):
            found = await stopped(guarded(team).run("go"))
            assert len(invoked(found.partial)) == 6
        return (await team.run(2)).get_outputs()

    assert run(all_of_it()) == [{"first": 1, "last": "coder"}]


def test_a_second_stop_takes_nothing_of_the_good_runs_in_between():
    class Counts(Node):
        async def on_checkpoint_save(self) -> dict[str, Any]:
            return {"ran": self.ran}

        async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
            self.ran = state["ran"]

    planner = Counts("planner")
    team = ring(planner, Counts("coder"))

    async def all_of_it() -> None:
        await stopped(guarded(team).run("go"))
        for _ in range(10):
            await team.run("last")
        await stopped(guarded(team).run("go"))

    run(all_of_it())
    assert planner.ran == 3 + 10 + 3


def test_a_second_stop_takes_nothing_of_what_an_agent_remembers():
    goes_round = [True]
    planner, coder = agent("planner", says("a")), agent("coder", says("b"))
    builder = WorkflowBuilder(start_executor=planner)
    builder.add_edge(planner, coder, condition=lambda given: goes_round[0])
    team = builder.add_edge(coder, planner).build()

    async def all_of_it() -> None:
        for _ in range(2):
            goes_round[0] = True
            await stopped(guarded(team).run("go"))
            goes_round[0] = False
            await team.run("one turn")

    run(all_of_it())
    assert planner.client.given == [1, 5, 9, 7, 9, 13, 17, 15], "two more by each of its answers"


def half_done() -> WorkflowBuilder:
    """A team in which one has sent something when another one is stopped, once."""
    (first, near, last) = nodes("first", "near", "last")

    def seeks(n: int) -> Any:
        return calls("miss", {"where": f"{n}"}, n=n) if n < 4 else "ok"

    builder = WorkflowBuilder(start_executor=first)
    builder.add_fan_out_edges(first, [near, agent("seeker", seeks, tools=[miss])])
    return builder.add_edge(near, last)


def test_what_was_sent_before_a_stop_is_not_in_the_way_of_the_next_run():
    team = half_done().build()

    async def twice() -> list[str]:
        found = await stopped(guarded(team).run("go"))
        assert (found.stop.rule, found.stop.agent) == ("same_error", "seeker")
        assert invoked(found.partial) == ["first", "near", "seeker"]
        return invoked(await team.run("go"))

    assert run(twice()) == ["first", "near", "seeker", "last"]


def test_workflows_that_share_executors_can_each_be_run_again_after_a_stop():
    builder = half_done()
    one, other = builder.build(), builder.build()

    async def all_of_it() -> list[int]:
        await guarded(one).run("last")
        await stopped(guarded(other).run("go"))
        return [len(invoked(await team.run("go"))) for team in (one, other)]

    assert run(all_of_it()) == [4, 4]


def test_what_a_fan_in_was_sent_in_a_run_that_was_stopped_is_dropped():
    class Gathers(Executor):
        @handler
        async def gather(self, given: list[str], context: WorkflowContext[str, int]) -> None:
            await context.yield_output(len(given))

    first, near, far, further = nodes("first", "near", "far", "further")
    builder = WorkflowBuilder(start_executor=first).add_fan_out_edges(first, [near, far])
    builder.add_edge(far, further).add_fan_in_edges([near, further], Gathers("last"))
    team = builder.build()

    async def twice() -> list[int]:
        await stopped(guarded(team, Guard(StopRules(max_handoffs=1))).run("go"))
        assert (near.ran, further.ran) == (1, 0)
        return (await team.run("go")).get_outputs()

    assert run(twice()) == [2]


def test_what_a_fan_in_was_sent_before_a_run_that_is_stopped_is_kept():
    class Begins(Executor):
        @handler
        async def begin(self, given: str, context: WorkflowContext[str | int]) -> None:
            await context.send_message(given, target_id="near")
            await context.send_message(given, target_id="clerk")

        @handler
        async def loop(self, given: int, context: WorkflowContext[str | int]) -> None:
            await context.send_message(given, target_id="first")

    class Hears(Asks):
        async def hear(self, said: Any, context: WorkflowContext[str, str]) -> None:
            await context.send_message(said)

    class Gathers(Executor):
        @handler
        async def gather(self, given: list[str], context: WorkflowContext[str, list[str]]) -> None:
            await context.yield_output(given)

    first, (near,), clerk = Begins("first"), nodes("near"), Hears(str)
    builder = WorkflowBuilder(start_executor=first).add_edge(first, first)
    builder.add_fan_out_edges(first, [near, clerk])
    team = builder.add_fan_in_edges([near, clerk], Gathers("last")).build()

    async def all_of_it() -> list[Any]:
        (event,) = (await team.run("go")).get_request_info_events()
        await stopped(guarded(team).run(1))
        return (await team.run(responses={event.request_id: "yes"})).get_outputs()

    assert run(all_of_it()) == [["go", "yes"]]


def test_checkpoints_are_left_as_they_are_and_lead_back_to_before_the_run():
    planner, coder = agent("planner", says("a")), agent("coder", says("b"))
    storage = InMemoryCheckpointStorage()
    team = ring(planner, coder, checkpoint_storage=storage)

    async def all_of_it() -> None:
        await stopped(guarded(team).run("go"))
        kept = await storage.list_checkpoints(workflow_name=team.name)
        assert len(kept) == 7
        (first,) = [one for one in kept if one.previous_checkpoint_id is None]
        await stopped(guarded(team).run(checkpoint_id=first.checkpoint_id))
        assert planner.client.given == [1, 5, 9] * 2

    run(all_of_it())


def test_a_request_that_was_open_before_a_run_that_is_stopped_can_still_be_answered():
    seen: list[Any] = []

    class Loops(Asks):
        @handler
        async def loop(self, given: int, context: WorkflowContext[int, str]) -> None:
            seen.append(given)
            await context.send_message(given)

    clerk = Loops(str)
    team = WorkflowBuilder(start_executor=clerk).add_edge(clerk, clerk).build()

    async def all_of_it() -> list[str]:
        (event,) = (await team.run("go")).get_request_info_events()
        await stopped(guarded(team).run(1))
        assert len(seen) == 3
        assert len((await team.run("go")).get_request_info_events()) == 1, "that of this run"
        return (await guarded(team).run(responses={event.request_id: "now"})).get_outputs()

    assert run(all_of_it()) == ["heard now"]


def test_without_the_guard_the_workflow_is_as_ever():
    planner, coder = nodes("planner", "coder")
    team = ring(planner, coder, max_iterations=12)
    run(stopped(guarded(team).run("go")))
    with pytest.raises(WorkflowConvergenceException):
        run(team.run("go"))
    assert planner.ran + coder.ran == 6 + 12
    seeker = agent("seeker", lambda n: calls("miss", {"where": f"{n}"}, n=n), tools=[miss])
    run(stopped(guarded(seeker).run("go")))
    assert seeker.client.asked == 3
    run(seeker.run("go"))
    assert seeker.client.asked == 3 + 4, "the framework's own limit"


def test_two_workflows_at_once_do_not_see_each_other():
    guards = [Guard(), Guard()]
    teams = [ring(*nodes("a", "b")), ring(*nodes("c", "d"))]

    async def both() -> list[Stopped]:
        runs = [guarded(*pair).run("go") for pair in zip(teams, guards, strict=True)]
        return await asyncio.gather(*(stopped(one) for one in runs))

    found = run(both())
    patterns = [one.stop.pattern for one in found]
    assert patterns == [("a -> b", "b -> a"), ("c -> d", "d -> c")]
    assert [len(handoffs(guard)) for guard in guards] == [6, 6]


def test_an_error_of_an_executor_s_own_passes_through():
    class Breaks(Executor):
        @handler
        async def go(self, given: str, context: WorkflowContext[str]) -> None:
            raise KeyError("mine")

    guard, team = Guard(), WorkflowBuilder(start_executor=Breaks("one")).build()

    async def streamed() -> None:
        async for _ in guarded(team, guard).run("go", stream=True):
            pass

    for begin in (guarded(team, guard).run("go"), streamed()):
        with pytest.raises(KeyError, match="mine"):
            run(begin)
        assert guard.last.stop.reason.startswith("KeyError: [")


def test_a_run_that_is_cancelled_or_left_leaves_nothing_running():
    class Waits(Executor):
        @handler
        async def go(self, given: str, context: WorkflowContext[str]) -> None:
            begun.set()
            await asyncio.Event().wait()

    async def cancelled() -> set[Any]:
        task = asyncio.create_task(guarded(line(Waits("one"))).run("go"))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return asyncio.all_tasks() - {asyncio.current_task()}

    async def left() -> set[Any]:
        stream = guarded(line(Waits("one"))).run("go", stream=True)
        pieces = aiter(stream)
        while not begun.is_set():
            await anext(pieces)
        await stream.close()
        return asyncio.all_tasks() - {asyncio.current_task()}

    for over in (cancelled, left):
        begun = asyncio.Event()
        assert run(over()) == set()
