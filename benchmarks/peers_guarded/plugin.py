"""A pytest plugin: guards a framework's top-level runs, and writes what became of each test.

    pytest -p benchmarks.peers_guarded.plugin --guard openai_agents --guard-mode observed \
        --guard-results results.jsonl

Modes: `bare` guards nothing; `generous` switches all rules off; `observed` is what `guarded(...)`
does by default, `quiet` the same without nudges.
"""

import inspect
import json
from collections.abc import Callable, Generator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers_guarded.suites import SUITES, Suite
from handrail import Guard, StopRules
from handrail.guard.errors import StoppedError
from handrail.kernel.definition.limits import Ladder

GENEROUS = StopRules(
    max_handoffs=None,
    max_steps=1_000_000,
    max_edge=None,
    max_duration=None,
    repeat_limit=None,
    same_error_limit=None,
    no_change_limit=None,
    oscillation_limit=None,
    monologue_limit=None,
    ladder=Ladder(nudge=False),
)
MODES: dict[str, Callable[[], Guard]] = {
    "generous": lambda: Guard(GENEROUS),
    "observed": Guard,
    "quiet": lambda: Guard(StopRules(ladder=Ladder(nudge=False))),
}
guards: list[Guard] = []
"""The guards of the test that runs."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("guard")
    group.addoption("--guard", required=True, choices=SUITES)
    group.addoption("--guard-mode", choices=("bare", *MODES), default="observed")
    group.addoption("--guard-results", type=Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    mode = str(config.getoption("--guard-mode"))
    config.stash[SUITE_KEY] = suite = SUITES[str(config.getoption("--guard"))]
    if mode == "bare":
        return

    def make_guard() -> Guard:
        guard = MODES[mode]()
        guards.append(guard)
        return guard

    import_module(f"benchmarks.peers_guarded.{suite.adapter}").patch(make_guard)


SUITE_KEY = pytest.StashKey[Suite]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, Any, Any]:
    """Add to a report what the guard did in the test."""
    report = yield
    error = call.excinfo.value if call.excinfo is not None else None
    if isinstance(error, StoppedError):
        report.user_properties.append(("stop", error.stop.rule.value))
    if report.when == "call":
        stops = [guard.last.stop for guard in guards if guard.last is not None]
        rules = sorted({stop.rule.value for stop in stops if stop is not None} - {"completed"})
        report.user_properties.append(("rules", rules))
        runs = [guard.last for guard in guards if guard.last is not None]
        report.user_properties.append(("guard_errors", sum(run.errors.count for run in runs)))
        report.user_properties.append(("runs", len(runs)))
        if any(text in _source(item) for text in item.config.stash[SUITE_KEY].replaced):
            report.user_properties.append(("replaces", True))
        guards.clear()
    return report


def _source(item: pytest.Item) -> str:
    try:
        return inspect.getsource(getattr(item, "function", None))  # pyright: ignore[reportArgumentType]
    except (OSError, TypeError):
        return ""


class _Results:
    """Writes a line for each test."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            text = report.longreprtext.strip().splitlines()[-1:] if report.failed else []
            line = {"id": report.nodeid, "outcome": report.outcome, "when": report.when}
            line |= {"why": " ".join(text)[:300]} | dict(report.user_properties)
            with self.path.open("a") as results:
                results.write(json.dumps(line) + "\n")


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        results = _Results(Path(str(session.config.getoption("--guard-results"))))
        session.config.pluginmanager.register(results)
