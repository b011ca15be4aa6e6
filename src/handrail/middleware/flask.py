"""Report errors of a Flask app, also those that Flask or a handler of the app's own answers.

    from handrail.middleware import Reporter, to_server
    from handrail.middleware.flask import report_flask

    report_flask(app, Reporter(to_server("https://handrail.example", token), service="shop"))

Flask answers an exception before its response begins, so that a WSGI middleware around it sees a
status of 500 and nothing else. `handle_user_exception` gets every exception of a view, and the
signal `got_request_exception` those of other code, such as a function after the request.
"""

from typing import Any

from flask import Flask, got_request_exception, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException

from handrail.middleware.reporter import ANSWERED_ERROR, Reporter
from handrail.middleware.wsgi import WsgiMiddleware


def report_flask(app: Flask, reporter: Reporter) -> None:
    """Report what goes wrong in this app, from now on. Its answers stay as they are."""
    methods: Any = (
        app  # two of which are replaced in this one app, as Flask's documentation advises
    )
    answer_exception = app.handle_user_exception

    def remember_and_answer(error: Exception) -> HTTPException | ResponseReturnValue:
        request.environ[ANSWERED_ERROR] = error
        return answer_exception(error)

    methods.handle_user_exception = remember_and_answer
    got_request_exception.connect(_remember_error, app)
    methods.wsgi_app = WsgiMiddleware(app.wsgi_app, reporter)


def _remember_error(sender: Flask, exception: BaseException, **_: object) -> None:
    request.environ[ANSWERED_ERROR] = exception
