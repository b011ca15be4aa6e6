"""Decide from OpenTelemetry's variables whether traces are wanted, and open them."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from handrail.engine.errors import install_hint

if TYPE_CHECKING:
    from handrail.telemetry.export import TraceExporter

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
REQUIRED_MODULES = (
    "opentelemetry.sdk.trace",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
)


class TracingUnavailableError(Exception):
    """Traces are wanted, and cannot be made; one line says why and what to do."""


def open_traces(environment: Mapping[str, str]) -> "TraceExporter | None":
    """Return a listener for `engine.listeners`, if traces are wanted.

    Raises `TracingUnavailableError`.
    """
    endpoint_variable = next((name for name in ENDPOINT_VARIABLES if environment.get(name)), "")
    is_disabled = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    is_none = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none"
    if not endpoint_variable or is_disabled or is_none:
        return None
    if not all(_is_installed(module) for module in REQUIRED_MODULES):
        message = (
            f"{endpoint_variable} is set, and OpenTelemetry is not installed, so no traces are sent"
        )
        raise TracingUnavailableError(f"{message}; {install_hint('otel')}")
    from handrail.telemetry.export import TraceExporter

    return TraceExporter()


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False
