"""Around a WSGI app: what it raises, also while its answer is being read, and each answer with a
status of 500 or more, is reported. What it raises goes on, what it answers is passed on as it is.
"""

# Annotations of a function that is made for every request would be evaluated for every request.
from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from handrail.middleware.reporter import Reporter

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], object]]
App = Callable[[Environ, StartResponse], Iterable[bytes]]


class WsgiMiddleware:
    """Put it outermost, so that it sees what the app's own error pages hide."""

    def __init__(self, app: App, reporter: Reporter) -> None:
        self.app, self.reporter = app, reporter

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        failed = 0
        raised: BaseException | None = None

        def watched(status: str, headers: object, *exc_info: Any) -> Callable[[bytes], object]:  # noqa: ANN401 - as WSGI has it
            nonlocal failed, raised
            if status[0] == "5":
                failed = int(status[:3])
                raised = exc_info[0][1] if exc_info and exc_info[0] else sys.exc_info()[1]
            return start_response(status, headers, *exc_info)

        try:
            answer = self.app(environ, watched)
        except Exception as error:
            self._note(environ, error, 500)
            raise
        if failed:
            self._note(environ, raised, failed)
            return answer
        if isinstance(answer, list):  # made already
            return answer
        return _Watched(answer, lambda error: self._note(environ, error, 500))

    def _note(self, environ: Environ, error: BaseException | None, status: int) -> None:
        method, path = environ.get("REQUEST_METHOD", ""), environ.get("PATH_INFO", "")
        self.reporter.note(error, method=method, path=path, status=status)


class _Watched:
    """An answer that is made while it is read."""

    def __init__(self, answer: Iterable[bytes], note: Callable[[Exception], None]) -> None:
        self._answer, self._note = answer, note

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._answer
        except Exception as error:
            self._note(error)
            raise

    def close(self) -> None:
        closing = getattr(self._answer, "close", None)
        if closing is not None:
            closing()
