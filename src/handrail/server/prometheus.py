"""Figures for Prometheus: one table of every one there is, a registry for each server.

Counters and histograms are of this process, since its start, and cost nothing but an addition.
Gauges are worked out when somebody asks. Those about the database are of the whole database, so
every server on it tells the same: look at one of them, or at the greatest. Rules

1. No label can grow without bound: paths are templates, a method or role too many is "(other)", and
   neither agents nor runs nor definitions are labels.
2. However many ask, one question at a time goes to the database, and each part of it looks at a
   bounded number of rows.
"""

import asyncio
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from handrail.engine.engine import Engine
from handrail.engine.listeners import Committed, Heard
from handrail.engine.works import RunWork
from handrail.kernel.run.events import Ended, Started
from handrail.server.access import TABLE as CALLS
from handrail.server.waits import Waits
from handrail.store.office import Standing
from handrail.store.port import StoreError, moment

OTHER = "(other)"
ROLES_MAX = 100
LOOK_SECONDS = 5.0
"""A database that does not answer so long is away."""
FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SLOW = (*FAST, 30.0, 60.0)
SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500)

Labels = tuple[str, ...]
Values = dict[Labels, float]


class Meter(NamedTuple):
    kind: Literal["counter", "histogram", "gauge"]
    help: str
    labels: Labels = ()
    buckets: tuple[float, ...] = ()


METERS: dict[str, Meter] = {
    "handrail_http_requests_total": Meter(
        "counter", "Requests answered.", ("method", "path", "status")
    ),
    "handrail_http_request_seconds": Meter(
        "histogram",
        "Time until an answer began; for calls that wait, with the wait.",
        ("method", "path"),
        SLOW,
    ),
    "handrail_http_waiting_requests": Meter(
        "gauge", "Requests that wait for something, and event streams."
    ),
    "handrail_runs_started_total": Meter("counter", "Runs that began at this server."),
    "handrail_runs_ended_total": Meter(
        "counter",
        "Runs that ended at this server, by how and by which rule.",
        ("terminal_status", "rule"),
    ),
    "handrail_runs": Meter("gauge", "Runs that have not ended.", ("status",)),
    "handrail_dispatches": Meter(
        "gauge", "Open dispatches: offered, or claimed by an agent.", ("state", "role")
    ),
    "handrail_dispatch_oldest_offer_seconds": Meter(
        "gauge", "How long the oldest dispatch has been on offer; 0 if there is none."
    ),
    "handrail_approvals_open": Meter(
        "gauge", "Questions that people have not answered.", ("type",)
    ),
    "handrail_approval_oldest_seconds": Meter(
        "gauge", "How long the oldest of them has waited; 0 if there is none."
    ),
    "handrail_commit_seconds": Meter("histogram", "Time a commit took.", buckets=FAST),
    "handrail_commit_writes": Meter(
        "histogram", "Runs and locks that one commit changed.", buckets=SIZES
    ),
    "handrail_engine_up": Meter("gauge", "1 while the engine works."),
    "handrail_database_up": Meter("gauge", "1 if the database answered this scrape."),
}
ROLE_STATES = ("offered", "claimed")
_KINDS: dict[str, Any] = {"counter": Counter, "histogram": Histogram}
_PATHS = frozenset(path for _, path in CALLS)
_METHODS = frozenset(method for method, _ in CALLS)


