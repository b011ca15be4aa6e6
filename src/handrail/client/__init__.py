"""The HTTP API from Python: clients with and without an event loop, and the worker.

`handrail.api` declares each call; `retry.py` decides how often and at which server it is tried;
`clients.py` has the two clients that do the I/O. Nothing here imports the HTTP library before a
client is opened.
"""
