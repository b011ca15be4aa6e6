"""Health checks: whether the server is alive, and whether it should receive requests.

They need no token, so database errors are only in the log: their texts name hosts and paths.
"""

from litestar import Response

from handrail.api.server import Health, ServerCalls
from handrail.engine.engine import Engine
from handrail.server.binding import serves
from handrail.server.long_polls import LongPolls
from handrail.store.rows import StoreError

FAILED_REASON = "the engine has failed; the server's log says why"
UNAVAILABLE_REASON = "the database does not answer; the server's log says why"


@serves(ServerCalls.get_health)
async def get_health(engine: Engine) -> Response[Health]:
    failure = engine.failure
    if failure is not None:
        return Response(Health(status="failed", reason=FAILED_REASON), status_code=503)
    return Response(Health(status="ok"))


@serves(ServerCalls.get_readiness)
async def get_readiness(engine: Engine, long_polls: LongPolls) -> Response[Health]:
    if long_polls.draining.is_set():
        return Response(Health(status="draining", reason="this server ends"), status_code=503)
    try:
        await engine.feed.position()
    except StoreError:
        return Response(Health(status="unavailable", reason=UNAVAILABLE_REASON), status_code=503)
    return Response(Health(status="ok"))
