"""Metrics for Prometheus: one table of all metrics, a registry for each server.

Counters and histograms cover this process since its start, and cost only an addition. Gauges are
computed at each scrape. Gauges about the database cover the whole database, so every server on it
reports the same: use one server, or the maximum. Rules

1. No label can grow without bound: paths are templates, surplus methods and roles become "(other)",
   and neither agents nor runs nor definitions are labels.
2. However many scrapes run, one query at a time goes to the database, and each part of it reads a
   bounded number of rows.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Literal, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from handrail.api.calls import OPERATIONS
from handrail.engine.commit.run_change import RunChange
from handrail.engine.engine import Engine
from handrail.engine.notifier import CommitCompleted, EngineNotification
from handrail.kernel.run.events import Ended, Started, Warned
from handrail.store.rows import StoreError, parse_iso
from handrail.store.stats import OpenWorkCount

OTHER_LABEL = "(other)"
ROLES_MAX = 100
STORE_SECONDS_MAX = 5.0
"""A database that does not answer within this time counts as down."""
FAST_BUCKETS_SECONDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
SLOW_BUCKETS_SECONDS = (*FAST_BUCKETS_SECONDS, 30.0, 60.0)
WRITES_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500)

Labels = tuple[str, ...]
Values = dict[Labels, float]


class MetricSpec(NamedTuple):
    kind: Literal["counter", "histogram", "gauge"]
    help: str
    labels: Labels = ()
    buckets: tuple[float, ...] = ()


METRICS: dict[str, MetricSpec] = {
    "handrail_http_requests_total": MetricSpec(
        "counter", "Requests answered.", ("method", "path", "status")
    ),
    "handrail_http_request_seconds": MetricSpec(
        "histogram",
        "Time until an answer began; for calls that wait, with the wait.",
        ("method", "path"),
        SLOW_BUCKETS_SECONDS,
    ),
    "handrail_http_waiting_requests": MetricSpec(
        "gauge", "Requests that wait for something, and event streams."
    ),
    "handrail_runs_started_total": MetricSpec("counter", "Runs that began at this server."),
    "handrail_runs_ended_total": MetricSpec(
        "counter",
        "Runs that ended at this server, by how and by which rule.",
        ("terminal_status", "rule"),
    ),
    "handrail_would_stop_total": MetricSpec(
        "counter",
        "What dry runs would have stopped, by rule.",
        ("rule",),
    ),
    "handrail_runs": MetricSpec("gauge", "Runs that have not ended.", ("status",)),
    "handrail_dispatches": MetricSpec(
        "gauge", "Open dispatches: offered, or claimed by an agent.", ("state", "role")
    ),
    "handrail_dispatch_oldest_offer_seconds": MetricSpec(
        "gauge", "How long the oldest dispatch has been on offer; 0 if there is none."
    ),
    "handrail_approvals_open": MetricSpec(
        "gauge", "Questions that people have not answered.", ("type",)
    ),
    "handrail_approval_oldest_seconds": MetricSpec(
        "gauge", "How long the oldest of them has waited; 0 if there is none."
    ),
    "handrail_commit_seconds": MetricSpec(
        "histogram", "Time a commit took.", buckets=FAST_BUCKETS_SECONDS
    ),
    "handrail_commit_writes": MetricSpec(
        "histogram", "Runs and locks that one commit changed.", buckets=WRITES_BUCKETS
    ),
    "handrail_engine_up": MetricSpec("gauge", "1 while the engine works."),
    "handrail_database_up": MetricSpec("gauge", "1 if the database answered this scrape."),
}
DISPATCH_STATES = ("offered", "claimed")
_METRIC_CLASSES: dict[str, Any] = {"counter": Counter, "histogram": Histogram}
_METHODS = frozenset(operation.method for operation in OPERATIONS)


class ServerMetrics:
    """The metrics of one server; a listener of its engine."""

    def __init__(self, engine: Engine, count_waiting: Callable[[], int]) -> None:
        self.engine, self.count_waiting = engine, count_waiting
        self.registry = CollectorRegistry()
        metrics: dict[str, Any] = {
            name: _METRIC_CLASSES[spec.kind](
                name,
                spec.help,
                spec.labels,
                registry=self.registry,
                **({"buckets": spec.buckets} if spec.buckets else {}),
            )
            for name, spec in METRICS.items()
            if spec.kind in _METRIC_CLASSES
        }
        self._requests: Counter = metrics["handrail_http_requests_total"]
        self._request_seconds: Histogram = metrics["handrail_http_request_seconds"]
        self._started: Counter = metrics["handrail_runs_started_total"]
        self._ended: Counter = metrics["handrail_runs_ended_total"]
        self._would_stop: Counter = metrics["handrail_would_stop_total"]
        self._commit_seconds: Histogram = metrics["handrail_commit_seconds"]
        self._commit_writes: Histogram = metrics["handrail_commit_writes"]
        self._query: asyncio.Task[list[OpenWorkCount]] | None = None

    def __call__(self, notice: EngineNotification) -> None:
        if isinstance(notice, CommitCompleted):
            self._commit_seconds.observe(notice.seconds)
            self._commit_writes.observe(notice.writes)
        elif isinstance(notice, RunChange):
            for event in notice.events:
                if isinstance(event, Started):
                    self._started.inc()
                elif isinstance(event, Ended):
                    self._ended.labels(event.status.value, event.stop.rule.value).inc()
                elif isinstance(event, Warned) and event.rule is not None and event.rung == "stop":
                    self._would_stop.labels(event.rule.value).inc()

    def record_response(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a response that has begun; `path` is a template."""
        method = method if method in _METHODS else OTHER_LABEL
        self._requests.labels(method, path, str(status)).inc()
        self._request_seconds.labels(method, path).observe(seconds)

    async def scrape(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        families = list(
            self._families(compute_gauges(await self._query_store(), self.engine.clock()))
        )
        return generate_latest(_ScrapedRegistry(self.registry, families))

    async def _query_store(self) -> list[OpenWorkCount] | None:
        if self._query is None:
            self._query = asyncio.create_task(self.engine.audit.open_counts())
            self._query.add_done_callback(self._clear_query)
        done, _ = await asyncio.wait((self._query,), timeout=STORE_SECONDS_MAX)
        for task in done:
            if not isinstance(task.exception(), StoreError):
                return task.result()
        return None

    def _clear_query(self, _: asyncio.Task[list[OpenWorkCount]]) -> None:
        self._query = None

    def _families(self, values: dict[str, Values]) -> Iterator[Metric]:
        values["handrail_http_waiting_requests"] = {(): self.count_waiting()}
        values["handrail_engine_up"] = {(): float(self.engine.failure is None)}
        for name, spec in METRICS.items():
            if name in values:
                family = GaugeMetricFamily(name, spec.help, labels=spec.labels)
                for labels, value in sorted(values[name].items()):
                    family.add_metric(labels, value)
                yield family


def compute_gauges(standing: list[OpenWorkCount] | None, now: datetime) -> dict[str, Values]:
    """Return the gauges about the database; without an answer, only that it is down."""
    if standing is None:
        return {"handrail_database_up": {(): 0.0}}
    return {
        "handrail_database_up": {(): 1.0},
        "handrail_runs": {(row.kind,): row.count for row in standing if row.what == "run"},
        "handrail_dispatches": _count_by_role(
            [row for row in standing if row.what in DISPATCH_STATES]
        ),
        "handrail_dispatch_oldest_offer_seconds": {(): _oldest_seconds(standing, "offered", now)},
        "handrail_approvals_open": {
            (row.kind,): row.count for row in standing if row.what == "approval"
        },
        "handrail_approval_oldest_seconds": {(): _oldest_seconds(standing, "approval", now)},
    }


def _count_by_role(standing: list[OpenWorkCount]) -> Values:
    """Count the roles with the most dispatches, and all others together."""
    counts: Values = {}
    named_roles = {row.kind for row in sorted(standing, key=lambda row: -row.count)[:ROLES_MAX]}
    for row in standing:
        labels = row.what, row.kind if row.kind in named_roles else OTHER_LABEL
        counts[labels] = counts.get(labels, 0) + row.count
    return counts


def _oldest_seconds(standing: list[OpenWorkCount], what: str, now: datetime) -> float:
    times = [
        parse_iso(row.oldest) for row in standing if row.what == what and row.oldest is not None
    ]
    return max(0.0, (now - min(times)).total_seconds()) if times else 0.0


class _ScrapedRegistry(CollectorRegistry):
    """A registry for one scrape: adds the gauges, and drops the `_created` samples of counters."""

    def __init__(self, registry: CollectorRegistry, gauges: list[Metric]) -> None:
        super().__init__()
        self._registry, self._gauges = registry, gauges

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [
                sample for sample in metric.samples if not sample.name.endswith("_created")
            ]
            yield metric
        yield from self._gauges


def metrics_markdown() -> str:
    """Return the table of metrics in docs/observability.md."""
    rows = [
        f"| `{name}` | {spec.kind} | {', '.join(f'`{label}`' for label in spec.labels)} |"
        f" {spec.help} |"
        for name, spec in METRICS.items()
    ]
    return "\n".join(("| name | kind | labels | meaning |", "|---|---|---|---|", *rows)) + "\n"


if __name__ == "__main__":
    sys.stdout.write(metrics_markdown())
