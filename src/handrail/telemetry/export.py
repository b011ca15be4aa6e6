"""Spans out of this process, by OpenTelemetry's SDK: beside the engine and never in its way.

Rules
1. The engine only puts spans into a queue of QUEUE_MAX; a thread of the SDK sends them. When it is
   full, the oldest are dropped, and the SDK says so in the log.
2. A collector that is slow, away or broken costs spans and nothing else. The end of the process
   waits CLOSE_SECONDS for what is not sent yet.
3. Everything about where and how to send is OpenTelemetry's own variables' (`OTEL_*`).
"""

import threading
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from handrail.engine.listeners import Heard
from handrail.engine.works import RunWork
from handrail.telemetry.spans import Span, closed

QUEUE_MAX = 8_192
CLOSE_SECONDS = 5.0
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class Traces:
    """For `engine.listeners`. `exporter`: where to; left out, as the environment says, by OTLP over
    HTTP."""

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        own = {"service.name": "handrail", "service.version": version("handrail")}
        self.resource = Resource(own).merge(OTELResourceDetector().detect())
        self.scope = InstrumentationScope("handrail", version("handrail"))
        self._batches = BatchSpanProcessor(exporter or OTLPSpanExporter(), QUEUE_MAX)

    def __call__(self, heard: Heard) -> None:
        if not isinstance(heard, RunWork) or heard.run is None or not heard.events:
            return
        before = heard.kept.run if heard.kept is not None else None
        workflow = heard.plan.definition.name
        for span in closed(before, heard.run, heard.events, workflow):
            self._batches.on_end(self._read(span))

    def flush(self) -> None:
        """Send what is there; blocks."""
        self._batches.force_flush()

    def close(self) -> None:
        """Send what is there, for CLOSE_SECONDS at most."""
        closing = threading.Thread(target=self._batches.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)

    def _read(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace_id, span.span_id),
            parent=_context(span.trace_id, span.parent_id) if span.parent_id is not None else None,
            resource=self.resource,
            attributes=span.attributes,
            events=[Event(one.name, one.attributes, _ns(one.at)) for one in span.marks],
            kind=SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=_ns(span.start),
            end_time=_ns(span.end),
            instrumentation_scope=self.scope,
        )


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=SAMPLED)


def _ns(at: datetime) -> int:
    return (at - EPOCH) // MICROSECOND * 1_000
