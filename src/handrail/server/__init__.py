"""The HTTP server: the API, events as they happen, who may do what, health and metrics.

Thin: a handler reads the request, asks the engine, and shapes the answer. What is decided is
decided by the kernel; what is kept is kept by the engine. Nothing here is imported with the package
(`handrail --help` must answer at once).
"""
