"""Wrap an ASGI app: report what it raises, and each response with a status of 500 or more.

The app does not notice: errors and messages pass through unchanged. A framework that responds to an
error by itself does so while it handles the exception; so that error is known here, too.

Every request pays for this, so it is written as `wsgi.py` is: made once, and little for each.
"""

import sys
from collections.abc import Awaitable, Callable, MutableMapping
from types import MethodType
from typing import Any

from handrail.middleware.reporter import ANSWERED_ERROR, NOTED_ERROR, ROUTE, Reporter

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
SendMessage = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, SendMessage], Awaitable[None]]
RequestContext = tuple[SendMessage, Scope, Reporter]
RESPONSE_START = "http.response.start"


def AsgiMiddleware(app: App, reporter: Reporter) -> App:  # noqa: N802 - it stands where a class would
    """Put it outermost, so that it sees what the app's own error pages hide."""

    async def middleware(scope: Scope, receive: Receive, send: SendMessage) -> None:
        if scope["type"] != "http":
            return await _call_other(app, reporter, scope, receive, send)
        try:
            return await app(scope, receive, MethodType(_observe_send, (send, scope, reporter)))
        except Exception as error:
            if scope.get(NOTED_ERROR) is not error:  # already noted with its response
                _note_error(reporter, scope, error, 500)
            raise

    return middleware


def _observe_send(context: RequestContext, message: Message) -> Awaitable[None]:
    if message["type"] == RESPONSE_START and message["status"] >= 500:
        error = sys.exc_info()[1] or context[1].get(ANSWERED_ERROR)
        _note_error(context[2], context[1], error, message["status"])
    return context[0](message)


async def _call_other(
    app: App, reporter: Reporter, scope: Scope, receive: Receive, send: SendMessage
) -> None:
    """Handle a socket, or the app's own beginning and end: what it raises counts."""
    try:
        await app(scope, receive, send)
    except Exception as error:
        _note_error(reporter, scope, error, 0)
        raise


def _note_error(reporter: Reporter, scope: Scope, error: BaseException | None, status: int) -> None:
    scope[NOTED_ERROR] = error
    method, path = scope.get("method", ""), str(scope.get("path", ""))
    reporter.note(error, method=method, path=path, route=_route(scope), status=status)


def _route(scope: Scope) -> str:
    """Return the template of the path that Litestar, Starlette, FastAPI or our hook left there."""
    template = scope.get(ROUTE) or scope.get("path_template")
    if not isinstance(template, str):
        template = getattr(scope.get("route"), "path", None)
        mounted_at = str(scope.get("root_path", "")).removeprefix(
            str(scope.get("app_root_path", ""))
        )
        template = f"{mounted_at}{template}" if isinstance(template, str) else ""
    return template
