"""Health checks: whether the server is alive, and whether it should receive requests.

They need no token, so database errors are only in the log: their texts name hosts and paths.
"""

from litestar import Response, get

from handrail.api.server import Health
from handrail.engine.engine import Engine
from handrail.server.long_polls import LongPolls
from handrail.store.engine_store import StoreError

FAILED_REASON = "the engine has failed; the server's log says why"
UNAVAILABLE_REASON = "the database does not answer; the server's log says why"


@get("/healthz")
async def healthz(engine: Engine) -> Response[Health]:
    """200 while the engine lives; else this process should be ended and started again."""
    failure = engine.failure
    if failure is not None:
        return Response(Health(status="failed", reason=FAILED_REASON), status_code=503)
    return Response(Health(status="ok"))


@get("/readyz")
async def readyz(engine: Engine, long_polls: LongPolls) -> Response[Health]:
    """200 while requests are welcome: the database answers, and the server is not about to end."""
    if long_polls.draining.is_set():
        return Response(Health(status="draining", reason="this server ends"), status_code=503)
    try:
        await engine.feed.position()
    except StoreError:
        return Response(Health(status="unavailable", reason=UNAVAILABLE_REASON), status_code=503)
    return Response(Health(status="ok"))


HANDLERS = [healthz, readyz]
