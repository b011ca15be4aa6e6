"""The engine: runs that survive whatever happens to this process. For programs that embed it.

    async with handrail.open("sqlite:///work.db") as engine:
        @engine.agent("backend-engineer")
        async def fix(dispatch): ...

        await engine.define("fix.yaml")
        run = await engine.start("fix", title="500 on /invoices")
        ended = await run.result()

What a method says it did is on disk when it returns. What is refused raises `Refused`; what the
database cannot do, `StoreError`.
"""

from handrail.engine.bugs import WithBugs
from handrail.engine.credentials import WithCredentials
from handrail.engine.definitions import Defined, InvalidDefinition
from handrail.engine.figures import WithFigures
from handrail.engine.lock_views import WithLocks
from handrail.engine.memory import WithMemory
from handrail.engine.oversight import WithOversight
from handrail.engine.refused import Refused
from handrail.engine.replaying import WithReplays
from handrail.engine.reports import WithReports
from handrail.engine.webhooks import WithWebhooks
from handrail.engine.whole import WithWholes
from handrail.engine.with_agents import WithAgents

__all__ = ["Defined", "Engine", "InvalidDefinition", "Refused"]


class Engine(
    WithReports,
    WithAgents,
    WithBugs,
    WithLocks,
    WithWholes,
    WithReplays,
    WithOversight,
    WithFigures,
    WithCredentials,
    WithMemory,
    WithWebhooks,
):
    """Made by `handrail.open`. Each base is one side of it, in a module of its own."""
