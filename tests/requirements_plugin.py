"""Which requirements do the tests name? A pytest plugin, loaded by the project's pytest settings.

A test says what it proves with `@pytest.mark.requirement("H3.1", "H3.4")`; the ids are those of the
catalogue, `docs/requirements.md`. The session ends with one line that counts them and lists the ids
that no collected test names. A marker that names an id the catalogue does not have is a collection
error: a typing mistake would otherwise look like a proof.

How it works. Markers are read where tests are collected: here, or under xdist in each worker, which
hands its ids to the controller when it goes down. The controller prints. Deselected tests (`-k`)
count as collected, because the list is about what exists, not about what ran.
"""

import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

CATALOGUE = Path("docs/requirements.md")
_ID = r"[A-Z]\d+(?:\.\d+)?"
_ROW = re.compile(rf"^\|\s*({_ID})\s*\|\s*(\S.*?)\s*\|\s*$")
_LOOSE_ROW = re.compile(rf"^\|\s*{_ID}\b")

_catalogue_key = pytest.StashKey[dict[str, str]]()
_named_key = pytest.StashKey[set[str]]()


class CatalogueError(Exception):
    """The catalogue cannot be read: the message names the line and what to do."""


def read_catalogue(text: str) -> dict[str, str]:
    """The rows `| id | what must hold |` of the catalogue, in its order."""
    rows: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        row = _ROW.match(line)
        if row is None:
            if _LOOSE_ROW.match(line):
                raise CatalogueError(
                    f"{CATALOGUE}:{number}: a row must read '| id | what must hold |', not {line!r}"
                )
            continue
        name, sentence = row.groups()
        if name in rows:
            raise CatalogueError(f"{CATALOGUE}:{number}: {name} stands here a second time; remove")
        rows[name] = sentence
    if not rows:
        raise CatalogueError(f"{CATALOGUE}: no row '| id | what must hold |' was found")
    return rows


def marker_ids(item: pytest.Item) -> Iterator[object]:
    """Every argument of the test's requirement markers (its own, its class's, its module's)."""
    for marker in item.iter_markers("requirement"):
        yield from marker.args or ("",)


def complaint(item: pytest.Item, catalogue: dict[str, str]) -> str | None:
    """What is wrong with the test's requirement markers, or None."""
    unknown = [repr(name) for name in marker_ids(item) if name not in catalogue]
    if not unknown:
        return None
    return (
        f"{item.nodeid}: requirement marker names {', '.join(unknown)}, which {CATALOGUE} does not "
        f"have; correct the id, or add a row for it there"
    )


def summary(catalogue: Iterable[str], named: set[str]) -> str:
    """The line that ends the session."""
    every = list(catalogue)
    missing = [name for name in every if name not in named]
    line = f"requirements: {len(every) - len(missing)} of {len(every)} named by a test"
    return f"{line}; not named: {' '.join(missing)}" if missing else line


def pytest_configure(config: pytest.Config) -> None:
    path = config.rootpath / CATALOGUE
    try:
        config.stash[_catalogue_key] = read_catalogue(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise pytest.UsageError(
            f"{CATALOGUE} is missing: the requirement markers need it"
        ) from None
    except CatalogueError as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[_named_key] = set()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    catalogue = collector.config.stash[_catalogue_key]
    items = [node for node in report.result or () if isinstance(node, pytest.Item)]
    complaints = [text for item in items if (text := complaint(item, catalogue))]
    if complaints:
        report.outcome = "failed"
        report.longrepr = "\n".join(complaints)
        report.result = []
    return report


@pytest.hookimpl(tryfirst=True)  # before -k deselects
def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    config.stash[_named_key].update(str(name) for item in items for name in marker_ids(item))


def pytest_sessionfinish(session: pytest.Session) -> None:
    workeroutput: dict[str, object] | None = getattr(session.config, "workeroutput", None)
    if workeroutput is not None:  # an xdist worker
        workeroutput["requirements"] = sorted(session.config.stash[_named_key])


@pytest.hookimpl(optionalhook=True)  # xdist's, in the controller
def pytest_testnodedown(node: Any) -> None:
    config: pytest.Config = node.config
    # A worker that crashed leaves no output; the others have collected the same tests.
    config.stash[_named_key].update(getattr(node, "workeroutput", {}).get("requirements", ()))


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    terminalreporter.write_line(summary(config.stash[_catalogue_key], config.stash[_named_key]))
