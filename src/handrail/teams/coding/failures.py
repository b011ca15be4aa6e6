"""Parse a test runner's output: which tests fail, where, and with what.

Both unittest and pytest are supported; of pytest the frames only where it writes them as Python
does (`--tb=native`), which is how the coder runs it.
"""

import re

from handrail.kernel.decision import Value

FAILURES_MAX = 200
FRAMES_MAX = 50
_UNITTEST_FAILURE = re.compile(r"^(?:FAIL|ERROR): (\S+) \(([\w.<>]+)\)", re.MULTILINE)
_UNITTEST_LOADER = re.compile(r"unittest\.loader\._FailedTest\.?")
_PYTEST_FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+\.py(?:::[^\s]+)*)", re.MULTILINE)
_FRAME = re.compile(r'^ *File "([^"\n]+)", line (\d+), in (\S+)', re.MULTILINE)
_EXCEPTION_LINE = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$")


class TracebackFrame(Value):
    """A frame of a traceback."""

    path: str
    line: int
    name: str


class Failure(Value):
    """One traceback: the deepest frame last, then what was raised."""

    frames: tuple[TracebackFrame, ...]
    exception: str
    """The exception's name, without its module."""
    message: str


def failing_tests(output: str) -> list[str]:
    """Return the ids of the tests that failed, as the runner takes them."""
    test_ids: list[str] = []
    for name, dotted in _UNITTEST_FAILURE.findall(output):
        parent = _UNITTEST_LOADER.sub("", dotted)
        test_id = parent if parent.endswith(f".{name}") or parent == name else f"{parent}.{name}"
        test_ids.append(test_id)
    test_ids += _PYTEST_FAILURE.findall(output)
    return list(dict.fromkeys(test_ids))[:FAILURES_MAX]


def parse_tracebacks(output: str) -> list[Failure]:
    """Return every traceback of the output, in its order."""
    failures: list[Failure] = []
    for block in output.split("Traceback (most recent call last):")[1:]:
        failure = _parse_traceback(block)
        if failure is not None and failure not in failures:
            failures.append(failure)
    return failures[:FAILURES_MAX]


def _parse_traceback(block: str) -> Failure | None:
    frames = [
        TracebackFrame(path=path, line=int(line), name=name)
        for path, line, name in _FRAME.findall(block)
    ]
    lines = block.splitlines()
    for line in lines:
        match = _EXCEPTION_LINE.match(line)
        if match is not None:
            exception = match[1].rpartition(".")[2]
            return Failure(
                frames=tuple(frames[-FRAMES_MAX:]), exception=exception, message=match[2] or ""
            )
    return None
