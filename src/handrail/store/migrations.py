"""Migrations: the SQL files that create the tables, and bring older databases up to date."""

from importlib import resources

from handrail.store.rows import StoreError

PRERELEASE_SCHEMA_VERSION = 6
"""The last schema before 0.1.0, whose schemas are refused: 001_initial.sql makes the next one."""


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
