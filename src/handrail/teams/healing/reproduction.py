"""Reproduce a failure by a test that repeats the failed request, in the bead's own copy.

The report names method, path and route, never query and body, which may be anybody's secrets. So
the request is an example for that path or route from the repository itself, or the bare path where
it needs nothing more. It becomes a test file of the repository, which fails now, has to pass
once the bug is fixed, and is committed together with the fix.

A bead may name a test instead (`context.test`), which is run as it is.
"""

import re
from typing import Any, cast

import msgspec

from handrail.engine.services.bug_signature import is_template, matches_route
from handrail.kernel.decision import Value
from handrail.teams.coding.failures import Failure, parse_tracebacks
from handrail.teams.coding.workspace import NotAllowedError, Workspace
from handrail.teams.healing.request_test import RequestExample, build_test_file, read_examples
from handrail.teams.healing.service import PYTHON_TEST_COMMANDS, Service

EXAMPLES_MAX = 10
"""Of one route."""
NAMED_TEST = re.compile(r"[A-Za-z_][\w./:]*")
COMMAND_WORD = re.compile(r"[\w./:@=+,\[\]-]+")
"""A word of a test's command that a bead may name: no shell reads it, and it is no program."""


class Reproduction(Value):
    """What shows the failure: a command, and the file that it needs, if that is not there yet."""

    command: str
    label: str
    path: str = ""
    text: str = ""


def build_reproduction(
    workspace: Workspace, context: dict[str, Any], title: str, service: Service
) -> Reproduction:
    """Return what would show the bead's failure in this copy. Raises `NotAllowedError` if nothing
    would.
    """
    if (test := context.get("test")) is not None:
        return Reproduction(command=find_test_command(test, service), label=f"the test {test}")
    stored_value: object = context.get("error")
    error = cast("dict[str, Any]", stored_value) if isinstance(stored_value, dict) else {}
    method, route = str(error.get("method", "")), str(error.get("route", ""))
    path = str(error.get("path") or route)
    if not route or not service.app:
        message = (
            "the bead names no request that failed" if service.app else "the service names no app"
        )
        raise NotAllowedError(
            f"{message}, and no test; give context.test, or a report with its route"
        )
    route_examples = _load_examples(workspace, service.examples, method, route, path)
    if not route_examples and (method != "GET" or is_template(path)):
        message = (
            f"'{service.examples}' has no request for {method} {route}, and the report has no query"
        )
        raise NotAllowedError(f"{message}; add one there, and file the bug again")
    test_path, text = build_test_file(
        service.app, title, route_examples or [RequestExample(path=path)]
    )
    name = test_path.removesuffix(".py").replace("/", ".")
    return Reproduction(
        command=f"python -m unittest {name}", label=f"{method} {route}", path=test_path, text=text
    )


def find_test_command(test: object, service: Service) -> str:
    """Return the command of a test that a bead names: a test of Python, or a command that begins
    with one of the service's `test_commands`. Raises `NotAllowedError`."""
    if isinstance(test, str) and NAMED_TEST.fullmatch(test):
        runner = "pytest -q --tb=native" if ".py" in test else "unittest"
        return f"python -m {runner} {test}"
    words = test.split() if isinstance(test, str) else []
    for allowed in (*PYTHON_TEST_COMMANDS, *service.test_commands):
        prefix = allowed.split()
        arguments = words[len(prefix) :]
        if words[: len(prefix)] == prefix and all(map(COMMAND_WORD.fullmatch, arguments)):
            return " ".join(words)
    raise NotAllowedError(
        f"context.test {test!r} is not run: it names no test of Python (tests.test_a.A.test_b,"
        " tests/test_a.py::test_b) and begins with no command that `test_commands` of the service's"
        " file allows; add the command there, such as [npm test, go test]"
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
        examples = read_examples(workspace.read(file))
    except (msgspec.DecodeError, NotAllowedError) as error:
        raise NotAllowedError(f"'{file}' has no examples that can be read: {error}") from None
    examples = [example for example in examples if example.method == method]
    matching = [example for example in examples if example.path == path] or [
        example for example in examples if matches_route(route, example.path)
    ]
    return matching[:EXAMPLES_MAX]
