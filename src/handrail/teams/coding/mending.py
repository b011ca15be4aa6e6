"""How the offline coder finds a repair: where to look, what to try, whether it helped.

Suspicion falls on what the traceback leads to, deepest first, then on what the failing test calls,
then on what those call, then on the rest of their files. Proposals (`repairs.py`) are tried one by
one in a copy of the folder, against the failing tests; one that makes them pass is then checked
against everything. So nothing half-tried is ever in the folder itself, whenever the process dies.

The order is the same for the same folder and failures: a later turn goes on where the last one
stopped.
"""

import ast
import itertools
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from handrail.agents.commands import CommandLimits
from handrail.kernel.decision import Value
from handrail.kernel.definition import Constraints
from handrail.kernel.result import Check
from handrail.teams.coding.checks import PYTEST, UNITTEST, run_check
from handrail.teams.coding.failures import Failure, failing, tracebacks
from handrail.teams.coding.repairs import Function, Site, applied, edits
from handrail.teams.coding.search import called_in_test, definitions, is_test, parsed
from handrail.teams.coding.workspace import NotAllowed, Workspace

TRIES = 30
"""Proposals that one turn tries."""
FOCUS_MAX = 20
"""Failing tests that are run for each of them."""
EXPECTED_MAX = 6
COPY_BYTES_MAX = 50_000_000


class Repair(Value):
    """One proposal: a file as it would read."""

    path: str
    text: str
    pattern: str
    told: str
    raised: bool
    """The failure was an exception, and not a value that is not the expected one."""


class Mended(Value):
    """What a turn's search came to."""

    repair: Repair | None
    tried: int
    """Of all proposals for these failures so far."""
    left: bool
    """Whether there are more."""


async def mend(
    workspace: Workspace, command: str, scratch: Path, tried: int, limits: CommandLimits
) -> Mended:
    """The first proposal that mends what is red in this command, or the one that mends most."""
    with tempfile.TemporaryDirectory(dir=scratch, prefix="try-") as folder:
        copy = _copied(workspace, Path(folder))
        trial = Trial(copy, command, limits)
        await trial.begin()
        found = itertools.islice(proposals(copy, trial.failures), tried, None)
        best: tuple[int, Repair] | None = None
        for repair in itertools.islice(found, TRIES):
            tried += 1
            left = await trial.of(repair)
            if left is not None and (best is None or left < best[0]):
                best = left, repair
            if left == 0 or (left is not None and repair.raised):
                break  # where nothing is raised any more, little can be wrong about the repair
        more = next(found, None) is not None
        return Mended(repair=best[1] if best is not None else None, tried=tried, left=more)


class Trial:
    """A copy of the folder, in which proposals come and go."""

    def __init__(self, copy: Workspace, command: str, limits: CommandLimits) -> None:
        self.copy, self.command, self.limits = copy, command, limits
        self.failures: list[Failure] = []
        self._red: frozenset[str] = frozenset()

    async def begin(self) -> None:
        """What fails, and where."""
        check = await self._run(self.command)
        self._red = frozenset(failing(check.stderr))
        focused = await self._run(self._focus()) if self._red else check
        self.failures = tracebacks(focused.stderr) or tracebacks(check.stderr)

    async def of(self, repair: Repair) -> int | None:
        """How many of the failures it leaves; None if it does not help, or breaks something."""
        before = self.copy.read(repair.path)
        self.copy.write(repair.path, repair.text)
        try:
            return await self._left()
        finally:
            self.copy.write(repair.path, before)

    async def _left(self) -> int | None:
        focused = await self._run(self._focus())
        if focused.exit_code and not frozenset(failing(focused.stderr)) < self._red:
            return None
        whole = await self._run(self.command)
        red = frozenset(failing(whole.stderr))
        better = whole.exit_code == 0 or (bool(red) and red < self._red)
        return len(red) if better else None

    def _focus(self) -> str:
        """The failing tests alone; a command that is no test runner's is run as it is."""
        names = sorted(self._red)[:FOCUS_MAX]
        if not names:
            return self.command
        if names[0].partition("::")[0].endswith(".py"):
            return " ".join((PYTEST, "--tb=native", *names))
        return " ".join((UNITTEST, *names))

    async def _run(self, command: str) -> Check:
        return await run_check(self.copy, command, self.limits)


