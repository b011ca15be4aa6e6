"""How the offline coder finds a repair: where to look, what to try, whether it helped.

Suspicion falls on what the traceback leads to, deepest first, then on what the failing test calls,
then on what those call, then on the rest of their files. Proposals (`repair_patterns.py`) are tried
one by one in a copy of the folder, against the failing tests; a proposal that makes them pass is
then checked against everything. So the folder itself never holds a half-tried repair, whenever the
process dies.

The order is the same for the same folder and failures: a later dispatch goes on where the last one
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
from handrail.kernel.definition.limits import Constraints
from handrail.kernel.result import Check
from handrail.teams.coding.checks import PYTEST_COMMAND, UNITTEST_COMMAND, run_check
from handrail.teams.coding.failures import Failure, failing_tests, parse_tracebacks
from handrail.teams.coding.repair_patterns import (
    FunctionNode,
    RepairSite,
    apply_edit,
    generate_edits,
)
from handrail.teams.coding.search import find_called_names, find_definitions, is_test, parse_source
from handrail.teams.coding.workspace import NotAllowedError, Workspace

TRIED_REPAIRS_MAX = 30
"""Proposals that one dispatch tries."""
FOCUSED_TESTS_MAX = 20
"""Failing tests that are run for each proposal."""
EXPECTED_VALUES_MAX = 6
COPY_BYTES_MAX = 50_000_000


class Repair(Value):
    """One proposal: a file as it would read."""

    path: str
    text: str
    pattern: str
    description: str
    was_exception: bool
    """Whether the failure was an exception, and not a wrong value."""


class RepairSearchResult(Value):
    """The outcome of a dispatch's search."""

    repair: Repair | None
    tried_repairs: int
    """Of all proposals for these failures so far."""
    has_more: bool


async def search_repair(
    workspace: Workspace, command: str, scratch: Path, tried_repairs: int, limits: CommandLimits
) -> RepairSearchResult:
    """Return the first proposal that fixes all failures of this command, or the one that fixes
    most.
    """
    with tempfile.TemporaryDirectory(dir=scratch, prefix="try-") as folder:
        copy = _copy_workspace(workspace, Path(folder))
        trial = RepairTrial(copy, command, limits)
        await trial.begin()
        candidates = itertools.islice(generate_repairs(copy, trial.failures), tried_repairs, None)
        best: tuple[int, Repair] | None = None
        for repair in itertools.islice(candidates, TRIED_REPAIRS_MAX):
            tried_repairs += 1
            failures_left = await trial.evaluate(repair)
            if failures_left is not None and (best is None or failures_left < best[0]):
                best = failures_left, repair
            if failures_left == 0 or (failures_left is not None and repair.was_exception):
                break  # without an exception, the repair is most likely right
        has_more = next(candidates, None) is not None
        return RepairSearchResult(
            repair=best[1] if best is not None else None,
            tried_repairs=tried_repairs,
            has_more=has_more,
        )


class RepairTrial:
    """A copy of the folder, in which proposals come and go."""

    def __init__(self, copy: Workspace, command: str, limits: CommandLimits) -> None:
        self.copy, self.command, self.limits = copy, command, limits
        self.failures: list[Failure] = []
        self._red: frozenset[str] = frozenset()

    async def begin(self) -> None:
        """Find the failures and their positions."""
        check = await self._run(self.command)
        self._red = frozenset(failing_tests(check.stderr))
        focused_check = await self._run(self._focused_command()) if self._red else check
        self.failures = parse_tracebacks(focused_check.stderr) or parse_tracebacks(check.stderr)

    async def evaluate(self, repair: Repair) -> int | None:
        """Return how many failures the repair leaves; None if it does not help, or breaks
        something.
        """
        before = self.copy.read(repair.path)
        self.copy.write(repair.path, repair.text)
        try:
            return await self._count_failures_left()
        finally:
            self.copy.write(repair.path, before)

    async def _count_failures_left(self) -> int | None:
        focused_check = await self._run(self._focused_command())
        if (
            focused_check.exit_code
            and not frozenset(failing_tests(focused_check.stderr)) < self._red
        ):
            return None
        full_check = await self._run(self.command)
        red = frozenset(failing_tests(full_check.stderr))
        is_better = full_check.exit_code == 0 or (bool(red) and red < self._red)
        return len(red) if is_better else None

    def _focused_command(self) -> str:
        """Return a command for the failing tests alone; a command of no test runner stays as it
        is.
        """
        names = sorted(self._red)[:FOCUSED_TESTS_MAX]
        if not names:
            return self.command
        if names[0].partition("::")[0].endswith(".py"):
            return " ".join((PYTEST_COMMAND, "--tb=native", *names))
        return " ".join((UNITTEST_COMMAND, *names))

    async def _run(self, command: str) -> Check:
        return await run_check(self.copy, command, self.limits)


