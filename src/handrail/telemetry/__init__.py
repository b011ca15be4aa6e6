"""Runs as traces, for OpenTelemetry: `spans.py` says what they are, `export.py` sends them.

Only `export.py` knows the SDK, and it is imported when traces are wanted.
"""
