"""Language models as agents, over real HTTP: a team of them works, ends, fails in good order."""

import asyncio
import logging
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.agents import model_stub as stubs
from tests.agents.helpdesk_replies import (
    HELPDESK,
    KEY,
    MODEL,
    Says,
    agent_name,
    by_tool,
    in_text,
    never_ending,
)
from tests.agents.model_stub import (
    TOKENS,
    ModelReply,
    ModelRequest,
    Stub,
    call,
    call_with,
    completion,
    fail,
    say,
    stream,
)
from tests.engine.engines import (
    ANA,
    chain,
    events_of,
    manual_engine,
    node,
    run_async,
    start_run,
    wait_until_async,
    wait_until_idle,
)

from handrail.agents.model import BadModelError, ModelLimits, model_agent
from handrail.engine.engine import Engine
from handrail.engine.services.runs import RunHandle
from handrail.kernel.run.events import Faulted, Lost, Reported
from handrail.kernel.run.state import Run
from handrail.teams import install_teams, load_builtin
from handrail.testing.clock import ManualClock
from handrail.views.history import handoff_sequence

QUICK = ModelLimits(seconds=20, retries=1)


@asynccontextmanager
async def team(
    says: Says, monkeypatch: pytest.MonkeyPatch, clock: ManualClock, **more: Any
) -> AsyncIterator[tuple[Engine, Stub]]:
    """An engine with a helpdesk whose every agent is the stub's model."""
    async with Stub(says) as stub, manual_engine("sqlite://", clock) as engine:
        monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
        agent = model_agent(MODEL, **{"limits": QUICK, **more})
        await engine.add_agent(agent, *HELPDESK, name="model")
        yield engine, stub


def plays(
    says: Says,
    monkeypatch: pytest.MonkeyPatch,
    clock: ManualClock,
    rules: dict[str, Any] | None = None,
    **more: Any,
) -> tuple[Run, tuple[Any, ...], Stub]:
    """One ticket through that team, to its end."""

    async def play() -> tuple[Run, tuple[Any, ...], Stub]:
        async with team(says, monkeypatch, clock, **more) as (engine, stub):
            document = load_builtin("helpdesk")
            document["stop_rules"] |= rules or {}
            run = await start_run(engine, document, title="VPN drops every hour")
            ended = await run.result(60)
            return ended, tuple(await engine.runs.history(run.id)), stub

    return run_async(play())


def ways(events: tuple[Any, ...]) -> list[str]:
    return [one.to for one in handoff_sequence(events) if one.accepted]


WHOLE = [
    *("memory", "orchestrator", "ticketing", "orchestrator", "network", "orchestrator"),
    *("memory", "orchestrator", "summarization", "orchestrator", "ticketing"),
]


@pytest.mark.requirement("H1.1", "H2.1", "H2.3", "H6.1")
@pytest.mark.parametrize(
    ("says", "more"),
    [(by_tool, {}), (in_text, {}), (in_text, {"text_only": True})],
    ids=["by a tool", "in text", "a model without tools"],
)
def test_a_team_of_models_works_a_ticket_to_its_end(
    says: Says, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch, clock: ManualClock
):
    run, events, stub = plays(says, monkeypatch, clock, **more)
    assert run.terminal_status == "done_success"
    assert ways(events) == WHOLE
    assert run.ledger.tokens == TOKENS * (len(WHOLE) + 1)
    assert all(bool(asked.tools) is not bool(more) for asked in stub.asked)
    assert not [event for event in events if isinstance(event, Faulted | Lost)]


def test_what_a_model_may_say_is_what_its_turn_allows(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
):
    _, _, stub = plays(by_tool, monkeypatch, clock)
    shapes = {agent_name(asked): asked.tools["answer"]["properties"] for asked in stub.asked}
    assert shapes["memory"]["to"]["enum"] == ["orchestrator"]
    assert shapes["memory"]["outcome"]["enum"] == ["handoff", "failure", "ask"]
    assert "status" not in shapes["memory"]
    assert shapes["ticketing"]["outcome"]["enum"] == ["terminate", "failure", "ask"], "at last"
    assert shapes["summarization"]["marker"]["enum"] == ["WORKFLOW_COMPLETE"]
    assert {"store", "retrieve"} <= set(shapes["orchestrator"]["task"]["enum"])


@pytest.mark.requirement("H3.1", "H3.4", "S8")
def test_models_that_go_round_in_circles_are_stopped(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
):
    run, _, stub = plays(never_ending, monkeypatch, clock)
    assert run.terminal_status == "aborted_stuck"
    assert run.stop is not None
    assert run.stop.rule == "repeated_pattern"
    assert run.stop.pattern == ("orchestrator -> memory",)
    assert len(stub.asked) == 5, "what memory has done it is not asked for again"


