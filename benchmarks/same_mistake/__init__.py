"""The same mistakes in every framework, bare and under guard.

    uv run --group frameworks python -m benchmarks.same_mistake [--json] [--write] [--only NAME]

`scenes.py` says what the agents do, a module each how that is put to a framework, `table.py` runs
and measures.
"""
