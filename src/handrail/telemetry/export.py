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

from handrail.engine.notifier import EngineNotification, RunChange
from handrail.telemetry.spans import Span, closed_spans

QUEUE_MAX = 8_192
CLOSE_SECONDS = 5.0
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class TraceExporter:
    """A listener for `engine.listeners`. `exporter` is the target; by default the environment's, by
    OTLP over HTTP.
    """

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        service = {"service.name": "handrail", "service.version": version("handrail")}
        self.resource = Resource(service).merge(OTELResourceDetector().detect())
        self.scope = InstrumentationScope("handrail", version("handrail"))
        self._processor = BatchSpanProcessor(exporter or OTLPSpanExporter(), QUEUE_MAX)

    def __call__(self, change: EngineNotification) -> None:
        if not isinstance(change, RunChange) or change.run is None or not change.events:
            return
        before = change.before.run if change.before is not None else None
        definition_name = change.plan.definition.name
        for span in closed_spans(before, change.run, change.events, definition_name):
            self._processor.on_end(self._readable_span(span))

    def flush(self) -> None:
        """Send what is queued; blocks."""
        self._processor.force_flush()

    def close(self) -> None:
        """Send what is queued, for CLOSE_SECONDS at most."""
        closing = threading.Thread(target=self._processor.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)

    def _readable_span(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace_id, span.span_id),
            parent=_context(span.trace_id, span.parent_id) if span.parent_id is not None else None,
            resource=self.resource,
            attributes=span.attributes,
            events=[
                Event(event.name, event.attributes, _nanoseconds(event.at)) for event in span.events
            ],
            kind=SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=_nanoseconds(span.start),
            end_time=_nanoseconds(span.end),
            instrumentation_scope=self.scope,
        )


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=SAMPLED)


def _nanoseconds(at: datetime) -> int:
    return (at - EPOCH) // MICROSECOND * 1_000
