"""The server itself: health, metrics, and the description of the API."""

# pyright: reportReturnType=false
# A declaration has no body.

from handrail.api.access import OPEN, VIEWER
from handrail.api.operation import C_co, CallGroup, operation
from handrail.kernel.decision import Value

PROMETHEUS_TEXT = "text/plain; version=1.0.0; charset=utf-8"


class Health(Value):
    status: str
    reason: str = ""


class ServerCalls(CallGroup[C_co]):
    subject = "server"

    @operation("GET", "/healthz", access=OPEN, prefix="")
    def get_health(self) -> Health:
        """Return 200 while the engine lives; else the process should be ended and started again."""

    @operation("GET", "/readyz", access=OPEN, prefix="")
    def get_readiness(self) -> Health:
        """Return 200 while requests are welcome: the database answers, and the server is not about
        to end."""

    @operation("GET", "/metrics", access=VIEWER, media_types=(PROMETHEUS_TEXT,), prefix="")
    def get_metrics(self) -> str:
        """Return the figures of the server, as Prometheus reads them."""

    @operation("GET", "/openapi.json", access=OPEN)
    def get_openapi(self) -> bytes:
        """Return the OpenAPI document of the API."""
