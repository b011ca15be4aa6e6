"""Wrap a WSGI app: report what it raises, also while its response is being read, and each response
with a status of 500 or more. Errors and responses pass through unchanged.

Every request pays for this, so it is written for that: a function that is made once, not an object
that is called; and for each request a tuple and a bound function, neither an object nor a closure.
"""

import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from types import GeneratorType, MethodType
from typing import Any

from handrail.middleware.reporter import ANSWERED_ERROR, NOTED_ERROR, ROUTE, Reporter

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], object]]
App = Callable[[Environ, StartResponse], Iterable[bytes]]
ExcInfo = tuple[Any, BaseException | None, Any]
RequestContext = tuple[StartResponse, Environ, Reporter]


def WsgiMiddleware(app: App, reporter: Reporter) -> App:  # noqa: N802 - it stands where a class would
    """Put it outermost, so that it sees what the app's own error pages hide."""

    def middleware(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        try:
            answer = app(environ, MethodType(_observe_start, (start_response, environ, reporter)))
        except Exception as error:
            _note_raised(reporter, environ, error)
            raise
        kind = type(answer)
        if kind is list:  # complete, as nearly always
            return answer
        if kind is GeneratorType:  # unread, it has begun nothing that must be closed
            return _observe_body(answer, environ, reporter)
        return _ObservedBody(answer, environ, reporter)

    return middleware


def _observe_start(
    context: RequestContext, status: str, headers: object, exc_info: ExcInfo | None = None
) -> Callable[[bytes], object]:
    """Observe the status when the app begins its response."""
    if "5" <= status < "6":
        environ = context[1]
        error = exc_info[1] if exc_info else sys.exc_info()[1] or environ.get(ANSWERED_ERROR)
        code = int(status[:3]) if status[:3].isdecimal() else 500
        _note_error(context[2], environ, error, code)
    if exc_info is None:
        return context[0](status, headers)
    return context[0](status, headers, exc_info)


def _observe_body(
    answer: Iterable[bytes], environ: Environ, reporter: Reporter
) -> Generator[bytes]:
    """Observe a response that is made while it is read."""
    try:
        yield from answer
    except Exception as error:
        _note_raised(reporter, environ, error)
        raise


class _ObservedBody:
    """A response that is no generator: it is closed even if it is never read."""

    def __init__(self, answer: Iterable[bytes], environ: Environ, reporter: Reporter) -> None:
        self._answer, self._environ, self._reporter = answer, environ, reporter

    def __iter__(self) -> Iterator[bytes]:
        return _observe_body(self._answer, self._environ, self._reporter)

    def close(self) -> None:
        close = getattr(self._answer, "close", None)
        if close is not None:
            close()


def _note_raised(reporter: Reporter, environ: Environ, error: Exception) -> None:
    """Note the error, unless the app has responded with it before raising it."""
    if environ.get(NOTED_ERROR) is not error:
        _note_error(reporter, environ, error, 500)


def _note_error(
    reporter: Reporter, environ: Environ, error: BaseException | None, status: int
) -> None:
    environ[NOTED_ERROR] = error
    method, path = environ.get("REQUEST_METHOD", ""), environ.get("PATH_INFO", "")
    reporter.note(error, method=method, path=path, route=_route(environ), status=status)


def _route(environ: Environ) -> str:
    """Return the template of the path, as Flask or a hook of ours left it."""
    rule = getattr(environ.get("werkzeug.request"), "url_rule", None)
    template = environ.get(ROUTE) or getattr(rule, "rule", "")
    return template if isinstance(template, str) else ""
