"""Frameworks' own tests, run with the guard underneath: see `scripts/peers`.

Each framework has a module here with `patch(make_guard)`, which sends the framework's top-level
runs through its adapter, and what `scripts/peers` has to know about it (`framework.py`).
"""
