"""Metrics: per definition for people and the web app, of the server for Prometheus."""

from typing import Annotated

from litestar import Response, get
from litestar.params import Parameter
from prometheus_client import CONTENT_TYPE_LATEST

from handrail.api.definitions import WorkflowMetrics
from handrail.engine.engine import Engine
from handrail.server.access import API_PREFIX
from handrail.server.paging import DATE_TIME_SCHEMA, parse_time
from handrail.server.problems import problem_responses
from handrail.server.prometheus import ServerMetrics

DefinitionIdQuery = Annotated[
    str | None, Parameter(max_length=1_000, description="Of this definition, by its id.")
]
SinceQuery = Annotated[
    str | None,
    Parameter(schema_extra=DATE_TIME_SCHEMA, description="Ended at this moment or later."),
]


@get(f"{API_PREFIX}/metrics/workflows", responses=problem_responses())
async def workflow_metrics(
    engine: Engine, workflow_id: DefinitionIdQuery = None, since: SinceQuery = None
) -> WorkflowMetrics:
    """How long runs take, how often they succeed, how often they need the CEO, how many tries each
    node needs; by definition, of runs that have ended."""
    at = parse_time("since", since)
    return WorkflowMetrics(
        items=tuple(await engine.statistics.by_definition(workflow_id, at)), since=at
    )


@get("/metrics", media_type=CONTENT_TYPE_LATEST, responses=problem_responses())
async def metrics(metrics: ServerMetrics) -> Response[bytes]:
    """Figures of the server, as Prometheus reads them."""
    return Response(await metrics.scrape(), media_type=CONTENT_TYPE_LATEST)


HANDLERS = [workflow_metrics, metrics]
