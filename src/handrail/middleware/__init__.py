"""Errors of a web app become bugs by themselves.

    from handrail.middleware import AsgiMiddleware, Reporter, to_server

    reporter = Reporter(to_server("https://handrail.example", token), service="shop")
    app = AsgiMiddleware(app, reporter)          # or WsgiMiddleware, for WSGI

What is sent, and what never is, stands in `reporter.py`; docs/healing.md tells the rest.
"""

from handrail.middleware.asgi import AsgiMiddleware
from handrail.middleware.reporter import Reporter
from handrail.middleware.senders import to_engine, to_server
from handrail.middleware.wsgi import WsgiMiddleware

__all__ = ["AsgiMiddleware", "Reporter", "WsgiMiddleware", "to_engine", "to_server"]
