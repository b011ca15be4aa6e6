"""Report errors of a web app as bugs.

    from handrail.middleware import AsgiMiddleware, Reporter, to_server

    reporter = Reporter(to_server("https://handrail.example", token), service="shop")
    app = AsgiMiddleware(app, reporter)          # or WsgiMiddleware, for WSGI

`reporter.py` lists what is sent, and what never is; docs/healing.md has the rest.
"""

from handrail.middleware.asgi import AsgiMiddleware
from handrail.middleware.reporter import Reporter
from handrail.middleware.senders import to_engine, to_server
from handrail.middleware.wsgi import WsgiMiddleware

__all__ = ["AsgiMiddleware", "Reporter", "WsgiMiddleware", "to_engine", "to_server"]