def test_a_budget_of_tokens_ends_a_run(monkeypatch: pytest.MonkeyPatch, clock: ManualClock):
    run, _, stub = plays(by_tool, monkeypatch, clock, {"max_tokens": 3 * TOKENS})
    assert (run.terminal_status, run.ledger.tokens) == ("aborted_constraint", 3 * TOKENS)
    assert run.stop is not None
    assert run.stop.rule == "budget"
    assert len(stub.asked) == 3


def test_a_turn_stops_asking_when_the_budget_of_its_run_is_spent(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
):
    def looks_for_ever(asked: ModelRequest) -> ModelReply:
        return call("look")

    def look() -> str:
        """Look."""
        return "nothing"

    run, _, stub = plays(
        looks_for_ever, monkeypatch, clock, {"max_tokens": 2 * TOKENS}, tools=lambda _: [look]
    )
    assert run.stop is not None
    assert run.stop.rule == "budget"
    assert len(stub.asked) == 3


def test_the_cost_is_counted_where_the_price_is_known(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
):
    def dear(asked: ModelRequest) -> ModelReply:
        return say("HANDOFF: memory: x", model="gpt-4o-mini")

    run, _, _ = plays(dear, monkeypatch, clock, {"max_cost": 1e-9})
    assert run.stop is not None
    assert run.stop.rule == "budget"
    assert 0 < run.ledger.cost < 1e-3


# A model that fails

RETRY = {"retry_after_ms": "1"}
NEVER = asyncio.Event
FAILURES: list[tuple[str, Callable[[], ModelReply], str, int]] = [
    ("fails", lambda: fail(500, f"key {KEY} broke", **RETRY), "failed on its provider's side", 0),
    ("is away", lambda: fail(503, **RETRY), "is not available", 0),
    ("is rate limited", lambda: fail(429, "slow down", **RETRY), "is rate limited", 0),
    ("has no quota", lambda: fail(402, "pay"), "has no quota left", 0),
    ("was given a wrong key", lambda: fail(401, f"no such key: {KEY}"), "its credentials", 0),
    ("is not there", lambda: fail(404, "no model"), "is unknown to its provider", 0),
    ("rejects", lambda: fail(400, "tools are not supported"), "rejected the request", 0),
    ("answers in HTML", lambda: ModelReply(b"<html>"), "no answer that can be read", 0),
    ("answers half", lambda: ModelReply(b'{"choices": [{'), "no answer that can be read", 0),
    ("streams unasked", lambda: stream("HANDOFF: memory: x"), "no answer that can be used", 0),
    ("has no choice", lambda: completion({}, choices=[]), "failed", 0),
    ("refuses", lambda: stubs.refuse("I will not"), "refused to answer (", TOKENS),
    ("says nothing", lambda: say(""), "no answer that can be used", 2 * TOKENS),
    ("is cut off", lambda: completion({"content": None}, "length"), "token limit", TOKENS),
    ("sends no JSON", lambda: call_with("answer", "{no"), "no answer that can be", 2 * TOKENS),
    ("calls what is not there", lambda: call("rm", path="/"), "can be used", 2 * TOKENS),
    ("says no result", lambda: call("answer", outcome=7), "that can be used", 2 * TOKENS),
]


@pytest.mark.requirement("K1")
@pytest.mark.parametrize(
    ("reply", "told", "tokens"),
    [case[1:] for case in FAILURES],
    ids=[case[0] for case in FAILURES],
)
def test_a_model_that_fails_costs_attempts_and_says_what_to_do(
    reply: Callable[[], ModelReply],
    told: str,
    tokens: int,
    monkeypatch: pytest.MonkeyPatch,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.INFO)
    run, events, _ = plays(lambda asked: reply(), monkeypatch, clock)
    assert run.stop is not None
    assert run.stop.rule == ("protocol" if tokens else "agent_lost")
    assert f"the model '{MODEL}' of 'orchestrator'" in run.stop.reason
    assert told in run.stop.reason
    assert "; " in run.stop.reason.partition(told)[2], "it says what to do"
    assert run.ledger.tokens == 3 * tokens, "what failed has cost something"
    kept = msgspec.json.encode(events).decode() + caplog.text
    assert KEY not in kept


def test_a_rate_limit_that_passes_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
):
    refused = iter([True])

    def busy(asked: ModelRequest) -> ModelReply:
        return fail(429, retry_after_ms="1") if next(refused, False) else by_tool(asked)

    run, events, _ = plays(busy, monkeypatch, clock)
    assert run.terminal_status == "done_success"
    assert not [event for event in events if isinstance(event, Lost)]