def _copy_workspace(workspace: Workspace, folder: Path) -> Workspace:
    """Copy the folder's files, without links. Protected files may be changed in a copy: whether a
    repair would help there is worth knowing.
    """
    size = 0
    for path in workspace.files():
        source, target = workspace.root / path, folder / path
        size += source.stat().st_size
        if size > COPY_BYTES_MAX:
            raise NotAllowedError(
                f"'{workspace.root.name}' is too large to try repairs in a copy of it"
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    constraints = Constraints(commands=workspace.constraints.commands)
    return Workspace(folder, constraints, is_sample=workspace.is_sample, python=workspace.python)


def generate_repairs(workspace: Workspace, failures: Iterable[Failure]) -> Iterator[Repair]:
    """Yield every repair of every suspect, each once, the likeliest first."""
    seen: set[tuple[str, str]] = set()
    names = frozenset(definition.name for definition in find_definitions(workspace))
    for failure, path, node in _suspects(workspace, list(failures)):
        source, tree = workspace.read(path), parse_source(workspace, path)
        if tree is None:
            continue
        site = RepairSite(source, tree, node, failure, _expected_values(workspace, failure), names)
        for pattern, edit in generate_edits(site):
            text = apply_edit(source, edit)
            if text is not None and (path, text) not in seen:
                seen.add((path, text))
                description = f"{path} {edit.description}"
                was_exception = failure.exception != "AssertionError"
                yield Repair(
                    path=path,
                    text=text,
                    pattern=pattern,
                    description=description,
                    was_exception=was_exception,
                )


Suspect = tuple[Failure, str, FunctionNode | None]


def _suspects(workspace: Workspace, failures: list[Failure]) -> Iterator[Suspect]:
    """Yield (failure, file, function): each pair of file and function once; None is the rest of a
    file.
    """
    seen: set[tuple[str, str]] = set()
    for find_locations in (
        _traceback_locations,
        _called_locations,
        _indirectly_called_locations,
        _same_file_locations,
    ):
        for failure in failures:
            for path, node in find_locations(workspace, failure):
                key = path, f"{node.name}:{node.lineno}" if node is not None else ""
                if key not in seen:
                    seen.add(key)
                    yield failure, path, node


SuspectLocations = Iterator[tuple[str, FunctionNode | None]]


def _traceback_locations(workspace: Workspace, failure: Failure) -> SuspectLocations:
    files = set(workspace.files())
    for frame in reversed(failure.frames):
        if frame.path in files and not is_test(frame.path):
            enclosing = [
                n for n in find_functions(workspace, frame.path) if _contains_line(n, frame.line)
            ]
            yield frame.path, max(enclosing, key=lambda n: n.lineno, default=None)


def _called_locations(workspace: Workspace, failure: Failure) -> SuspectLocations:
    names = find_called_names(workspace, failure)
    yield from _definition_locations(workspace, names)


def _indirectly_called_locations(workspace: Workspace, failure: Failure) -> SuspectLocations:
    for _, node in [
        *_traceback_locations(workspace, failure),
        *_called_locations(workspace, failure),
    ]:
        if node is not None:
            callees = [
                expression.func for expression in ast.walk(node) if isinstance(expression, ast.Call)
            ]
            names = [
                expression.attr
                if isinstance(expression, ast.Attribute)
                else getattr(expression, "id", "")
                for expression in callees
            ]
            yield from _definition_locations(workspace, names)


def _same_file_locations(workspace: Workspace, failure: Failure) -> SuspectLocations:
    nearby = [*_traceback_locations(workspace, failure), *_called_locations(workspace, failure)]
    for path in dict.fromkeys(path for path, _ in nearby):
        yield path, None
        for node in find_functions(workspace, path):
            yield path, node


def _definition_locations(workspace: Workspace, names: Iterable[str]) -> SuspectLocations:
    unique_names = list(dict.fromkeys(names))
    candidates = [
        definition for definition in find_definitions(workspace) if not is_test(definition.path)
    ]
    for name in unique_names:
        for definition in candidates:
            if definition.name == name:
                for node in find_functions(workspace, definition.path):
                    if node.lineno == definition.first_line:
                        yield definition.path, node


def find_functions(workspace: Workspace, path: str) -> list[FunctionNode]:
    tree = parse_source(workspace, path)
    nodes = ast.walk(tree) if tree is not None else ()
    return [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _contains_line(node: FunctionNode, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _expected_values(workspace: Workspace, failure: Failure) -> tuple[str, ...]:
    """Return what the failing test expects: plain values and exceptions."""
    tests = [frame for frame in failure.frames if is_test(frame.path)]
    values: list[str] = []
    for frame in tests[:1]:
        for node in find_functions(workspace, frame.path):
            if node.name == frame.name and _contains_line(node, frame.line):
                values += _expected_in_test(node)
    return tuple(dict.fromkeys(values))[:EXPECTED_VALUES_MAX]


def _expected_in_test(test: FunctionNode) -> Iterator[str]:
    for node in ast.walk(test):
        match node:
            case ast.Call(func=ast.Attribute(attr="assertRaises" | "raises"), args=[kind, *_]):
                yield ast.unparse(kind).rpartition(".")[2]
            case ast.Call(func=ast.Attribute(attr="assertIsNone")):
                yield "None"
            case ast.Call(
                func=ast.Attribute(attr="assertEqual"), args=[*_, ast.Constant() as constant]
            ):
                yield ast.unparse(constant)
            case ast.Compare(comparators=[ast.Constant() as constant]):
                yield ast.unparse(constant)
            case _:
                pass
