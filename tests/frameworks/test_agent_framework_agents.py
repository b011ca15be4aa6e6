"""Agents of Microsoft Agent Framework under guard, alone and in workflows, and streams of both."""

import asyncio
import gc
from typing import Any

import pytest
from agent_framework import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentMiddleware,
    AgentResponse,
    AgentSession,
    BaseAgent,
    ChatMiddleware,
    ChatResponse,
    Content,
    Executor,
    FunctionMiddleware,
    Message,
    MiddlewareTermination,
    RawAgent,
    ResponseStream,
    WorkflowContext,
    WorkflowRunResult,
    handler,
)
from tests.frameworks.agent_framework_stubs import (
    PATTERN,
    Model,
    agent,
    calls,
    checks,
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
from tests.patience import PATIENCE

from handrail import Guard, LoopDetected, NoProgress, StopRules
from handrail.guard.agent_framework import guarded


def asks(n: int) -> Any:
    """Calls a tool every other time."""
    return calls("look", {"where": f"{n}"}, n=n) if n % 2 else "ok"


def test_a_tool_that_fails_the_same_way_is_stopped_in_an_agent_alone():
    seeker = agent("seeker", lambda n: calls("miss", {"where": f"{n}"}, n=n), tools=[miss])
    found = run(stopped(guarded(seeker).run("go")))
    assert isinstance(found, NoProgress)
    assert found.stop.rule == "same_error"
    assert seeker.client.asked == 3
    assert isinstance(found.partial, AgentResponse)
    assert [len(message.contents) for message in found.partial.messages] == [1, 1, 1]


def test_a_tool_that_says_the_same_is_no_progress_and_tokens_are_a_budget():
    seeker = agent("seeker", lambda n: calls("look", {"where": "x"}, n=n), tools=[look])
    assert run(stopped(guarded(seeker).run("go"))).stop.rule == "no_change"
    assert seeker.client.asked == 4
    seeker = agent("seeker", lambda n: calls("look", {"where": "abcdefgh"[n]}, n=n), tools=[look])
    found = run(stopped(guarded(seeker, Guard(StopRules(max_tokens=25))).run("go")))
    assert (found.stop.rule, found.stop.seen, seeker.client.asked) == ("budget", 30, 3)


def test_the_calls_of_one_answer_are_one_step():
    places = [{"where": place} for place in "abcd"]
    seeker = agent("seeker", lambda n: calls("look", *places) if n == 1 else "ok", tools=[look])
    guard = Guard()
    assert run(guarded(seeker, guard).run("go")).text == "ok"
    assert checks(guard) == [["look"] * 4, []]
    assert (tokens(guard), handoffs(guard)) == (20, [])


def test_an_agent_goes_on_with_its_session():
    helper, session = agent("helper", says("ok")), AgentSession()
    for _ in range(2):
        run(guarded(helper).run("go", session=session))
    assert helper.client.given == [1, 3]


def test_what_agents_in_a_workflow_used_is_told_once():
    class PassesOn(Executor):
        @handler
        async def go(
            self, given: AgentExecutorResponse, context: WorkflowContext[AgentExecutorResponse]
        ) -> None:
            await context.send_message(given)

    team = line(agent("a", asks, tools=[look]), PassesOn("between"), agent("b", says("ok")))
    guard = Guard()
    run(guarded(team, guard).run("go"))
    assert tokens(guard) == 30
    assert checks(guard) == [["look"], [], []]

    async def streamed() -> None:
        await guarded(team, guard).run("go", stream=True).get_final_response()

    run(streamed())
    assert tokens(guard) == 30
    assert checks(guard) == [["look"], [], []]


class Foreign:
    """An agent that is none of the framework's."""

    id = name = "foreign"
    description = None

    def create_session(self, **more: Any) -> AgentSession:
        return AgentSession()

    get_session = create_session

    def run(self, messages=None, *, stream=False, **more):
        contents = [*calls("look", {"where": "x"}), Content.from_function_result("c0.0", result="")]
        messages = [Message("assistant", [*contents, Content.from_text("ok")])]
        usage = {"total_token_count": 7}

        async def answer() -> AgentResponse:
            return AgentResponse(messages=messages, usage_details=usage)

        return answer()


def test_of_an_agent_of_another_kind_what_it_sends_is_told():
    guard = Guard()
    run(guarded(line(Foreign(), agent("coder", says("ok"))), guard).run("go"))
    assert tokens(guard) == 17
    assert checks(guard) == [["look"], []]


def test_two_answers_that_an_executor_sends_together_are_told_both():
    class Both(Executor):
        @handler
        async def go(self, given: str, context: WorkflowContext[AgentExecutorResponse]) -> None:
            for _ in range(2):
                response = await Foreign().run()
                await context.send_message(AgentExecutorResponse(self.id, response, []))

    guard = Guard()
    run(guarded(line(Both("both")), guard).run("go"))
    assert tokens(guard) == 14
    assert checks(guard) == [["look"], ["look"]]


class Own(BaseAgent):
    """Somebody's own agent, which runs no middleware."""

    def run(self, messages=None, *, stream=False, **more):
        asked = RawAgent(Model(says("ok"), 7), name="inside")
        return asked.run(messages, stream=stream)


@pytest.mark.parametrize(
    "made", [lambda: Own(name="own"), lambda: RawAgent(Model(says("ok"), 7), name="raw")]
)
def test_what_agents_without_middleware_used_is_told_alone_and_in_a_workflow(made):
    async def streamed(team: Any, guard: Guard) -> None:
        await guarded(team, guard).run("go", stream=True).get_final_response()

    for team in (made(), line(made())):
        guard = Guard()
        run(guarded(team, guard).run("go"))
        assert tokens(guard) == 7
        run(streamed(team, guard))
        assert tokens(guard) == 7
    found = run(stopped(guarded(made(), Guard(StopRules(max_tokens=5))).run("go")))
    assert found.partial.text == "ok"


def test_an_executor_that_catches_the_stop_does_not_go_on():
    class Stubborn(Executor):
        def __init__(self, held: Any) -> None:
            super().__init__("stubborn")
            self.held, self.caught = held, 0

        @handler
        async def go(self, given: str, context: WorkflowContext[str]) -> None:
            for _ in range(5):
                try:
                    await self.held.run(given)
                except Exception:
                    self.caught += 1
            await context.send_message(given)

    seeker = agent("seeker", lambda n: calls("miss", {"where": f"{n}"}, n=n), tools=[miss])
    one, (after,) = Stubborn(seeker), nodes("after")
    guard = Guard()
    found = run(stopped(guarded(line(one, after), guard).run("go")))
    assert (found.stop.rule, found.stop.agent) == ("same_error", "stubborn")
    assert (seeker.client.asked, one.caught, after.ran) == (3, 5, 0)


def test_middleware_of_the_caller_s_runs_as_well_and_ours_is_put_there_once():
    seen: list[str] = []

    def named(kind: type, name: str) -> Any:
        async def process(self, context, call_next) -> None:
            seen.append(name)
            await call_next()

        return type(name, (kind,), {"process": process})()

    theirs = [
        named(ChatMiddleware, "model"),
        named(FunctionMiddleware, "tool"),
        named(AgentMiddleware, "agent"),
    ]
    seeker = agent("seeker", asks, tools=[look], middleware=theirs)
    guard = Guard()
    for number in (1, 2):
        run(guarded(seeker, guard).run("go"))
        assert seen == ["agent", "model", "tool", "model"] * number
        assert tokens(guard) == 20
    given = named(ChatMiddleware, "given")
    run(guarded(seeker, guard).run("go", middleware=[given]))
    assert seen[8:] == ["agent", "model", "given", "tool", "model", "given"]


def test_middleware_of_the_caller_s_that_ends_a_turn_is_no_failure():
    class Ends(FunctionMiddleware):
        async def process(self, context, call_next) -> None:
            raise MiddlewareTermination(result="enough")

    seeker = agent("seeker", asks, tools=[look], middleware=[Ends()])
    guard = Guard()
    run(guarded(seeker, guard).run("go"))
    assert (seeker.client.asked, checks(guard)) == (1, [[]])


def test_an_answer_that_middleware_gives_in_the_model_s_place_is_told_too():
    class Answers(ChatMiddleware):
        async def process(self, context, call_next) -> None:
            said = [Message("assistant", ["from the cache"])]
            context.result = ChatResponse(messages=said, usage_details={"total_token_count": 4})

    helper, guard = agent("helper", says("ok"), middleware=[Answers()]), Guard()
    assert run(guarded(helper, guard).run("go")).text == "from the cache"
    assert (helper.client.asked, tokens(guard)) == (0, 4)


def test_what_an_agent_was_given_in_a_run_that_was_stopped_is_not_given_to_it_again():
    seeker = agent("seeker", lambda n: calls("miss", {"where": f"{n}"}, n=n), tools=[miss])
    team = line(seeker, agent("coder", says("ok")))
    for _ in range(2):
        assert run(stopped(guarded(team).run("go"))).stop.agent == "seeker"
    assert seeker.client.given == [1, 3, 5] * 2


def test_what_an_agent_was_given_before_a_run_that_is_stopped_is_still_there():
    seeker = agent("seeker", lambda n: calls("miss", {"where": f"{n}"}, n=n), tools=[miss])
    team = line(seeker, agent("coder", says("ok")))
    first = AgentExecutorRequest([Message("user", ["mind this"])], should_respond=False)

    async def all_of_it() -> None:
        await team.run(first)
        for _ in range(2):
            await stopped(guarded(team).run("go"))

    run(all_of_it())
    assert seeker.client.given == [2, 4, 6] * 2


def test_a_workflow_as_an_agent_is_guarded_too():
    planner, coder = agent("planner", says("a")), agent("coder", says("b"))
    found = run(stopped(guarded(ring(planner, coder).as_agent("pair")).run("go")))
    assert found.stop.pattern == PATTERN
    assert isinstance(found.partial, WorkflowRunResult)
    guard = Guard()
    result = run(guarded(line(planner, coder).as_agent("pair"), guard).run("go"))
    assert isinstance(result, AgentResponse)
    assert (guard.last.name, tokens(guard)) == ("pair", 20)


# Streams


def seen_of(piece: Any) -> Any:
    """What there is to compare of one piece, which is an event or a part of an answer."""
    if hasattr(piece, "contents"):
        return [(content.type, content.text) for content in piece.contents]
    return piece.type, getattr(piece, "executor_id", None) if piece.type == "output" else None


def streams() -> list[Any]:
    """A workflow, an agent alone, and a workflow as an agent, each of them new."""
    return [
        line(agent("planner", asks, tools=[look]), agent("coder", says("b"))),
        agent("seeker", asks, tools=[look]),
        line(agent("planner", asks, tools=[look]), agent("coder", says("b"))).as_agent("pair"),
    ]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_stream_gives_the_pieces_and_the_result_that_it_gives_without_the_guard(number):
    async def drawn(stream: Any) -> tuple[list[Any], Any]:
        assert isinstance(stream, ResponseStream)
        pieces = [seen_of(piece) async for piece in stream]
        result = await stream.get_final_response()
        outputs = result.get_outputs() if isinstance(result, WorkflowRunResult) else [result]
        return pieces, (type(result), [one.text for one in outputs])

    guard = Guard()
    bare = run(drawn(streams()[number].run("go", stream=True)))
    ours = run(drawn(guarded(streams()[number], guard).run("go", stream=True)))
    assert len(bare[0]) >= 4
    assert ours == bare
    assert tokens(guard) == (20 if number == 1 else 30)
    assert guard.last.report().terminal_status == "done_success"


def test_a_stop_is_raised_out_of_a_stream_and_the_workflow_can_be_streamed_again():
    planner, coder = nodes("planner", "coder")
    team = ring(planner, coder)

    async def streamed() -> list[str]:
        begun = []
        with pytest.raises(LoopDetected) as caught:
            async for event in guarded(team).run("go", stream=True):
                if event.type == "executor_invoked":
                    begun.append(event.executor_id)
        assert caught.value.stop.pattern == PATTERN
        assert invoked(caught.value.partial) == begun
        assert not asyncio.all_tasks() - {asyncio.current_task()}
        return begun

    for count in (3, 6):
        assert run(streamed()) == ["planner", "coder"] * 3
        assert (planner.ran, coder.ran) == (count, count)


def test_the_result_of_a_stream_that_is_stopped_is_the_stop():
    seeker = agent("seeker", lambda n: calls("miss", {"where": f"{n}"}, n=n), tools=[miss])

    async def result() -> Any:
        return await guarded(seeker).run("go", stream=True).get_final_response()

    found = run(stopped(result()))
    assert found.stop.rule == "same_error"
    assert seeker.client.asked == 3
    assert isinstance(found.partial, AgentResponse)
    assert len(found.partial.messages) == 3


def test_a_stop_by_the_last_answer_of_a_stream_leaves_that_answer():
    async def result(team: Any) -> Any:
        strict = Guard(StopRules(max_tokens=5))
        return await guarded(team, strict).run("go", stream=True).get_final_response()

    helper = agent("helper", says("ok"))
    assert run(stopped(result(helper))).partial.text == "ok"
    assert run(stopped(result(line(helper)))).partial.get_outputs()[0].text == "ok"


@pytest.mark.parametrize(
    ("number", "closed"), [(number, closed) for number in (0, 1, 2) for closed in (True, False)]
)
def test_a_stream_that_is_left_before_its_end_is_on_record_as_failed(number, closed, caplog):
    guard, team = Guard(), streams()[number]

    async def left() -> None:
        stream = guarded(team, guard).run("go", stream=True)
        pieces = aiter(stream)
        for _ in range(4):
            await anext(pieces)
        if closed:
            await stream.close()
        del stream, pieces
        gc.collect()
        async with asyncio.timeout(PATIENCE):  # the loop closes what nobody holds any more
            while guard.last.stop is None or len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0)

    run(left())
    gc.collect()
    assert guard.last.stop.reason == "the stream was left before its end"
    assert "never retrieved" not in caplog.text


def test_what_the_caller_does_between_two_pieces_is_no_part_of_the_run():
    seeker, guard = agent("seeker", asks, tools=[look]), Guard()

    async def streamed() -> int:
        answers = 0
        async for _ in guarded(seeker, guard).run("go", stream=True):
            answers += len((await agent_outside.run("go")).messages)
        return answers

    agent_outside = agent("outside", says("ok"))
    run(guarded(agent_outside).run("go"))  # so that it has the guard's middleware
    assert run(streamed()) > 3
    assert tokens(guard) == 20
