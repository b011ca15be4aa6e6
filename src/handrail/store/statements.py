"""Loads SQL from files: each statement stands under a line `-- name: what it does`.

Most statements number their parameters. A list with filters names them (`:status`):
`select_filters` drops the lines of unused filters, so that every combination can use its index.
"""

import re
from collections.abc import Mapping
from importlib import resources

_HEADER = re.compile(r"^-- (\w+): .+$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")


def load_statements(package: str, file: str = "queries.sql") -> dict[str, str]:
    """Load the statements of a file by name, in the order written."""
    text = resources.files(package).joinpath(file).read_text("utf-8")
    headers = list(_HEADER.finditer(text))
    ends = [match.start() for match in headers[1:]] + [len(text)]
    by_name = {
        match[1]: text[match.end() : end].strip().rstrip(";")
        for match, end in zip(headers, ends, strict=True)
    }
    assert len(by_name) == len(headers), f"a name stands twice in {file} of {package}"
    return by_name


def select_filters(
    statement: str, filters: Mapping[str, object], sign: str
) -> tuple[str, list[object]]:
    """Drop the lines of filters that are None, and number the parameters after the store's sign.
    Return the statement, and the values in that order."""
    names: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        return names.setdefault(match[1], f"{sign}{len(names) + 1}")

    lines = [
        line
        for line in statement.splitlines()
        if all(filters[name] is not None for name in _PARAMETER.findall(line))
    ]
    text = _PARAMETER.sub(number, "\n".join(lines))
    return text, [filters[name] for name in names]


def read_script(package: str, file: str) -> str:
    """Read a whole file of statements."""
    return resources.files(package).joinpath(file).read_text("utf-8")


def migration_files(package: str) -> list[str]:
    """List the migration files in order: 002_name.sql migrates version 1 to version 2."""
    folder = resources.files(package).joinpath("migrations")
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    for number, name in enumerate(names, 1):
        assert name.startswith(f"{number:03}_"), f"{name} should be number {number:03}"
    return [f"migrations/{name}" for name in names]
