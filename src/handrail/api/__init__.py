"""The contract of the HTTP API: every call declared once, with its request, response and access.

A subject's module (`beads.py`, `runs.py`, …) holds the structs of its requests and responses, and
a class with its calls (`operation.py`). The client, the server, the OpenAPI document, the access
table and the reference pages bind to these declarations; nothing here sends or serves anything.
"""