def test_an_answer_that_cannot_be_read_is_asked_for_again_in_the_turn(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
):
    broken = iter([True])

    def slips(asked: ModelRequest) -> ModelReply:
        if next(broken, False):
            return call("answer", outcome="perhaps", text="x")
        return by_tool(asked)

    run, events, stub = plays(slips, monkeypatch, clock)
    assert run.terminal_status == "done_success"
    assert "That is no answer" in stub.asked[1].body["messages"][-1]["content"]
    (first, *_) = [event for event in events if isinstance(event, Reported)]
    assert first.result.usage.tokens == 2 * TOKENS, "the slip has cost something"


@pytest.mark.requirement("H5.4", "H6.1")
def test_what_a_model_may_not_do_is_refused_and_told_to_it(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
):
    wrong = iter(
        [
            call("answer", outcome="terminate", reason="I say so", text="over"),
            say("I am done.\nTERMINATE_WORKFLOW"),
        ]
    )
    run, events, stub = plays(lambda asked: next(wrong, None) or by_tool(asked), monkeypatch, clock)
    assert run.terminal_status == "done_success"
    assert len([event for event in events if isinstance(event, Faulted)]) == 2
    assert "Your last answer could not be used" in stub.asked[1].prompt
    assert "'orchestrator' may not end the run; only 'ticketing' may" in stub.asked[2].prompt


@pytest.mark.parametrize(
    "reply",
    [lambda: ModelReply(b"", after=asyncio.Event()), lambda: ModelReply(b"{", drips=True)],
    ids=["says nothing", "drips"],
)
def test_a_model_that_does_not_end_is_given_up(
    reply: Callable[[], ModelReply], monkeypatch: pytest.MonkeyPatch, clock: ManualClock
):
    limits = ModelLimits(seconds=0.2, retries=0)
    run, _, _ = plays(lambda asked: reply(), monkeypatch, clock, limits=limits)
    assert run.stop is not None
    assert run.stop.rule == "agent_lost"
    assert "in 0.2 s" in run.stop.reason


@pytest.mark.requirement("H5.5")
def test_a_run_that_is_closed_hangs_up_on_the_model(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
):
    async def play():
        never = asyncio.Event()
        async with team(lambda asked: ModelReply(b"", after=never), monkeypatch, clock) as (
            engine,
            stub,
        ):
            run: RunHandle = await start_run(engine, load_builtin("helpdesk"), title="x")
            await wait_until_async(lambda: bool(stub.asked))
            await run.close(by=ANA, reason="no longer needed")
            await wait_until_async(lambda: stub.left == 1)
            await wait_until_idle(engine)
            assert (await run.result(60)).terminal_status == "closed_by_human"

    run_async(play())


@pytest.mark.requirement("H1.5")
def test_many_tickets_at_once_go_each_its_own_way(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
):
    """One of them has a slow model, and nobody waits for it."""

    async def play():
        slow = asyncio.Event()

        def says(asked: ModelRequest) -> ModelReply:
            reply = by_tool(asked)
            return reply._replace(after=slow) if "ticket 0" in asked.prompt else reply

        async with team(says, monkeypatch, clock) as (engine, stub):
            await engine.define(load_builtin("helpdesk"))
            runs = [await engine.start("helpdesk", title=f"ticket {n}") for n in range(5)]
            ended = await asyncio.gather(*(run.result(60) for run in runs[1:]))
            assert {one.terminal_status for one in ended} == {"done_success"}
            assert not (await runs[0].state()).has_ended
            slow.set()
            assert (await runs[0].result(60)).terminal_status == "done_success"
            titles = [re.findall(r"ticket (\d)", asked.prompt) for asked in stub.asked]
            assert all(len(set(found)) == 1 for found in titles), "none hears of another"

    run_async(play())


def test_a_server_that_does_not_say_what_it_used_is_no_trouble(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
):
    def silent(asked: ModelRequest) -> ModelReply:
        return in_text(asked)._replace(body=in_text(asked).body.replace(b'"usage"', b'"unused"'))

    run, _, _ = plays(silent, monkeypatch, clock)
    assert (run.terminal_status, run.ledger.tokens) == ("done_success", 0)


def test_an_answer_that_is_too_long_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
):
    limits = ModelLimits(seconds=20, answer_bytes=1_000)
    large = iter([say("x" * 999), call("answer", outcome="ask", data={"x": "y" * 1_000})])
    run, _, _ = plays(lambda asked: next(large, say("x" * 999)), monkeypatch, clock, limits=limits)
    assert run.stop is not None
    assert "answered with 1001 bytes, at most 1000 are taken" in run.stop.reason
    assert run.ledger.tokens == 3 * TOKENS


# Tools