def _copied(workspace: Workspace, folder: Path) -> Workspace:
    """Its files and no links. What must not be touched may be, in a copy: whether a repair would
    help there is worth knowing."""
    size = 0
    for path in workspace.files():
        source, target = workspace.root / path, folder / path
        size += source.stat().st_size
        if size > COPY_BYTES_MAX:
            raise NotAllowed(f"'{workspace.root.name}' is too large to try repairs in a copy of it")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    constraints = Constraints(commands=workspace.constraints.commands)
    return Workspace(folder, constraints, sample=workspace.sample)


def proposals(workspace: Workspace, failures: Iterable[Failure]) -> Iterator[Repair]:
    """Every repair of every place under suspicion, each once, the likeliest first."""
    seen: set[tuple[str, str]] = set()
    names = frozenset(one.name for one in definitions(workspace))
    for failure, path, node in _suspects(workspace, list(failures)):
        source, tree = workspace.read(path), parsed(workspace, path)
        if tree is None:
            continue
        site = Site(source, tree, node, failure, _expected(workspace, failure), names)
        for pattern, edit in edits(site):
            text = applied(source, edit)
            if text is not None and (path, text) not in seen:
                seen.add((path, text))
                told = f"{path} {edit.told}"
                raised = failure.kind != "AssertionError"
                yield Repair(path=path, text=text, pattern=pattern, told=told, raised=raised)


Suspect = tuple[Failure, str, Function | None]


def _suspects(workspace: Workspace, failures: list[Failure]) -> Iterator[Suspect]:
    """(failure, file, function): each pair of file and function once; None is what is outside."""
    seen: set[tuple[str, str]] = set()
    for widen in (_in_traceback, _called, _called_by_those, _in_their_files):
        for failure in failures:
            for path, node in widen(workspace, failure):
                key = path, f"{node.name}:{node.lineno}" if node is not None else ""
                if key not in seen:
                    seen.add(key)
                    yield failure, path, node


Places = Iterator[tuple[str, Function | None]]


def _in_traceback(workspace: Workspace, failure: Failure) -> Places:
    files = set(workspace.files())
    for frame in reversed(failure.frames):
        if frame.path in files and not is_test(frame.path):
            inside = [n for n in functions(workspace, frame.path) if _spans(n, frame.line)]
            yield frame.path, max(inside, key=lambda n: n.lineno, default=None)


def _called(workspace: Workspace, failure: Failure) -> Places:
    names = called_in_test(workspace, failure)
    yield from _named(workspace, names)


def _called_by_those(workspace: Workspace, failure: Failure) -> Places:
    for _, node in [*_in_traceback(workspace, failure), *_called(workspace, failure)]:
        if node is not None:
            calls = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
            names = [
                one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "")
                for one in calls
            ]
            yield from _named(workspace, names)


def _in_their_files(workspace: Workspace, failure: Failure) -> Places:
    near = [*_in_traceback(workspace, failure), *_called(workspace, failure)]
    for path in dict.fromkeys(path for path, _ in near):
        yield path, None
        for node in functions(workspace, path):
            yield path, node


def _named(workspace: Workspace, names: Iterable[str]) -> Places:
    wanted = list(dict.fromkeys(names))
    known = [one for one in definitions(workspace) if not is_test(one.path)]
    for name in wanted:
        for one in known:
            if one.name == name:
                for node in functions(workspace, one.path):
                    if node.lineno == one.first:
                        yield one.path, node


def functions(workspace: Workspace, path: str) -> list[Function]:
    tree = parsed(workspace, path)
    nodes = ast.walk(tree) if tree is not None else ()
    return [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _spans(node: Function, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _expected(workspace: Workspace, failure: Failure) -> tuple[str, ...]:
    """What the failing test writes down as right: plain values, and exceptions it waits for."""
    tests = [frame for frame in failure.frames if is_test(frame.path)]
    found: list[str] = []
    for frame in tests[:1]:
        for node in functions(workspace, frame.path):
            if node.name == frame.name and _spans(node, frame.line):
                found += _values(node)
    return tuple(dict.fromkeys(found))[:EXPECTED_MAX]


def _values(test: Function) -> Iterator[str]:
    for node in ast.walk(test):
        match node:
            case ast.Call(func=ast.Attribute(attr="assertRaises" | "raises"), args=[kind, *_]):
                yield ast.unparse(kind).rpartition(".")[2]
            case ast.Call(func=ast.Attribute(attr="assertIsNone")):
                yield "None"
            case ast.Call(func=ast.Attribute(attr="assertEqual"), args=[*_, ast.Constant() as one]):
                yield ast.unparse(one)
            case ast.Compare(comparators=[ast.Constant() as one]):
                yield ast.unparse(one)
            case _:
                pass
