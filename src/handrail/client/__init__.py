"""The HTTP API from Python: clients with and without an event loop, and the worker.

`calls.py` says once what each call sends and gives; `talk.py` how often it is tried, and where;
`clients.py` has the two drivers that do it. Nothing here imports the HTTP library before a client
is opened.
"""
