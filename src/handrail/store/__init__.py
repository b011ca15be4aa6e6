"""Where runs are kept: the port (`port.py`) and its two implementations, SQLite and PostgreSQL."""
