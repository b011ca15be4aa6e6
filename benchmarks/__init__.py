"""Benchmarks: what Handrail costs, next to what else one could use. Nothing here is asserted.

uv run --group bench python -m benchmarks.guard
"""
