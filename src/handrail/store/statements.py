"""SQL from files: each statement under a line `-- name: what it does`.

Most statements have their values by number. A list with filters names them (`:status`): a line with
a filter that nobody asks for is left out (`chosen`), so that every combination has its index.
"""

import re
from collections.abc import Mapping
from importlib import resources

_HEADER = re.compile(r"^-- (\w+): .+$", re.MULTILINE)
_NAMED = re.compile(r"(?<![:\w]):([a-z]\w*)")


def statements(package: str, file: str = "queries.sql") -> dict[str, str]:
    """The statements of a file by name, in the order written."""
    text = resources.files(package).joinpath(file).read_text("utf-8")
    found = list(_HEADER.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    named = {
        match[1]: text[match.end() : end].strip().rstrip(";")
        for match, end in zip(found, ends, strict=True)
    }
    assert len(named) == len(found), f"a name stands twice in {file} of {package}"
    return named


def chosen(statement: str, wanted: Mapping[str, object], sign: str) -> tuple[str, list[object]]:
    """The statement without the lines of filters that are None, its names as numbers after the
    store's sign, and the values in that order."""
    names: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        return names.setdefault(match[1], f"{sign}{len(names) + 1}")

    lines = [
        line
        for line in statement.splitlines()
        if all(wanted[name] is not None for name in _NAMED.findall(line))
    ]
    text = _NAMED.sub(number, "\n".join(lines))
    return text, [wanted[name] for name in names]


def script(package: str, file: str) -> str:
    """A whole file of statements."""
    return resources.files(package).joinpath(file).read_text("utf-8")


def migrations(package: str) -> list[str]:
    """Names of the migration files, in order: 002_name.sql brings version 1 to version 2."""
    folder = resources.files(package).joinpath("migrations")
    names = sorted(one.name for one in folder.iterdir() if one.name.endswith(".sql"))
    for number, name in enumerate(names, 1):
        assert name.startswith(f"{number:03}_"), f"{name} should be number {number:03}"
    return [f"migrations/{name}" for name in names]
