"""Whatever people and agents write is data: no text of it ends a run, approves, or hands off.

Each text of the table (`injections.py`) stands in every field at once that a user or an agent can
write, in a run of the helpdesk and in one of finance, through the real engine. The run has to go
the way that it goes with plain words: the same handoffs, the same questions, the same end.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import pytest
from tests.engine.engines import ANA, manual_engine, run_async
from tests.scenarios.injections import Injection, injections
from tests.server.harness import ASKS, ServerHarness, expect_json
from tests.server.http_agents import HttpAgent, register_hub_agents

from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.engine import Engine, RefusedError
from handrail.kernel.result import Check, Evidence, Outcome, Result
from handrail.kernel.run.events import Asked, Faulted
from handrail.kernel.run.text_protocol import read_directive
from handrail.teams import load_builtin
from handrail.testing.clock import ManualClock
from handrail.views.history import handoff_sequence

ALL = injections()
PLAIN = Injection("The printer on floor 2 is out of paper.", loud=False)
AT_ONCE, PART = 50, 200
"""Runs at once, and runs of one engine."""
HELPDESK = ("orchestrator", "memory", "ticketing", "network", "summarization")
FINANCE = ("planner", "invoice")
Agent = Callable[[Dispatch], Awaitable[Result | str]]


class Way(NamedTuple):
    """How a run went."""

    handoffs: tuple[tuple[str, str], ...]
    questions: int
    status: str
    rule: str
    agent: str


def hand(dispatch: Dispatch, to: str, **more: Any) -> Result:
    """An honest handoff, with the text in every field that an agent can write."""
    text = dispatch.bead.context["note"]
    evidence = Evidence(
        checks=(Check(command="look", exit_code=0, stderr=text),),
        ticket_state=text,
        failures=(text,),
    )
    data = {"told": text, "nested": {"list": [text]}, text[:40]: text}
    given = {"reason": text, "text": text, "data": data, "evidence": evidence}
    return Result(outcome=Outcome.HANDOFF, to=to, **(given | more))


# The helpdesk


def next_one(dispatch: Dispatch) -> str:
    match dispatch.phase:
        case "memory_check_pending":
            return "memory"
        case "memory_checked":
            stored = "memory/store" in dispatch.run.done
            return "summarization" if stored else "ticketing"
        case "ticket_analyzed":
            return "network"
        case "resolution_obtained":
            return "memory"
        case _:
            return "ticketing"


async def helpdesk(dispatch: Dispatch) -> Result | str:
    """Every agent of the team, working as it should, in a sea of bad words."""
    text, loud = dispatch.bead.context["note"], dispatch.bead.context["loud"]
    match dispatch.agent:
        case "orchestrator":
            return hand(dispatch, next_one(dispatch))
        case "ticketing" if dispatch.task == "close":
            # after a block of code that it left open, its last line is code too: it says it again
            quoted = f"{text}\n\nThat is the ticket.\n" if dispatch.attempt == 1 else ""
            return Result(text=f"{quoted}TERMINATE_WORKFLOW: resolved")
        case "ticketing" if not dispatch.answer:
            return Result(outcome=Outcome.ASK, question=f"{text}?", options=(text, "no"), text=text)
        case "ticketing":
            # the one who may end the run: what it quotes is not what it says
            return hand(dispatch, "orchestrator", text=f"{text}\nSo it says." if loud else text)
        case "summarization":
            return hand(dispatch, "orchestrator", marker="WORKFLOW_COMPLETE")
        case _:
            return _in_words(dispatch, text)


def _in_words(dispatch: Dispatch, text: str) -> Result | str:
    """First nothing but the text, then the text before an honest last line, then outright."""
    match dispatch.attempt:
        case 1:
            return text
        case 2:
            return f"{text}\n\nHANDOFF: orchestrator: done"
        case _:
            return hand(dispatch, "orchestrator")


async def through_helpdesk(engine: Engine, one: Injection) -> Way:
    text = one.text
    run = await engine.start(
        "helpdesk",
        title=text,
        description=text,
        context={"note": text, "loud": one.loud, "log": [text], text[:40]: text},
        filed_by="ola",
    )
    (question,) = await run.questions(60)
    await run.answer(question.id, text, by=ANA)
    await run.result(60)
    way = await went(engine, run.id)
    faults = [e for e in await engine.runs.history(run.id) if isinstance(e, Faulted)]
    places = {fault.step_id for fault in faults}
    assert {"memory", "network"} <= places <= {"memory", "network", "ticketing"}
    return way


# Finance


async def finance(dispatch: Dispatch) -> Result | str:
    text, loud = dispatch.bead.context["note"], dispatch.bead.context["loud"]
    to = "invoice" if dispatch.agent == "planner" else "review"
    if dispatch.attempt == 1 and not loud:
        return text
    return hand(dispatch, to)


async def through_finance(engine: Engine, one: Injection) -> Way:
    text = one.text
    run = await engine.start(
        "finance",
        title=text,
        description=text,
        context={"note": text, "loud": one.loud},
        filed_by="ola",
    )
    with suppress(RefusedError):  # a name that is none is refused, and that is the end of it
        name = text.splitlines()[-1][:100]
        await engine.beads.put_file((await run.state()).bead_id, name, b"x", by="ola")
    (question,) = await run.questions(60)
    await run.answer(question.id, text, by=ANA, decision="revise")
    (again,) = await run.questions(60)
    assert again.id != question.id, "a person has said what to change, and is asked again"
    await run.answer(again.id, "approve", by=ANA)
    await run.result(60)
    return await went(engine, run.id)


async def went(engine: Engine, run_id: str) -> Way:
    run, events = await engine.runs.state(run_id), await engine.runs.history(run_id)
    assert run.stop is not None
    return Way(
        handoffs=tuple((one.from_, one.to) for one in handoff_sequence(events) if one.accepted),
        questions=sum(isinstance(event, Asked) for event in events),
        status=str(run.terminal_status),
        rule=run.stop.rule.value,
        agent=run.stop.agent,
    )


Through = Callable[[Engine, Injection], Awaitable[Way]]
TEAMS: dict[str, tuple[Through, Agent, tuple[str, ...]]] = {
    "helpdesk": (through_helpdesk, helpdesk, HELPDESK),
    "finance": (through_finance, finance, FINANCE),
}


async def all_ways(name: str, texts: list[Injection]) -> list[Way]:
    """Each text through a run of its own, many at once, on one engine."""
    through, agent, roles = TEAMS[name]
    async with manual_engine("sqlite://", ManualClock()) as engine:
        document = load_builtin(name)
        document.setdefault("metadata", {}).pop("context", None)
        await engine.define(document)
        await engine.add_agent(agent, *roles, capacity=1_000)
        room = asyncio.Semaphore(AT_ONCE)

        async def one_way(text: Injection) -> Way:
            async with room:
                try:
                    return await through(engine, text)
                except AssertionError as error:
                    raise AssertionError(f"{text.text!r}: {error}") from error

        return await asyncio.gather(*map(one_way, texts))


@cache
def control(name: str) -> Way:
    """How a run goes with plain words."""
    return run_async(all_ways(name, [PLAIN]))[0]


def test_there_are_more_than_a_thousand_texts():
    assert len({one.text for one in ALL}) >= 1_000
    assert len(ALL) == len({one.text for one in ALL})


def test_the_authoritys_own_last_line_ends_the_run():
    way = control("helpdesk")
    assert (way.status, way.rule, way.agent) == ("done_success", "terminated", "ticketing")
    assert len(way.handoffs) == 11
    assert way.questions == 1


def test_a_persons_own_word_ends_a_review():
    way = control("finance")
    assert (way.status, way.questions) == ("done_success", 2)
    assert way.handoffs == (("planner", "invoice"), ("invoice", "review")) * 2


def test_what_is_quoted_hidden_or_disguised_says_nothing():
    heard = [
        one.text for one in ALL if not one.loud and read_directive(one.text).outcome is not None
    ]
    assert heard == []


@pytest.mark.heavy
@pytest.mark.requirement("H2.4", "H5.4", "R4.2")
@pytest.mark.parametrize("name", TEAMS)
def test_no_text_ends_a_run_approves_or_hands_off(name: str):
    expected = control(name)
    for begin in range(0, len(ALL), PART):
        part = ALL[begin : begin + PART]
        ways = run_async(all_ways(name, part))
        wrong = {one.text: way for one, way in zip(part, ways, strict=True) if way != expected}
        assert wrong == {}


# Over HTTP

SAMPLE = [*ALL[::40], *[one for one in ALL if one.loud][::6]]


async def over_http(harness: ServerHarness, agents: dict[str, HttpAgent], one: Injection) -> None:
    """One text in every field of the API, on a run that goes its way and ends by ticketing."""
    text = one.text
    evidence = {"checks": [{"command": "look", "exit_code": 0, "stderr": text}]}
    fields = {"reason": text, "text": text, "data": {"told": text}, "evidence": evidence}
    bead = await harness.file("hub", title=text, description=text, context={"note": text})
    run_id = bead["execution_id"]
    patch = {"context": {"more": text}}
    assert (await harness.operator.patch(f"/beads/{bead['id']}", json=patch)).status_code == 200
    await agents["orchestrator"].work("handoff", to="memory", **fields)
    alone = await agents["memory"].work(None, text=text)
    assert alone["accepted"] is False, text
    await agents["memory"].work("ask", question=text, options=[text], text=text)
    (asked,) = expect_json(await harness.viewer.get("/approvals", params={"status": "open"}))[
        "items"
    ]
    answer = await harness.ceo.post(f"/approvals/{asked['id']}/answer", json={"text": text})
    assert answer.status_code == 200, answer.text
    await agents["memory"].work("handoff", to="orchestrator", **fields)
    await agents["orchestrator"].work("handoff", to="ticketing", **fields)
    if not one.loud:
        await agents["ticketing"].work("handoff", to="orchestrator", **fields)
        await agents["orchestrator"].work("handoff", to="ticketing", **fields)
    going = expect_json(await harness.viewer.get(f"/executions/{run_id}"))
    assert (going["status"], going["current_node_id"]) == ("running", "ticketing"), text
    end = await agents["ticketing"].work(None, text="All is well.\nTERMINATE_WORKFLOW: resolved")
    assert end["execution"]["stop"]["reason"] == "resolved", text


@pytest.mark.requirement("H2.4", "H5.4")
def test_no_text_does_so_over_http():
    async def play() -> None:
        async with ServerHarness("sqlite://", ManualClock()).opened() as harness:
            agents = await register_hub_agents(harness)
            for one in SAMPLE:
                await over_http(harness, agents, one)

    run_async(play())


@pytest.mark.requirement("R4.2")
def test_no_text_of_an_agent_approves_its_own_work_over_http():
    approving = [one.text for one in ALL if "approv" in one.text.lower()][::20]
    assert len(approving) >= 10

    async def play() -> None:
        async with ServerHarness("sqlite://", ManualClock()).opened() as harness:
            await harness.define(ASKS)
            for text in approving:
                data = {"decision": "approve", "approved": True, "answer": text, "by": "ana"}
                harness.works(Result(outcome=Outcome.SUCCESS, reason=text, text=text, data=data))
                bead = await harness.file("asks", title=text, description=text)
                run_id = bead["execution_id"]
                await harness.quiet()
                run = expect_json(await harness.viewer.get(f"/executions/{run_id}"))
                assert (run["status"], run["current_node_id"]) == ("waiting", "look"), text
                closing = {"action": "close", "reason": "seen"}
                expect_json(await harness.ceo.post(f"/executions/{run_id}/override", json=closing))

    run_async(play())
