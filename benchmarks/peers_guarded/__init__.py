"""Frameworks' own tests, run with the guard underneath: see `scripts/peers`.

`suites.py` is the table of suites. Each framework has a module here with `patch(make_guard)`, which
sends the framework's top-level runs through its adapter.
"""
