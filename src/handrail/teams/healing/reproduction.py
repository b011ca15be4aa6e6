"""How a failure is made again: by a test that asks the app what failed, in the bead's own copy.

The report says method and route, never what was asked: query and body may be anybody's secrets. So
the request is one that the repository itself has as an example for that route, or the bare route
where it needs nothing more. It becomes a test file of the repository, which fails now, has to pass
once the bug is mended, and is committed together with the fix.

A bead may name a test instead (`context.test`), which is run as it is.
"""

import hashlib
import json
import re
from typing import Any, cast
from urllib.parse import unquote

import msgspec

from handrail.engine.bugs import place
from handrail.kernel.decision import Value, learn
from handrail.teams.coding.failures import Failure, tracebacks
from handrail.teams.coding.workspace import NotAllowed, Workspace

EXAMPLES_MAX = 10
"""Of one route."""
TITLE_CHARS = 60
NAMED_TEST = re.compile(r"[A-Za-z_][\w./:]*")
TEMPLATE = '''\
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
TEST = """\
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
ANSWERED = """\
self.assertEqual(told[0][:3], {status!r})
        self.assertEqual(json.loads(answer), {answer!r})"""
NO_ERROR = """\
self.assertLess(told[0], "500", answer)"""


class Example(Value):
    """A request of the repository's examples, and what it should be answered."""

    path: str
    method: str = "GET"
    query: str = ""
    body: Any = None
    status: int = 200
    answer: Any = msgspec.UNSET


learn(Example)


class Reproduction(Value):
    """What shows the failure: a command, and the file that it needs, if that is not there yet."""

    command: str
    told: str
    path: str = ""
    text: str = ""


def reproduction(
    workspace: Workspace, context: dict[str, Any], title: str, app: str, examples: str
) -> Reproduction:
    """What would show the bead's failure in this copy. Raises `NotAllowed` if nothing would."""
    test = context.get("test")
    if isinstance(test, str) and NAMED_TEST.fullmatch(test):
        runner = "pytest -q --tb=native" if ".py" in test else "unittest"
        return Reproduction(command=f"python -m {runner} {test}", told=f"the test {test}")
    held: object = context.get("error")
    error = cast("dict[str, Any]", held) if isinstance(held, dict) else {}
    method, route = str(error.get("method", "")), str(error.get("route", ""))
    if not route or not app:
        told = "the bead names no request that failed" if app else "the service names no app"
        raise NotAllowed(f"{told}, and no test; give context.test, or a report with its route")
    found = _examples(workspace, examples, method, route)
    if not found and (method != "GET" or "{}" in route):
        told = f"'{examples}' has no request for {method} {route}, and the report has no query"
        raise NotAllowed(f"{told}; add one there, and file the bug again")
    path, text = _test(app, title, found or [Example(path=route)])
    name = path.removesuffix(".py").replace("/", ".")
    return Reproduction(
        command=f"python -m unittest {name}", told=f"{method} {route}", path=path, text=text
    )


def reported(description: str) -> Failure | None:
    """The failure that the report tells of, if it has a traceback."""
    found = tracebacks(description)
    return found[-1] if found else None


def is_same(told: Failure | None, seen: Failure) -> bool:
    """Whether what was seen here is what was reported: the same error at the same place."""
    if told is None or not told.frames or not seen.frames:
        return True
    there, here = told.frames[-1], seen.frames[-1]
    alike = f"/{there.path}".endswith(f"/{here.path}") or there.path == here.path
    return told.kind == seen.kind and there.name == here.name and alike


def _examples(workspace: Workspace, file: str, method: str, route: str) -> list[Example]:
    if file not in workspace.files():
        return []
    try:
        found = msgspec.json.decode(workspace.read(file), type=list[Example])
    except (msgspec.DecodeError, NotAllowed) as error:
        raise NotAllowed(f"'{file}' has no examples that can be read: {error}") from None
    fitting = [one for one in found if (one.method, place(one.path)) == (method, route)]
    return fitting[:EXAMPLES_MAX]


def _test(app: str, title: str, examples: list[Example]) -> tuple[str, str]:
    """A test file: the same for the same requests, so that it is never written twice."""
    module, _, name = app.partition(":")
    asked = hashlib.sha256(msgspec.json.encode(examples)).hexdigest()[:8]
    called = re.sub(r"\W+", "_", examples[0].path).strip("_").lower() or "root"
    tests = [_one(number, called, example) for number, example in enumerate(examples, 1)]
    plain = re.sub(r"[^\x20-\x7e]|[\"\\]", " ", title)[:TITLE_CHARS].strip().rstrip(".")
    text = TEMPLATE.format(
        title=f"{plain}.", module=module, name=name or "app", tests="\n".join(tests).rstrip()
    )
    return f"tests/test_{called}_{asked}.py", text


def _one(number: int, called: str, example: Example) -> str:
    known = example.answer is not msgspec.UNSET
    body = b"" if example.body is None else json.dumps(example.body).encode()
    asserted = (
        ANSWERED.format(status=str(example.status), answer=example.answer) if known else NO_ERROR
    )
    return TEST.format(
        number=number,
        called=called,
        body=body,
        method=example.method,
        path=unquote(example.path),
        query=example.query,
        asserted=asserted,
    )
