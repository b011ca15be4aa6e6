"""Whether the server is alive, and whether it should be given requests."""

from litestar import Response, get

from handrail.engine.engine import Engine
from handrail.kernel.decision import Value
from handrail.server.waits import Waits
from handrail.store.port import StoreError


class Health(Value):
    status: str
    reason: str = ""


@get("/healthz")
async def healthz(engine: Engine) -> Response[Health]:
    """200 while the engine lives; else this process should be ended and started again."""
    failure = engine.failure
    if failure is not None:
        return Response(Health(status="failed", reason=str(failure)), status_code=503)
    return Response(Health(status="ok"))


@get("/readyz")
async def readyz(engine: Engine, waits: Waits) -> Response[Health]:
    """200 while requests are welcome: the database answers, and the server is not about to end."""
    if waits.draining.is_set():
        return Response(Health(status="draining", reason="this server ends"), status_code=503)
    try:
        await engine.position()
    except StoreError as error:
        return Response(Health(status="unavailable", reason=str(error)), status_code=503)
    return Response(Health(status="ok"))


HANDLERS = [healthz, readyz]
