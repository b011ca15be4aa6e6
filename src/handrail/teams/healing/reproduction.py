"""Reproduce a failure by a test that repeats the failed request, in the bead's own copy.

The report names method, path and route, never query and body, which may be anybody's secrets. So
the request is an example for that path or route from the repository itself, or the bare path where
it needs nothing more. It becomes a test file of the repository, which fails now, has to pass
once the bug is fixed, and is committed together with the fix.

A bead may name a test instead (`context.test`), which is run as it is.
"""

import hashlib
import json
import re
from typing import Any, cast
from urllib.parse import unquote

import msgspec

from handrail.engine.services.bug_signature import is_template, matches_route
from handrail.kernel.decision import Value, prepare_types
from handrail.teams.coding.failures import Failure, parse_tracebacks
from handrail.teams.coding.workspace import NotAllowedError, Workspace

EXAMPLES_MAX = 10
"""Of one route."""
TITLE_CHARS_MAX = 60
NAMED_TEST = re.compile(r"[A-Za-z_][\w./:]*")
TEST_FILE_TEMPLATE = '''\
"""{title}

A request that failed once; this test keeps it from failing again.
"""

import io
import json
import unittest
from wsgiref.util import setup_testing_defaults

from {module} import {name} as app


class Request(unittest.TestCase):
{tests}
'''
TEST_TEMPLATE = """\
    def test_{number}_{called}(self):
        told = []
        body = {body!r}
        environ = {{
            "REQUEST_METHOD": {method!r},
            "PATH_INFO": {path!r},
            "QUERY_STRING": {query!r},
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": io.BytesIO(body),
        }}
        setup_testing_defaults(environ)
        answer = b"".join(app(environ, lambda status, headers, *_: told.append(status)))
        {asserted}
"""
ANSWER_ASSERTION = """\
self.assertEqual(told[0][:3], {status!r})
        self.assertEqual(json.loads(answer), {answer!r})"""
NO_ERROR_ASSERTION = """\
self.assertLess(told[0], "500", answer)"""


class RequestExample(Value):
    """A request of the repository's examples, and the expected response."""

    path: str
    method: str = "GET"
    query: str = ""
    body: Any = None
    status: int = 200
    answer: Any = msgspec.UNSET


prepare_types(RequestExample)


class Reproduction(Value):
    """What shows the failure: a command, and the file that it needs, if that is not there yet."""

    command: str
    label: str
    path: str = ""
    text: str = ""


def build_reproduction(
    workspace: Workspace, context: dict[str, Any], title: str, app: str, examples_file: str
) -> Reproduction:
    """Return what would show the bead's failure in this copy. Raises `NotAllowedError` if nothing
    would.
    """
    test = context.get("test")
    if isinstance(test, str) and NAMED_TEST.fullmatch(test):
        runner = "pytest -q --tb=native" if ".py" in test else "unittest"
        return Reproduction(command=f"python -m {runner} {test}", label=f"the test {test}")
    stored_value: object = context.get("error")
    error = cast("dict[str, Any]", stored_value) if isinstance(stored_value, dict) else {}
    method, route = str(error.get("method", "")), str(error.get("route", ""))
    path = str(error.get("path") or route)
    if not route or not app:
        message = "the bead names no request that failed" if app else "the service names no app"
        raise NotAllowedError(
            f"{message}, and no test; give context.test, or a report with its route"
        )
    route_examples = _load_examples(workspace, examples_file, method, route, path)
    if not route_examples and (method != "GET" or is_template(path)):
        message = (
            f"'{examples_file}' has no request for {method} {route}, and the report has no query"
        )
        raise NotAllowedError(f"{message}; add one there, and file the bug again")
    test_path, text = _build_test_file(app, title, route_examples or [RequestExample(path=path)])
    name = test_path.removesuffix(".py").replace("/", ".")
    return Reproduction(
        command=f"python -m unittest {name}", label=f"{method} {route}", path=test_path, text=text
    )


def reported_failure(description: str) -> Failure | None:
    """Return the failure in the report, if it has a traceback."""
    failures = parse_tracebacks(description)
    return failures[-1] if failures else None


def is_same_failure(expected: Failure | None, actual: Failure) -> bool:
    """Return whether the failure is the reported one: the same error at the same location."""
    if expected is None or not expected.frames or not actual.frames:
        return True
    expected_frame, actual_frame = expected.frames[-1], actual.frames[-1]
    is_same_file = (
        f"/{expected_frame.path}".endswith(f"/{actual_frame.path}")
        or expected_frame.path == actual_frame.path
    )
    return (
        expected.exception == actual.exception
        and expected_frame.name == actual_frame.name
        and is_same_file
    )


def _load_examples(
    workspace: Workspace, file: str, method: str, route: str, path: str
) -> list[RequestExample]:
    """Return the examples of the very path that failed, else those of its route."""
    if file not in workspace.files():
        return []
    try:
        examples = msgspec.json.decode(workspace.read(file), type=list[RequestExample])
    except (msgspec.DecodeError, NotAllowedError) as error:
        raise NotAllowedError(f"'{file}' has no examples that can be read: {error}") from None
    examples = [example for example in examples if example.method == method]
    matching = [example for example in examples if example.path == path] or [
        example for example in examples if matches_route(route, example.path)
    ]
    return matching[:EXAMPLES_MAX]


def _build_test_file(app: str, title: str, examples: list[RequestExample]) -> tuple[str, str]:
    """Build a test file: the same for the same requests, so that it is never written twice."""
    module, _, name = app.partition(":")
    digest = hashlib.sha256(msgspec.json.encode(examples)).hexdigest()[:8]
    slug = re.sub(r"\W+", "_", examples[0].path).strip("_").lower() or "root"
    tests = [_build_test(number, slug, example) for number, example in enumerate(examples, 1)]
    clean_title = re.sub(r"[^\x20-\x7e]|[\"\\]", " ", title)[:TITLE_CHARS_MAX].strip().rstrip(".")
    text = TEST_FILE_TEMPLATE.format(
        title=f"{clean_title}.", module=module, name=name or "app", tests="\n".join(tests).rstrip()
    )
    return f"tests/test_{slug}_{digest}.py", text


def _build_test(number: int, slug: str, example: RequestExample) -> str:
    has_answer = example.answer is not msgspec.UNSET
    body = b"" if example.body is None else json.dumps(example.body).encode()
    assertion = (
        ANSWER_ASSERTION.format(status=str(example.status), answer=example.answer)
        if has_answer
        else NO_ERROR_ASSERTION
    )
    return TEST_TEMPLATE.format(
        number=number,
        called=slug,
        body=body,
        method=example.method,
        path=unquote(example.path),
        query=example.query,
        asserted=assertion,
    )
