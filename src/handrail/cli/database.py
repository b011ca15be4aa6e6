"""Commands on the database itself: `handrail db`, `verify` and `doctor`."""

import getpass
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from handrail.cli import output
from handrail.cli.arguments import AsJson, Database, decode_argument
from handrail.cli.command import EXIT_FAILED, InputError, as_input_error
from handrail.cli.command_group import CommandGroup
from handrail.cli.connection import open_database
from handrail.kernel.definition.reader import parse_duration

if TYPE_CHECKING:
    from handrail.store.database import DatabaseSizes
    from handrail.store.maintenance import MaintenanceStore
    from handrail.store.rows import CommitRow
    from handrail.views.audit import Verification

db = typer.Typer(cls=CommandGroup, rich_markup_mode=None)


@db.callback(invoke_without_command=True)
def sizes(context: typer.Context, database: Database = "", as_json: AsJson = False) -> None:
    """Show the size of the database; archive, back up, restore."""
    context.obj = database  # also for `handrail db --database URL COMMAND`
    if context.invoked_subcommand is not None:
        return
    with open_database(database) as store:
        sizes, location = store.measure_sizes(), store.display_name
    output.show(
        {"database": location, **msgspec.to_builtins(sizes)},
        _size_lines(location, sizes),
        as_json=as_json,
    )


@db.command()
def archive(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="A new file; compressed if it ends in .gz.")],
    older_than: Annotated[str, typer.Option(help="Only runs older than this.")] = "30d",
    by: Annotated[str, typer.Option(help="Who archives; default: the system's user.")] = "",
    database: Database = "",
    as_json: AsJson = False,
) -> None:
    """Move finished runs to a file.

    The file holds all of them and is on disk before anything is removed. Their hashes stay, so that
    verify can still check everything; the archiving is recorded with its author.
    """
    from handrail.engine.maintenance import retention

    now, age = datetime.now(UTC), parse_duration(older_than)
    if age is None or age > now.timestamp():
        raise InputError(f"--older-than is '{older_than[:80]}'; write 30d, 12h or 0")
    who = decode_argument(by) or getpass.getuser()
    with open_database(database or context.obj, read_only=False) as store:
        archived = retention.archive(
            store, _check_new_file(file), by=who, now=now, before=now - timedelta(seconds=age)
        )
    line = f"no run ended more than {older_than} ago; nothing was archived"
    if archived.runs:
        runs = output.format_count(archived.runs, "run")
        line = f"{archived.file}: {runs} with {archived.entries:,} entries archived by {who}"
    output.show({**msgspec.to_builtins(archived), "by": who}, [line], as_json=as_json)


@db.command()
def backup(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="A new file.")],
    database: Database = "",
    as_json: AsJson = False,
) -> None:
    """Copy the database to a new file while engines run. Prints the head of the copy."""
    from handrail.engine.maintenance import retention

    path = _check_new_file(file)
    with open_database(database or context.obj) as store:
        head = retention.backup(store, path)
    size = path.stat().st_size
    output.show(
        {"file": file, "bytes": size, **_head_fields(head)},
        [f"{file}: {_format_bytes(size)}", *_head_lines(head)],
        as_json=as_json,
    )


@db.command()
def restore(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="A file that backup wrote.")],
    yes: Annotated[bool, typer.Option("--yes", help="Replace the present content.")] = False,
    database: Database = "",
    as_json: AsJson = False,
) -> None:
    """Restore the database from a backup.

    The file is checked first; then all of it is restored, or nothing. Engines may be running: they
    continue from the restored state. Exit code 2 if the file is not valid, or --yes is missing.
    """
    from handrail.engine.maintenance import retention
    from handrail.store.database import BrokenBackupError

    with open_database(database or context.obj, read_only=False, create=True) as store:
        _require_confirmation(store, yes=yes)
        with as_input_error(BrokenBackupError):
            retention.restore(store, Path(file), datetime.now(UTC))
        head, location = store.journal.get_last_commit(), store.display_name
    output.show(
        {"database": location, "file": file, **_head_fields(head)},
        [f"{location}: restored from {file}", *_head_lines(head)],
        as_json=as_json,
    )


def _head_fields(head: "CommitRow | None") -> dict[str, Any]:
    return {"head": head.hash.hex(), "at": head.at} if head is not None else {}


def _head_lines(head: "CommitRow | None") -> list[str]:
    return [f"head {head.hash.hex()} of {head.at}"] if head is not None else []


