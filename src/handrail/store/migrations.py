"""Migrations: the SQL files that create the tables, and bring older databases up to date.

A file of `schema/` serves both databases. It is written for PostgreSQL; a line that ends with
`-- sqlite` or `-- postgres` is for that one alone. SQLite gets its own types, no collations, and
comparisons with one value after the other in place of `IN`: for a longer IN, SQLite builds a table
in memory for each row that it checks, which takes longer than writing the row. PostgreSQL has no
option STRICT.
"""

import functools
import re
from collections.abc import Collection
from importlib import resources

from handrail.store.queries import Dialect
from handrail.store.rows import StoreError

PRERELEASE_SCHEMA_VERSION = 6
"""The last schema before 0.1.0, whose schemas are refused: 001_initial.sql makes the next one."""
SQLITE_TYPES = {
    "text": "TEXT",
    "json": "TEXT",
    "timestamptz": "TEXT",
    "integer": "INTEGER",
    "bigint": "INTEGER",
    "bytea": "BLOB",
    "double precision": "REAL",
}
_COLUMN_TYPE = re.compile(rf"(?m)^(  \w+) ({'|'.join(SQLITE_TYPES)})\b")
_NUMBERED_KEY = re.compile(r"\bbigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY\b")
_VALUE_LIST = re.compile(r"(?<![.\w])(\w+) IN\s+\(([^()]+)\)")
_TABLE = re.compile(r"(?ms)^CREATE TABLE (\w+) \(\n(.*?)^\)")
_SQLITE_COLUMN = re.compile(rf"(?m)^  (\w+) (?:{'|'.join(set(SQLITE_TYPES.values()))})\b")
_SQLITE_OPTIONS = re.compile(r"(?m)^\) STRICT[^;]*;")


def read_migrations(dialect: Dialect, version: int = 0) -> list[str]:
    """Read the migrations after that version of the schema, in order; the first creates the
    tables."""
    folder = resources.files("handrail.store").joinpath("schema")
    files = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    for number, name in enumerate(files, 1):
        assert name.startswith(f"{number:03}_"), f"{name} should be number {number:03}"
    done = max(0, version - PRERELEASE_SCHEMA_VERSION)
    return [_translate(folder.joinpath(name).read_text("utf-8"), dialect) for name in files[done:]]


def _translate(text: str, dialect: Dialect) -> str:
    other = "  -- postgres" if dialect == "sqlite" else "  -- sqlite"
    lines = [line for line in text.splitlines() if not line.endswith(other)]
    text = "".join(line.removesuffix(f"  -- {dialect}") + "\n" for line in lines)
    if dialect == "postgres":
        return _SQLITE_OPTIONS.sub(");", text)
    text = _NUMBERED_KEY.sub("INTEGER PRIMARY KEY", text).replace(' COLLATE "C"', "")
    text = _COLUMN_TYPE.sub(lambda match: f"{match[1]} {SQLITE_TYPES[match[2]]}", text)
    return _VALUE_LIST.sub(
        lambda match: " OR ".join(f"{match[1]} = {value}" for value in match[2].split(", ")), text
    )


NEWEST_SCHEMA_VERSION = PRERELEASE_SCHEMA_VERSION + len(read_migrations("sqlite"))
"""The version that all migrations lead to."""


def check_columns(display_name: str, columns: Collection[tuple[str, str]]) -> None:
    """Raise if a column is missing: a database of a development version may have this number."""
    missing = [name for name in _newest_columns() if name not in columns]
    if missing:
        table, column = missing[0]
        raise StoreError(
            f"{display_name} says that it has schema {NEWEST_SCHEMA_VERSION}, but its table "
            f"'{table}' has no column '{column}': another build of Handrail made it; open it "
            "with that one, or name a new database"
        )


@functools.cache
def _newest_columns() -> list[tuple[str, str]]:
    """Return the tables' columns, as the migrations make them for both databases."""
    columns: list[tuple[str, str]] = []
    for text in read_migrations("sqlite"):
        for table in _TABLE.finditer(text):
            columns += [(table[1], column[1]) for column in _SQLITE_COLUMN.finditer(table[2])]
    return columns


def outdated_schema_error(display_name: str, version: int) -> StoreError:
    """Build the error for a database that needs a migration, and is opened for reading only."""
    return StoreError(
        f"{display_name} has schema {version}, this Handrail needs {NEWEST_SCHEMA_VERSION}; "
        "open it once with `handrail serve` to bring it up to date"
    )


def check_schema_version(display_name: str, version: int) -> None:
    """Raise if this Handrail cannot use a schema of that version; 0 is an empty database."""
    if version > NEWEST_SCHEMA_VERSION:
        raise StoreError(
            f"{display_name} was written by a newer Handrail (schema {version}; this one knows "
            f"{NEWEST_SCHEMA_VERSION}); upgrade Handrail"
        )
    if 0 < version <= PRERELEASE_SCHEMA_VERSION:
        raise StoreError(
            f"{display_name} was made before Handrail 0.1.0 (schema {version}), which cannot be "
            "migrated; name a new database, and read the old one with the Handrail that made it"
        )
