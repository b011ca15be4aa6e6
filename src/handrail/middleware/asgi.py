"""Around an ASGI app: what it raises, and each answer with a status of 500 or more, is reported.

The app sees nothing of it: what it raises goes on, what it sends is sent as it is. A framework that
answers an error by itself does so while it handles the exception; so that is known here, too.
"""

# Annotations of a function that is made for every request would be evaluated for every request.
from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from handrail.middleware.reporter import Reporter

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
SendMessage = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, SendMessage], Awaitable[None]]
START = "http.response.start"


class AsgiMiddleware:
    """Put it outermost, so that it sees what the app's own error pages hide."""

    def __init__(self, app: App, reporter: Reporter) -> None:
        self.app, self.reporter = app, reporter

    async def __call__(self, scope: Scope, receive: Receive, send: SendMessage) -> None:
        if scope["type"] != "http":
            return await self._other(scope, receive, send)
        failed = 0
        handled: BaseException | None = None

        def watched(message: Message) -> Awaitable[None]:
            nonlocal failed, handled
            if message["type"] == START and message["status"] >= 500:
                failed, handled = message["status"], sys.exc_info()[1]
            return send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception as error:
            self._note(scope, error, failed or 500)
            raise
        if failed:
            self._note(scope, handled, failed)
        return None

    async def _other(self, scope: Scope, receive: Receive, send: SendMessage) -> None:
        """A socket, or the app's own beginning and end: what it raises counts."""
        try:
            await self.app(scope, receive, send)
        except Exception as error:
            self._note(scope, error, 0)
            raise

    def _note(self, scope: Scope, error: BaseException | None, status: int) -> None:
        path = scope.get("path_template") or getattr(scope.get("route"), "path", None)
        named = path if isinstance(path, str) else str(scope.get("path", ""))
        self.reporter.note(error, method=scope.get("method", ""), path=named, status=status)
