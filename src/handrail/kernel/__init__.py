"""The kernel: pure and synchronous. No clock, no ids, no I/O, no logging.

Time, ids and chance come in as arguments; decisions go out as values. Start with `decision.py` (the
shape of all machines), then `run/decide.py` and `definition/certificate.py` (why a run ends).
"""
