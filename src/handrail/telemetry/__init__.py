"""Runs as traces, for OpenTelemetry: `spans.py` builds them, `export.py` sends them.

Only `export.py` uses the SDK, and it is imported when traces are wanted.
"""
