"""Whether traces are wanted, as OpenTelemetry's variables say it, and can be made."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from handrail.engine.extras import install

if TYPE_CHECKING:
    from handrail.telemetry.export import Traces

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
NEEDED = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")


class NoTraces(Exception):  # noqa: N818 - an answer, not a mistake of the program
    """They are wanted, and cannot be made; one line says why and what to do."""


def traces(environment: Mapping[str, str]) -> "Traces | None":
    """For `engine.listeners`, if traces are wanted. Raises `NoTraces`."""
    named = next((name for name in ENDPOINTS if environment.get(name)), "")
    off = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    none = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none"
    if not named or off or none:
        return None
    if not all(_there(module) for module in NEEDED):
        told = f"{named} is set, and OpenTelemetry is not installed, so no traces are sent"
        raise NoTraces(f"{told}; {install('otel')}")
    from handrail.telemetry.export import Traces

    return Traces()


def _there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is not there
        return False
