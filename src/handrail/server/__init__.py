"""The HTTP server: the API, event streams, access control, health and metrics.

Handlers are thin: each reads the request, calls the engine, and shapes the answer. The kernel
decides; the engine stores. Nothing here is imported with the package (`handrail --help` must answer
at once).
"""
