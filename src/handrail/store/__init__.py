"""Storage of runs: the protocol (`engine_store.py`, `store.py`), and SQLite and PostgreSQL."""
