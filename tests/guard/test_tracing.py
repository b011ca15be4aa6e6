"""A guarded run in the program's own OpenTelemetry trace."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode, Tracer
from tests.client.live_server import Server
from tests.patience import PATIENCE, wait_until

from handrail import Client, Guard, LoopDetected, StopRules
from handrail.guard.tracing import EVENTS_MAX


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What a program with traces exports."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def tracer() -> Tracer:
    return trace.get_tracer("the program")


def run_span(spans: InMemorySpanExporter) -> ReadableSpan:
    (span,) = [one for one in spans.get_finished_spans() if one.name.startswith("invoke_workflow")]
    return span


def events(span: ReadableSpan) -> list[tuple[str, dict[str, Any]]]:
    return [(event.name, dict(event.attributes or {})) for event in span.events]


def test_a_run_is_a_span_of_the_programs_own_trace(spans: InMemorySpanExporter):
    with tracer().start_as_current_span("request") as request, Guard().run("x", team="desk") as run:
        run.result("coder", usage={"tokens": 3})
    span = run_span(spans)
    assert span.name == "invoke_workflow desk"
    assert span.parent is not None
    assert span.context is not None
    assert span.parent.span_id == request.get_span_context().span_id
    assert span.context.trace_id == request.get_span_context().trace_id
    assert dict(span.attributes or {})["handrail.terminal_status"] == "done_success"
    assert span.status.status_code is StatusCode.UNSET
    assert span.events == ()


def test_tokens_model_and_provider_have_the_names_that_viewers_know(spans: InMemorySpanExporter):
    usage = {
        "tokens": 12,
        "input_tokens": 10,
        "output_tokens": 2,
        "model": "small",
        "provider": "own",
        "cost": 0.5,
    }
    with Guard().run("x") as run:
        run.result("coder", usage=usage)
        run.result("coder", usage=usage)
    attributes = dict(run_span(spans).attributes or {})
    assert attributes["gen_ai.usage.input_tokens"] == 20
    assert attributes["gen_ai.usage.output_tokens"] == 4
    assert attributes["gen_ai.request.model"] == "small"
    assert attributes["gen_ai.provider.name"] == "own"
    assert attributes["handrail.usage.tokens"] == 24
    assert attributes["handrail.usage.cost"] == 1.0
    assert attributes["handrail.steps"] == 2


def test_a_nudge_and_the_stop_are_events_of_the_span(spans: InMemorySpanExporter):
    with pytest.raises(LoopDetected), Guard(StopRules(max_edge=None)).run("x") as run:
        for _ in range(20):
            run.handoff("planner", "coder", reason="secret words")
            run.handoff("coder", "planner", reason="secret words")
    span = run_span(spans)
    told = events(span)
    assert [name for name, _ in told] == ["handrail.nudge", "handrail.stop"]
    assert told[0][1]["handrail.stop.rule"] == "repeated_pattern"
    assert told[-1][1]["handrail.stop.limit"] == 3
    assert dict(span.attributes or {})["error.type"] == "repeated_pattern"
    assert span.status.status_code is StatusCode.ERROR
    assert "secret" not in str(told)
    assert span.start_time is not None
    assert span.end_time is not None
    assert all(span.start_time <= event.timestamp <= span.end_time for event in span.events)


def test_a_dry_run_says_what_would_have_been_done(spans: InMemorySpanExporter):
    with Guard(StopRules(max_edge=None), dry_run=True).run("x") as run:
        for _ in range(5):
            run.handoff("planner", "coder", reason="again")
            run.handoff("coder", "planner", reason="again")
    warnings = [told.get("handrail.warning") for _, told in events(run_span(spans))]
    assert warnings == ["would_nudge", "would_stop"]


def test_the_stop_is_there_however_much_was_warned_of(spans: InMemorySpanExporter):
    with pytest.raises(LoopDetected), Guard(StopRules(max_edge=None)).run("x") as run:
        for number in range(2 * EVENTS_MAX):
            run.errors.note(ValueError(f"number {number}"), "something went wrong")
        for _ in range(20):
            run.handoff("planner", "coder", reason="again")
            run.handoff("coder", "planner", reason="again")
    told = events(run_span(spans))
    assert len(told) <= EVENTS_MAX + 1
    assert told[-1][0] == "handrail.stop"


def test_a_program_that_raises_ends_its_span_as_failed(spans: InMemorySpanExporter):
    with pytest.raises(KeyError), Guard().run("x"):
        raise KeyError("secret")
    span = run_span(spans)
    assert span.status.status_code is StatusCode.ERROR
    assert "secret" not in str(span.status.description)


def test_only_a_sampled_span_is_handed_on(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
):
    with Guard().run("x") as run:
        assert run.trace is not None
        version, trace_id, span_id, _ = run.trace.sampled_traceparent.split("-")
        assert (version, len(trace_id), len(span_id)) == ("00", 32, 16)
    monkeypatch.setattr(trace, "get_tracer", TracerProvider(sampler=ALWAYS_OFF).get_tracer)
    with Guard().run("x") as run:
        assert run.trace is not None
        assert run.trace.sampled_traceparent == ""


def test_without_a_provider_there_is_no_span():
    with Guard().run("x") as run:
        assert run.trace is None


def test_a_tracer_that_fails_costs_the_span_and_nothing_else(monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> Tracer:
        raise RuntimeError("no tracer")

    monkeypatch.setattr(trace, "get_tracer", broken)
    with Guard().run("x") as run:
        run.result("coder")
    assert run.report().terminal_status == "done_success"


def test_opentelemetry_is_not_imported_for_a_program_without_it():
    program = (
        "import sys, handrail\n"
        "with handrail.Guard().run('x') as run: run.handoff('a', 'b')\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_server_goes_on_with_the_trace_and_an_answer_from_the_inbox_is_an_event(
    spans: InMemorySpanExporter, tmp_path: Path
):
    with (
        Server(f"sqlite:///{tmp_path}/work.db") as server,
        Client(server.url, server.token("ceo", "ann")) as person,
        ThreadPoolExecutor(1) as pool,
        Guard(record=server.url, token=server.token("operator", "program")).run("x") as run,
    ):
        run.handoff("clerk", "buyer")
        asked = pool.submit(run.ask, "may I?")
        question = wait_until(lambda: next(iter(person.approvals.list(status="open").items), None))
        person.approvals.answer(question.id, "yes, secretly")
        assert asked.result(PATIENCE) is not None
        begun = server.do(server.engine.runs.state(run.recorded))
        assert run.trace is not None
        assert begun.traceparent == run.trace.sampled_traceparent
    span = run_span(spans)
    approval = {"handrail.decision": "answered", "handrail.answered_by": "ann"}
    assert events(span) == [("handrail.approval", approval)]
    assert dict(span.attributes or {})["handrail.run.id"] == run.recorded
