"""The kernel: pure and synchronous. No clock, no ids, no I/O, no logging.

Time, ids and chance come in as arguments; decisions go out as values. Start with `decision.py` (the
shape every machine shares), then `run.py` (the run's machine) and `certificate.py` (why it ends).
"""
