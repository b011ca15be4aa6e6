"""The engine: runs that survive crashes of this process. For programs that embed it.

    async with handrail.open("sqlite:///work.db") as engine:
        @engine.agent("backend-engineer")
        async def fix(dispatch): ...

        await engine.define("fix.yaml")
        run = await engine.start("fix", title="500 on /invoices")
        ended = await run.result()

The effect of a method is on disk when the method returns. A refused call raises `Refused`; a
failing database raises `StoreError`.
"""

from handrail.engine.audit.trail import WithAuditTrail
from handrail.engine.dispatch.local_agents import WithLocalAgents
from handrail.engine.errors import RefusedError
from handrail.engine.queries.locks import WithLockQueries
from handrail.engine.queries.run_details import WithRunDetails
from handrail.engine.queries.statistics import WithStatistics
from handrail.engine.services.bugs import WithBugs
from handrail.engine.services.credentials import WithCredentials
from handrail.engine.services.definitions import InvalidDefinitionError
from handrail.engine.services.memory import WithMemory
from handrail.engine.services.replays import WithReplays
from handrail.engine.services.report_files import WithReportFiles
from handrail.engine.services.webhooks import WithWebhooks
from handrail.views.definitions import StoredDefinition

__all__ = [
    "Engine",
    "InvalidDefinition",
    "InvalidDefinitionError",
    "Refused",
    "RefusedError",
    "StoredDefinition",
]

Refused = RefusedError
InvalidDefinition = InvalidDefinitionError
"""The public names."""


class Engine(
    WithReportFiles,
    WithLocalAgents,
    WithBugs,
    WithLockQueries,
    WithRunDetails,
    WithReplays,
    WithAuditTrail,
    WithStatistics,
    WithCredentials,
    WithMemory,
    WithWebhooks,
):
    """The engine, made by `handrail.open`. Each base is one subject, in a module of its own."""
