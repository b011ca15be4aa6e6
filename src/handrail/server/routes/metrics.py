"""Figures: per definition for people and the page, of the server for Prometheus."""

from datetime import datetime
from typing import Annotated

from litestar import Response, get
from litestar.params import Parameter
from prometheus_client import CONTENT_TYPE_LATEST

from handrail.engine.engine import Engine
from handrail.engine.figures import WorkflowFigures
from handrail.kernel.shown import Shown
from handrail.server.access import API
from handrail.server.paging import MOMENT, in_utc
from handrail.server.problems import documented
from handrail.server.prometheus import Meters

OfWorkflow = Annotated[
    str | None, Parameter(max_length=1_000, description="Of this definition, by its id.")
]
Since = Annotated[
    str | None, Parameter(schema_extra=MOMENT, description="Ended at this moment or later.")
]


class WorkflowMetrics(Shown):
    """Of runs that have ended, by definition. `since`: at that moment or later; null: ever."""

    items: tuple[WorkflowFigures, ...]
    since: datetime | None


@get(f"{API}/metrics/workflows", responses=documented())
async def workflow_metrics(
    engine: Engine, workflow_id: OfWorkflow = None, since: Since = None
) -> WorkflowMetrics:
    """How long runs take, how often they succeed, how often they need the CEO, how many tries each
    node needs; by definition, of runs that have ended."""
    at = in_utc("since", since)
    return WorkflowMetrics(items=tuple(await engine.figures(workflow_id, at)), since=at)


@get("/metrics", media_type=CONTENT_TYPE_LATEST, responses=documented())
async def metrics(meters: Meters) -> Response[bytes]:
    """Figures of the server, as Prometheus reads them."""
    return Response(await meters.scrape(), media_type=CONTENT_TYPE_LATEST)


HANDLERS = [workflow_metrics, metrics]
