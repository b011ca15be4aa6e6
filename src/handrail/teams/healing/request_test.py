"""The text of a test that asks an app again what failed.

The test needs nothing but Python and the app: WSGI or ASGI, of any framework. Frameworks that
answer an exception themselves are told to raise it, since its traceback shows where to look. A
response is compared with an example's `answer` (the value of JSON, else the text of the body) or
searched for its `contains`; without both it must only not be an error.
"""

import hashlib
import json
import re
from typing import Any
from urllib.parse import unquote

import msgspec

from handrail.kernel.decision import Value, prepare_types

TITLE_CHARS_MAX = 60
JSON_TYPE = "application/json"
TEST_FILE_TEMPLATE = '''\
"""{title}

A request that failed once; this test keeps it from failing again.
"""

import asyncio
import inspect
import io
import json
import sys
import unittest
from wsgiref.util import setup_testing_defaults

from {module} import {name} as app


class Request(unittest.TestCase):
{tests}

def ask(method, path, query="", body=b"", content_type=""):
    """Ask the app itself; return the status, the JSON or the text, of its answer."""
    if hasattr(app, "config") and "flask" in sys.modules:
        app.config["PROPAGATE_EXCEPTIONS"] = True
    if "django" in sys.modules:
        from django.conf import settings

        settings.DEBUG_PROPAGATE_EXCEPTIONS, settings.ALLOWED_HOSTS = True, ["*"]
    request = method, path, query, body, content_type
    if inspect.iscoroutinefunction(app) or inspect.iscoroutinefunction(type(app).__call__):
        status, answer = asyncio.run(ask_asgi(*request))
    else:
        status, answer = ask_wsgi(*request)
    try:
        return status, json.loads(answer)
    except ValueError:
        return status, answer.decode("utf-8", "replace")


def ask_wsgi(method, path, query, body, content_type):
    statuses = []
    environ = {{
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": content_type,
        "wsgi.input": io.BytesIO(body),
    }}
    setup_testing_defaults(environ)
    answer = b"".join(app(environ, lambda status, headers, *_: statuses.append(status)))
    return int(statuses[-1][:3]), answer


async def ask_asgi(method, path, query, body, content_type):
    """Begin the app as a server does, ask, and end it."""
    events, begun, state = asyncio.Queue(), asyncio.Event(), {{}}
    lifespan = {{"type": "lifespan", "asgi": {{"version": "3.0"}}, "state": state}}

    async def note(message):
        begun.set()

    async def live():
        try:
            await app(lifespan, events.get, note)
        except Exception:
            pass  # an app without a beginning and an end
        begun.set()

    life = asyncio.create_task(live())
    events.put_nowait({{"type": "lifespan.startup"}})
    await begun.wait()
    received, sent = asyncio.Queue(), []
    received.put_nowait({{"type": "http.request", "body": body, "more_body": False}})
    headers = [(b"host", b"localhost"), (b"content-length", str(len(body)).encode())]
    headers += [(b"content-type", content_type.encode())] if content_type else []
    scope = {{
        "type": "http",
        "asgi": {{"version": "3.0"}},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": headers,
        "server": ("localhost", 80),
        "client": ("127.0.0.1", 1),
        "state": dict(state),
    }}

    async def send(message):
        sent.append(message)

    try:
        await app(scope, received.get, send)
    finally:
        events.put_nowait({{"type": "lifespan.shutdown"}})
        await life
    statuses = [message["status"] for message in sent if "status" in message]
    return statuses[-1], b"".join(message.get("body", b"") for message in sent)
'''
TEST_TEMPLATE = """\
    def test_{number}_{slug}(self):
        status, answer = ask({request})
        {assertion}
"""
ANSWER_ASSERTION = """\
self.assertEqual(status, {status!r})
        self.assertEqual(answer, {answer!r})"""
CONTAINS_ASSERTION = """\
self.assertEqual(status, {status!r})
        self.assertIn({contains!r}, answer if isinstance(answer, str) else json.dumps(answer))"""
NO_ERROR_ASSERTION = """\
self.assertLess(status, 500, answer)"""


class RequestExample(Value, forbid_unknown_fields=True):
    """A request of the repository's examples, and the expected response. A `body` is sent as JSON;
    with another `content_type` it is a text, and sent as it is."""

    path: str
    method: str = "GET"
    query: str = ""
    body: Any = None
    content_type: str = ""
    status: int = 200
    answer: Any = msgspec.UNSET
    contains: str = ""


prepare_types(RequestExample)


def read_examples(text: str) -> list[RequestExample]:
    """Return the examples of a file. Raises `msgspec.DecodeError`."""
    return msgspec.json.decode(text, type=list[RequestExample])


def build_test_file(app: str, title: str, examples: list[RequestExample]) -> tuple[str, str]:
    """Return path and text of a test: the same for the same requests, so that it is never written
    twice."""
    module, _, name = app.partition(":")
    digest = hashlib.sha256(msgspec.json.encode(examples)).hexdigest()[:8]
    slug = re.sub(r"\W+", "_", examples[0].path).strip("_").lower() or "root"
    tests = [_build_test(number, slug, example) for number, example in enumerate(examples, 1)]
    clean_title = re.sub(r"[^\x20-\x7e]|[\"\\]", " ", title)[:TITLE_CHARS_MAX].strip().rstrip(".")
    text = TEST_FILE_TEMPLATE.format(
        title=f"{clean_title}.", module=module, name=name or "app", tests="\n".join(tests)
    )
    return f"tests/test_{slug}_{digest}.py", text


def _build_test(number: int, slug: str, example: RequestExample) -> str:
    body, content_type = _encode_body(example)
    request = (example.method, unquote(example.path), example.query, body, content_type)
    while request[-1] in ("", b""):
        request = request[:-1]
    if example.answer is not msgspec.UNSET:
        assertion = ANSWER_ASSERTION.format(status=example.status, answer=example.answer)
    elif example.contains:
        assertion = CONTAINS_ASSERTION.format(status=example.status, contains=example.contains)
    else:
        assertion = NO_ERROR_ASSERTION
    return TEST_TEMPLATE.format(
        number=number, slug=slug, request=", ".join(map(repr, request)), assertion=assertion
    )


def _encode_body(example: RequestExample) -> tuple[bytes, str]:
    if example.body is None:
        return b"", example.content_type
    if isinstance(example.body, str) and example.content_type not in ("", JSON_TYPE):
        return example.body.encode(), example.content_type
    return json.dumps(example.body).encode(), example.content_type or JSON_TYPE
