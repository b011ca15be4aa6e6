"""Hypothesis's health checks, for the tests whose examples are slow by design."""

from hypothesis import HealthCheck

EVERY_HEALTH_CHECK = [check for check in HealthCheck if isinstance(check, HealthCheck)]
"""For `suppress_health_check`. Hypothesis types the members as their metaclass, hence the test."""
