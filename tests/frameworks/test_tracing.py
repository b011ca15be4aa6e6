"""Guarded teams in the program's own OpenTelemetry trace."""

import asyncio

import pytest
from langchain_core.messages import AIMessage
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.frameworks.langgraph_agents import (
    INPUT,
    Till,
    asks,
    model_of,
    paying_agent,
    thread,
    tool_call,
)
from tests.frameworks.test_langgraph import asking, ping_pong

from handrail import Guard, LoopDetected
from handrail.guard.langgraph import guarded

EMPTY = {"seen": []}


@pytest.fixture
def spans(monkeypatch):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def of_run(spans):
    (found,) = [span for span in spans.get_finished_spans() if "invoke_workflow" in span.name]
    return found


@pytest.mark.parametrize("form", ["wrapped", "callback", "stream"])
def test_a_graph_joins_the_span_in_which_it_is_called(spans, form):
    graph, guard = ping_pong(), Guard()
    calls = {
        "wrapped": lambda: guarded(graph, guard).invoke(EMPTY),
        "callback": lambda: graph.invoke(EMPTY, {"callbacks": [guard.callback()]}),
        "stream": lambda: list(guarded(graph, guard).stream(EMPTY)),
    }
    with (
        trace.get_tracer("the program").start_as_current_span("request") as request,
        pytest.raises(LoopDetected),
    ):
        calls[form]()
    span = of_run(spans)
    assert span.parent.span_id == request.get_span_context().span_id
    assert [event.name for event in span.events][-1] == "handrail.stop"


@pytest.mark.parametrize("is_async", [False, True])
def test_an_answer_is_an_event_without_a_server(spans, is_async):
    team = guarded(asking(), answer=lambda _: "yes, secretly")
    config = {"configurable": {"thread_id": "1"}}
    if is_async:
        asyncio.run(team.ainvoke(EMPTY, config))
    else:
        team.invoke(EMPTY, config)
    (event,) = of_run(spans).events
    assert event.name == "handrail.approval"
    assert dict(event.attributes) == {"handrail.decision": "answered"}


def test_an_agent_with_the_middleware_tells_what_its_model_used(spans):
    model = model_of(asks(tool_call(1)), asks(tool_call(2, 6)), AIMessage("done"))
    paying_agent(Till(), model, Guard().middleware()).invoke(INPUT, thread())
    attributes = of_run(spans).attributes
    assert attributes["handrail.terminal_status"] == "done_success"
    assert attributes["gen_ai.usage.input_tokens"] == 2
    assert attributes["gen_ai.usage.output_tokens"] == 2
