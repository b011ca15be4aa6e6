"""Metrics: per definition for people and the web app, of the server for Prometheus."""

from litestar import Response
from prometheus_client import CONTENT_TYPE_LATEST

from handrail.api.definitions import DefinitionCalls, MetricsQuery, WorkflowMetrics
from handrail.api.server import ServerCalls
from handrail.engine.engine import Engine
from handrail.server.binding import serves
from handrail.server.paging import parse_time
from handrail.server.prometheus import ServerMetrics


@serves(DefinitionCalls.get_metrics)
async def get_definition_metrics(engine: Engine, query: MetricsQuery) -> WorkflowMetrics:
    at = parse_time("since", query.since)
    return WorkflowMetrics(
        items=tuple(await engine.statistics.by_definition(query.workflow_id, at)), since=at
    )


@serves(ServerCalls.get_metrics)
async def get_prometheus_metrics(metrics: ServerMetrics) -> Response[bytes]:
    return Response(await metrics.scrape(), media_type=CONTENT_TYPE_LATEST)
