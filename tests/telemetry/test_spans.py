"""Runs as traces, into a list of the SDK's own: what is a span, when, and with which names."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, StatusCode
from tests.engine.engines import (
    ANA,
    DONE,
    ROLE,
    Worker,
    abandon_engine,
    chain,
    engine_to_abandon,
    manual_engine,
    node,
    run_async,
)

from handrail import Guard
from handrail.engine.engine import Engine
from handrail.guard.recording import begin_run, record_events
from handrail.guard.team_definition import guard_events
from handrail.kernel.definition.limits import STRICT
from handrail.kernel.result import Check, Evidence, Outcome, Result, Usage
from handrail.kernel.run.state import Person
from handrail.telemetry.export import TraceExporter
from handrail.testing.clock import ManualClock

FIX = chain(node("fix"), node("look", "approval", revise_to="fix"), name="fix it", id="fix")
ONE = chain(node("fix", max_attempts=2), name="one", id="one")
CEO = Person(name=ANA.name, role="ceo")


@pytest.fixture
def sent() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traces(sent: InMemorySpanExporter) -> TraceExporter:
    return TraceExporter(sent)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'work.db'}"


def spans(traces: TraceExporter, sent: InMemorySpanExporter) -> Sequence[ReadableSpan]:
    traces.flush()
    return sent.get_finished_spans()


def context(span: ReadableSpan) -> SpanContext:
    assert span.context is not None
    return span.context


def parent_id(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def seconds(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9


async def hired(engine: Engine, *definitions: dict[str, Any]) -> Worker:
    for one in definitions:
        await engine.define(one, by="ana")
    await engine.agents.register("coder-1", [ROLE])
    return Worker(engine, "coder-1")


def named(found: Sequence[ReadableSpan], name: str) -> dict[str, Any]:
    (span,) = [one for one in found if one.name == name]
    return dict(span.attributes or {})


def test_a_run_is_a_trace_with_a_span_for_each_dispatch_and_each_question(
    url: str, traces: TraceExporter, sent: InMemorySpanExporter
):
    clock = ManualClock()
    result = Result(
        outcome=Outcome.SUCCESS,
        text="secret words",
        evidence=Evidence(checks=(Check(command="pytest -q --token=abc", exit_code=1),)),
        usage=Usage(tokens=1_200, cost=0.5),
    )

    async def play() -> str:
        async with manual_engine(url, clock) as engine:
            engine.listeners.add(traces)
            worker = await hired(engine, FIX)
            run = await engine.start("fix", title="a bug")
            dispatch = await worker.get()
            clock.advance(seconds=30)
            await engine.dispatches.report(run.id, dispatch.fence, "coder-1", result)
            clock.advance(seconds=90)
            (question,) = (await engine.runs.state(run.id)).pending_approvals
            await engine.approvals.answer(question, "approve", by=CEO)
            return run.id

    run_id = run_async(play())
    found = spans(traces, sent)
    assert [one.name for one in found] == [
        "invoke_agent fix",
        "ask_person approval",
        "invoke_workflow fix it",
    ]
    agent, person, run = found
    assert {f"{context(one).trace_id:032x}" for one in found} == {run_id}
    assert run.parent is None
    assert {parent_id(agent), parent_id(person)} == {context(run).span_id}
    assert [seconds(one) for one in found] == [30, 90, 120]
    said = named(found, "invoke_agent fix")
    assert said["gen_ai.operation.name"] == "invoke_agent"
    assert said["gen_ai.agent.name"] == "fix"
    assert said["gen_ai.agent.id"] == "coder-1"
    assert said["handrail.usage.tokens"] == 1_200
    assert said["handrail.outcome"] == "success"
    (check,) = agent.events
    assert dict(check.attributes or {})["gen_ai.tool.name"] == "pytest"
    assert named(found, "ask_person approval")["handrail.decision"] == "approve"
    ended = named(found, "invoke_workflow fix it")
    assert ended["handrail.terminal_status"] == "done_success"
    assert ended["gen_ai.workflow.name"] == "fix it"
    assert run.status.status_code is StatusCode.UNSET
    told = "".join(one.to_json() for one in found)
    assert "secret words" not in told
    assert "--token" not in told


def test_what_was_lost_and_a_run_that_was_stopped_are_errors(
    url: str, traces: TraceExporter, sent: InMemorySpanExporter
):
    async def play() -> None:
        async with manual_engine(url, ManualClock()) as engine:
            engine.listeners.add(traces)
            worker = await hired(engine, ONE)
            run = await engine.start("one", title="a bug")
            for _ in range(2):
                dispatch = await worker.get()
                await engine.dispatches.hand_back(
                    dispatch.id, "coder-1", dispatch.fence, "I cannot"
                )

            assert (await engine.runs.state(run.id)).status != "running"

    run_async(play())
    found = spans(traces, sent)
    lost = [one for one in found if one.name == "invoke_agent fix"]
    assert [one.status.status_code for one in lost] == [StatusCode.ERROR] * 2
    assert len({context(one).span_id for one in lost}) == 2
    assert [dict(one.attributes or {})["handrail.outcome"] for one in lost] == ["lost", "lost"]


def test_a_dispatch_that_outlives_its_engine_is_one_whole_span(
    url: str, traces: TraceExporter, sent: InMemorySpanExporter
):
    clock = ManualClock()

    async def play() -> None:
        first = await engine_to_abandon(url, clock)
        worker = await hired(first, ONE)
        run = await first.start("one", title="a bug")
        dispatch = await worker.get()
        clock.advance(seconds=30)
        await worker.beat()
        await first.tick()
        await abandon_engine(first)
        clock.advance(seconds=20)
        async with manual_engine(url, clock) as engine:
            engine.listeners.add(traces)
            await engine.dispatches.report(run.id, dispatch.fence, "coder-1", DONE)

    run_async(play())
    agent, run = spans(traces, sent)
    assert run.name == "invoke_workflow one"
    assert parent_id(agent) == context(run).span_id
    assert 30 <= seconds(agent) <= 50


def test_each_step_that_a_guard_tells_of_is_a_span(
    url: str, traces: TraceExporter, sent: InMemorySpanExporter
):
    with Guard().run("ticket 1", raises=False) as run:
        for source, target in (("planner", "coder"), ("coder", "planner")):
            run.result(source, text="done", usage={"tokens": 7})
            run.handoff(source, target)
        run.result("planner", usage={"tokens": 7})

    async def told() -> None:
        async with manual_engine(url, ManualClock()) as engine:
            engine.listeners.add(traces)
            heard = await begin_run(engine, "their team", STRICT, by="ana", agent="planner")
            events = guard_events(run.events)
            for some in (events[:3], events[3:]):
                await record_events(engine, heard.id, some, by="ana", sent_at=engine.clock())

    run_async(told())
    found = spans(traces, sent)
    assert [one.name for one in found] == [
        "invoke_agent planner",
        "invoke_agent coder",
        "invoke_agent planner",
        "invoke_workflow their team",
    ]
    assert [(one.attributes or {}).get("handrail.usage.tokens") for one in found] == [7, 7, 7, 21]
    assert (found[0].attributes or {})["gen_ai.agent.id"] == "planner"
    whole = found[-1].context
    assert whole is not None
    assert {one.parent and one.parent.span_id for one in found[:-1]} == {whole.span_id}


def test_a_guarded_run_is_part_of_its_programs_own_trace(
    url: str, traces: TraceExporter, sent: InMemorySpanExporter
):
    with Guard().run("ticket 1") as run:
        run.result("planner", usage={"tokens": 7, "input_tokens": 5, "model": "small"})
    span = f"00-{'a' * 32}-{'b' * 16}-01"

    async def told() -> None:
        async with manual_engine(url, ManualClock()) as engine:
            engine.listeners.add(traces)
            begun = await begin_run(
                engine, "their team", STRICT, by="ana", agent="planner", traceparent=span
            )
            events = guard_events(run.events)
            await record_events(engine, begun.id, events, by="ana", sent_at=engine.clock())

    run_async(told())
    step, whole = spans(traces, sent)
    assert {one.context and one.context.trace_id for one in (step, whole)} == {int("a" * 32, 16)}
    assert whole.parent is not None
    assert whole.parent.span_id == int("b" * 16, 16)
    assert (step.attributes or {})["gen_ai.usage.input_tokens"] == 5
    assert (step.attributes or {})["gen_ai.request.model"] == "small"
