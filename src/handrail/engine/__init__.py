"""The engine: loads runs, decides commands, and performs the effects.

`commit/` writes, `dispatch/` gives work to agents, `maintenance/` acts by itself, `queries/` and
`services/` serve callers, `audit/` checks the record; `document_parser.py` reads definition files.
"""