def _require_confirmation(store: "MaintenanceStore", *, yes: bool) -> None:
    if not yes and not store.is_empty():
        raise InputError(
            f"{store.display_name} is not empty, and its content would be replaced; back it up, "
            "then pass --yes"
        )


def _check_new_file(file: str) -> Path:
    path = Path(file)
    if "\0" in file:
        raise InputError("the file name contains a null byte; name another file")
    if not file or not path.name or path.is_dir():
        raise InputError(f"'{file}' is not a file name; name a new file")
    if path.exists():
        raise InputError(f"{file} exists already; name a new file")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{file}: there is no folder {path.parent}; make it first")
    return path


def _size_lines(location: str, sizes: "DatabaseSizes") -> list[str]:
    log = f", its log {_format_bytes(sizes.log_bytes)}" if sizes.log_bytes is not None else ""
    free = f", of which {_format_bytes(sizes.free_bytes)} free" if sizes.free_bytes else ""
    lines = [f"{output.printable(location)}: {_format_bytes(sizes.bytes)}{free}{log}"]
    name_columns = max((len(table.name) for table in sizes.tables), default=0)
    for table in sizes.tables:
        size = _format_bytes(table.bytes) if table.bytes is not None else ""
        lines.append(f"  {table.name:{name_columns}}  {table.rows:>12,} rows  {size:>10}".rstrip())
    return lines


def _format_bytes(byte_count: int) -> str:
    if byte_count < 1000:
        return f"{byte_count} B"
    size = byte_count / 1000
    for unit in ("kB", "MB"):
        if size < 1000:
            return f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"


HEAD_PATTERN = re.compile(r"[0-9a-fA-F]{64}")


def verify(
    head: Annotated[
        str,
        typer.Option(metavar="HASH", help="A head that you stored: the record must contain it."),
    ] = "",
    archive: Annotated[
        str, typer.Option(metavar="FILE", help="Also check the runs in this archive.")
    ] = "",
    database: Database = "",
    as_json: AsJson = False,
) -> int:
    """Check that the record was not altered.

    Hashes every event again and compares every row with the events. Prints the head: store it
    elsewhere, and --head later shows that nothing before it was removed or rewritten. Works on a
    live database. Exit code 1 if something was altered.
    """
    from handrail.engine.audit.verification import verify as verify_record

    if head and not HEAD_PATTERN.fullmatch(head):
        raise InputError(f"--head is '{head[:80]}'; give the 64 hexadecimal digits of a head")
    if archive and not Path(archive).is_file():
        raise InputError(f"--archive {archive}: there is no such file; name an archive")
    with open_database(database) as store:
        verification = verify_record(store, head or None, Path(archive) if archive else None)
        location = store.display_name
    output.show(
        {
            "database": location,
            "unaltered": verification.unaltered,
            **msgspec.structs.asdict(verification),
        },
        _verification_lines(location, verification),
        as_json=as_json,
    )
    return 0 if verification.unaltered else EXIT_FAILED


def _verification_lines(location: str, verification: "Verification") -> list[str]:
    commits, runs = (
        output.format_count(verification.commits, "commit"),
        output.format_count(verification.runs, "run"),
    )
    entries = f"{verification.entries:,} entries" if verification.entries != 1 else "1 entry"
    archived = f", {verification.archived:,} archived" if verification.archived else ""
    lines = [f"{output.printable(location)}: {commits} with {entries}, {runs}{archived}"]
    if verification.head:
        lines.append(f"head {verification.head} of {verification.at}")
    lines += [f"{finding.code}: {finding.message}" for finding in verification.findings]
    if verification.more:
        lines.append(f"and {output.format_count(verification.more, 'more finding')}")
    finding_count = len(verification.findings) + verification.more
    lines.append(
        f"ALTERED: {output.format_count(finding_count, 'finding')}"
        if finding_count
        else "unaltered"
    )
    return lines


def doctor(database: Database = "", as_json: AsJson = False) -> int:
    """Check that the invariants hold, and that nothing is stuck.

    Works on a live database and changes nothing. Exit code 1 if something is wrong.
    """
    from handrail.engine.audit.doctor import INVARIANTS, check_database

    with open_database(database) as store:
        findings, location = check_database(store), store.display_name
    verdict = output.format_count(len(findings), "finding") if findings else "healthy"
    lines = [f"{finding.code}: {finding.message}" for finding in findings]
    lines.append(f"{location}: {len(INVARIANTS)} checks, {verdict}")
    output.show(
        {"database": location, "healthy": not findings, "findings": findings},
        lines,
        as_json=as_json,
    )
    return EXIT_FAILED if findings else 0