def test_a_model_uses_the_tools_of_its_turn_and_is_told_what_goes_wrong_in_them(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
):
    given: list[str] = []

    def tools(dispatch: Any) -> list[Callable[..., object]]:
        given.append(dispatch.agent)

        def look_up(words: str) -> str:
            """Find past tickets."""
            return f"found for {words}: " + "x" * 100

        async def breaks() -> str:
            """Break."""
            raise RuntimeError(f"no connection with {KEY}")

        return [look_up, breaks]

    def looks_first(asked: ModelRequest) -> ModelReply:
        if agent_name(asked) != "memory" or len(asked.results) == 2:
            return by_tool(asked)
        return call("breaks") if asked.results else call("look_up", words="VPN")

    limits = ModelLimits(seconds=20, tool_chars=30)
    run, _, stub = plays(looks_first, monkeypatch, clock, tools=tools, limits=limits)
    assert run.terminal_status == "done_success"
    assert "memory" in given
    results = next(asked.results for asked in stub.asked if len(asked.results) == 2)
    assert "found for VPN" in results[0]
    assert "more characters" in results[0]
    assert "RuntimeError: no connection with ***" in results[1]


def test_a_model_that_only_uses_tools_is_given_up_after_so_many_requests(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
):
    def look() -> str:
        """Look."""
        return "nothing"

    limits = ModelLimits(seconds=20, requests=4)
    run, _, stub = plays(
        lambda asked: call("look"), monkeypatch, clock, tools=lambda _: [look], limits=limits
    )
    assert run.stop is not None
    assert run.stop.rule == "protocol"
    assert "wanted more than one turn may take" in run.stop.reason
    assert run.ledger.tokens == len(stub.asked) * TOKENS == 3 * 4 * TOKENS


# Workflows


@pytest.mark.parametrize("text_only", [False, True])
def test_a_model_works_a_node_of_a_workflow(
    text_only: bool, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
):
    answer = {"outcome": "success", "text": "fixed", "data": {"severity": 1}}

    def fixes(asked: ModelRequest) -> ModelReply:
        assert agent_name(asked) == "fix"
        return say(msgspec.json.encode(answer).decode()) if text_only else call("answer", **answer)

    async def play():
        async with Stub(fixes) as stub, manual_engine("sqlite://", clock) as engine:
            monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
            agent = model_agent(MODEL, text_only=text_only)
            engine.add_agent(agent, "backend-engineer")
            run = await start_run(engine, chain(node("fix")), title="500 on /invoices")
            ended = await run.result(60)
            assert (ended.terminal_status, ended.context["severity"]) == ("done_success", 1)
            (done,) = await events_of(engine, run.id, Reported)
            assert done.result.usage.tokens == TOKENS

    run_async(play())


def test_a_model_that_is_away_is_no_failure_of_the_work(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
):
    """A refusal costs tokens and the attempt, but the node's failure edge is for the work."""

    async def play():
        replies = iter([stubs.refuse("no"), call("answer", outcome="success", text="fixed")])
        async with (
            Stub(lambda asked: next(replies)) as stub,
            manual_engine("sqlite://", clock) as engine,
        ):
            monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
            engine.add_agent(model_agent(MODEL), "backend-engineer")
            run = await start_run(engine, chain(node("fix")), title="500")
            ended = await run.result(60)
            assert ended.terminal_status == "done_success"
            assert ended.ledger.tokens == 2 * TOKENS
            (fault,) = await events_of(engine, run.id, Faulted)
            assert "refused to answer" in fault.message

    run_async(play())


# Models that cannot be used


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("stub", "Unknown model"),
        ("nobody:stub", "Unknown model"),
        ("anthropic:claude-sonnet-4-5", "anthropic"),
        ("openai-chat:stub", "OPENAI_API_KEY"),
    ],
)
def test_a_model_that_cannot_be_used_is_told_before_any_run(
    name: str, told: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(BadModelError, match=told) as error:
        model_agent(name)
    assert f"the model '{name}'" in str(error.value)
    assert "\n" not in str(error.value)


def test_without_the_extra_the_command_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch):
    for name in [one for one in sys.modules if one.split(".")[0] == "pydantic_ai"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BadModelError, match=r"uv tool install --force '\.\[server,models\]'"):
        model_agent(MODEL)


def test_the_built_in_helpdesk_works_by_the_model_that_is_named(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
):
    async def play():
        async with Stub(by_tool) as stub, manual_engine("sqlite://", clock) as engine:
            monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
            await install_teams(engine, ("helpdesk",), model=MODEL)
            run = await engine.start("helpdesk", title="VPN drops every hour")
            ended = await run.result(60)
            assert ended.terminal_status == "done_success"
            assert ended.ledger.tokens == len(stub.asked) * TOKENS > 0

    run_async(play())
