"""The engine: loads, decides, and performs what was decided.

`documents.py` reads definition files, `local.py` runs one bead in memory, `dispatch.py` is what an
agent is given with its turn.
"""
