"""What a test runner's output says: which tests fail, where, and with what.

Both unittest and pytest are read; of pytest the frames only where it writes them as Python does
(`--tb=native`), which is how the coder runs it.
"""

import re

from handrail.kernel.decision import Value

FAILURES_MAX = 200
FRAMES_MAX = 50
_UNITTEST = re.compile(r"^(?:FAIL|ERROR): (\S+) \(([\w.<>]+)\)", re.MULTILINE)
_UNITTEST_LOADER = re.compile(r"unittest\.loader\._FailedTest\.?")
_PYTEST = re.compile(r"^(?:FAILED|ERROR) (\S+\.py(?:::[^\s]+)*)", re.MULTILINE)
_FRAME = re.compile(r'^ *File "([^"\n]+)", line (\d+), in (\S+)', re.MULTILINE)
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$")


class Frame(Value):
    """A place in a traceback."""

    path: str
    line: int
    name: str


class Failure(Value):
    """One traceback: the deepest frame last, then what was raised."""

    frames: tuple[Frame, ...]
    kind: str
    """The exception's name, without its module."""
    message: str


def failing(output: str) -> list[str]:
    """The ids of the tests that failed, as the runner takes them."""
    found: list[str] = []
    for name, dotted in _UNITTEST.findall(output):
        bare = _UNITTEST_LOADER.sub("", dotted)
        whole = bare if bare.endswith(f".{name}") or bare == name else f"{bare}.{name}"
        found.append(whole)
    found += _PYTEST.findall(output)
    return list(dict.fromkeys(found))[:FAILURES_MAX]


def tracebacks(output: str) -> list[Failure]:
    """Every traceback of the output, in its order."""
    found: list[Failure] = []
    for block in output.split("Traceback (most recent call last):")[1:]:
        failure = _traceback(block)
        if failure is not None and failure not in found:
            found.append(failure)
    return found[:FAILURES_MAX]


def _traceback(block: str) -> Failure | None:
    frames = [
        Frame(path=path, line=int(line), name=name) for path, line, name in _FRAME.findall(block)
    ]
    lines = block.splitlines()
    for line in lines:
        raised = _RAISED.match(line)
        if raised is not None:
            kind = raised[1].rpartition(".")[2]
            return Failure(frames=tuple(frames[-FRAMES_MAX:]), kind=kind, message=raised[2] or "")
    return None
