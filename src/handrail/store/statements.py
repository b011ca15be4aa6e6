"""Loads SQL from files: each statement stands under a line `-- name: what it does`.

Most statements number their parameters. A list with filters names them (`:status`):
`select_filters` drops the lines of unused filters, so that every combination can use its index.
"""

import re
from collections.abc import Mapping
from importlib import resources

from handrail.store.engine_store import StoreError

PRERELEASE_SCHEMA_VERSION = 6
"""The last schema before 0.1.0, whose schemas are refused: 001_initial.sql makes the next one."""
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


def read_migrations(package: str, version: int = 0) -> list[str]:
    """Read the migrations after that version of the schema, in order; the first creates the
    tables."""
    folder = resources.files(package).joinpath("migrations")
    files = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    for number, name in enumerate(files, 1):
        assert name.startswith(f"{number:03}_"), f"{name} should be number {number:03}"
    done = max(0, version - PRERELEASE_SCHEMA_VERSION)
    return [folder.joinpath(name).read_text("utf-8") for name in files[done:]]


def schema_version(package: str) -> int:
    """Return the version that all migrations lead to."""
    return PRERELEASE_SCHEMA_VERSION + len(read_migrations(package))


def check_schema_version(display_name: str, version: int, newest: int) -> None:
    """Raise if this Handrail cannot use a schema of that version; 0 is an empty database."""
    if version > newest:
        raise StoreError(
            f"{display_name} was written by a newer Handrail (schema {version}; this one knows "
            f"{newest}); upgrade Handrail"
        )
    if 0 < version <= PRERELEASE_SCHEMA_VERSION:
        raise StoreError(
            f"{display_name} was made before Handrail 0.1.0 (schema {version}), which cannot be "
            "migrated; name a new database, and read the old one with the Handrail that made it"
        )