class Meters:
    """The figures of one server; a listener of its engine."""

    def __init__(self, engine: Engine, waits: Waits) -> None:
        self.engine, self.waits = engine, waits
        self.registry = CollectorRegistry()
        made: dict[str, Any] = {
            name: _KINDS[meter.kind](
                name,
                meter.help,
                meter.labels,
                registry=self.registry,
                **({"buckets": meter.buckets} if meter.buckets else {}),
            )
            for name, meter in METERS.items()
            if meter.kind in _KINDS
        }
        self._requests: Counter = made["handrail_http_requests_total"]
        self._request_seconds: Histogram = made["handrail_http_request_seconds"]
        self._started: Counter = made["handrail_runs_started_total"]
        self._ended: Counter = made["handrail_runs_ended_total"]
        self._commit_seconds: Histogram = made["handrail_commit_seconds"]
        self._commit_writes: Histogram = made["handrail_commit_writes"]
        self._looking: asyncio.Task[list[Standing]] | None = None

    def __call__(self, heard: Heard) -> None:
        if isinstance(heard, Committed):
            self._commit_seconds.observe(heard.seconds)
            self._commit_writes.observe(heard.writes)
        elif isinstance(heard, RunWork):
            for event in heard.events:
                if isinstance(event, Started):
                    self._started.inc()
                elif isinstance(event, Ended):
                    self._ended.labels(event.status.value, event.stop.rule.value).inc()

    def answered(self, scope: Mapping[str, object], status: int, seconds: float) -> None:
        """An answer has begun."""
        path, method = template(scope), str(scope["method"])
        method = method if method in _METHODS else OTHER
        self._requests.labels(method, path, str(status)).inc()
        self._request_seconds.labels(method, path).observe(seconds)

    async def scrape(self) -> bytes:
        """Everything, as Prometheus reads it."""
        families = list(self._families(gauges(await self._look(), self.engine.clock())))
        return generate_latest(_Told(self.registry, families))

    async def _look(self) -> list[Standing] | None:
        if self._looking is None:
            self._looking = asyncio.create_task(self.engine.standing())
            self._looking.add_done_callback(self._looked)
        done, _ = await asyncio.wait((self._looking,), timeout=LOOK_SECONDS)
        for task in done:
            if not isinstance(task.exception(), StoreError):
                return task.result()
        return None

    def _looked(self, _: asyncio.Task[list[Standing]]) -> None:
        self._looking = None

    def _families(self, values: dict[str, Values]) -> Iterator[Metric]:
        values["handrail_http_waiting_requests"] = {(): self.waits.count}
        values["handrail_engine_up"] = {(): float(self.engine.failure is None)}
        for name, meter in METERS.items():
            if name in values:
                family = GaugeMetricFamily(name, meter.help, labels=meter.labels)
                for labels, value in sorted(values[name].items()):
                    family.add_metric(labels, value)
                yield family


def template(scope: Mapping[str, object]) -> str:
    """The path's template; OTHER for one that is none of ours."""
    path = str(scope.get("path_template", ""))
    return path if path in _PATHS else OTHER


def gauges(standing: list[Standing] | None, now: datetime) -> dict[str, Values]:
    """What the database says; nothing but that it is away, if it is."""
    if standing is None:
        return {"handrail_database_up": {(): 0.0}}
    return {
        "handrail_database_up": {(): 1.0},
        "handrail_runs": {(one.kind,): one.count for one in standing if one.what == "run"},
        "handrail_dispatches": _by_role([one for one in standing if one.what in ROLE_STATES]),
        "handrail_dispatch_oldest_offer_seconds": {(): _oldest(standing, "offered", now)},
        "handrail_approvals_open": {
            (one.kind,): one.count for one in standing if one.what == "approval"
        },
        "handrail_approval_oldest_seconds": {(): _oldest(standing, "approval", now)},
    }


def _by_role(standing: list[Standing]) -> Values:
    """The roles with the most dispatches, and all others together."""
    kept: Values = {}
    shown = {one.kind for one in sorted(standing, key=lambda one: -one.count)[:ROLES_MAX]}
    for one in standing:
        labels = one.what, one.kind if one.kind in shown else OTHER
        kept[labels] = kept.get(labels, 0) + one.count
    return kept


def _oldest(standing: list[Standing], what: str, now: datetime) -> float:
    times = [moment(one.oldest) for one in standing if one.what == what and one.oldest is not None]
    return max(0.0, (now - min(times)).total_seconds()) if times else 0.0


class _Told(CollectorRegistry):
    """A registry as it is told: with the gauges, and without the times at which counters began."""

    def __init__(self, registry: CollectorRegistry, gauges: list[Metric]) -> None:
        super().__init__()
        self._of, self._gauges = registry, gauges

    def collect(self) -> Iterator[Metric]:
        for metric in self._of.collect():
            metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
            yield metric
        yield from self._gauges


def page() -> str:
    """The table of figures in docs/observability.md."""
    rows = [
        f"| `{name}` | {meter.kind} | {', '.join(f'`{label}`' for label in meter.labels)} |"
        f" {meter.help} |"
        for name, meter in METERS.items()
    ]
    return "\n".join(("| name | kind | labels | meaning |", "|---|---|---|---|", *rows)) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
