"""Report errors of a Django project, which answers its exceptions itself.

    # wsgi.py, or asgi.py with get_asgi_application
    from handrail.middleware import Reporter, to_server
    from handrail.middleware.django import report_django

    reporter = Reporter(to_server("https://handrail.example", token), service="shop")
    application = report_django(get_wsgi_application(), reporter)

Django's signal `got_request_exception` tells the exception and, by its request, the route.
"""

# pyright: reportMissingTypeStubs=false
# Django has no types of its own.

import sys
from typing import Any, cast

from django.core.handlers.asgi import ASGIHandler
from django.core.signals import got_request_exception
from django.http import HttpRequest

from handrail.middleware import asgi, wsgi
from handrail.middleware.reporter import ANSWERED_ERROR, ROUTE, Reporter


def report_django(application: object, reporter: Reporter) -> asgi.App | wsgi.App:
    """Return the application to serve, for WSGI or ASGI; its answers stay as they are."""
    signal: Any = got_request_exception
    signal.connect(_remember_error, dispatch_uid=__name__)
    if isinstance(application, ASGIHandler):
        return asgi.AsgiMiddleware(cast("asgi.App", application), reporter)
    return wsgi.WsgiMiddleware(cast("wsgi.App", application), reporter)


def _remember_error(request: HttpRequest, **_: object) -> None:
    """Leave the error and the route where the middleware finds them when the response begins."""
    state = getattr(request, "scope", None) or getattr(request, "environ", {})
    state[ANSWERED_ERROR] = sys.exc_info()[1]
    match: Any = request.resolver_match
    if match is not None:
        state[ROUTE] = f"/{match.route}"
