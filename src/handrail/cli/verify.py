"""`handrail verify`: check that the record was not altered."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from handrail.cli import formatting, output
from handrail.cli.command import EXIT_FAILED, InputError
from handrail.cli.database import open_database
from handrail.cli.options import AsJson, Database

if TYPE_CHECKING:
    from handrail.views.audit import Verification

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
    document = {
        "database": location,
        "unaltered": verification.unaltered,
        **msgspec.structs.asdict(verification),
    }
    output.show(document, _verification_lines(location, verification), as_json=as_json)
    return 0 if verification.unaltered else EXIT_FAILED


def _verification_lines(location: str, verification: "Verification") -> list[str]:
    commits, runs = (
        formatting.format_count(verification.commits, "commit"),
        formatting.format_count(verification.runs, "run"),
    )
    entries = f"{verification.entries:,} entries" if verification.entries != 1 else "1 entry"
    archived = f", {verification.archived:,} archived" if verification.archived else ""
    lines = [f"{formatting.printable(location)}: {commits} with {entries}, {runs}{archived}"]
    if verification.head:
        lines.append(f"head {verification.head} of {verification.at}")
    lines += [f"{finding.code}: {finding.message}" for finding in verification.findings]
    if verification.more:
        lines.append(f"and {formatting.format_count(verification.more, 'more finding')}")
    finding_count = len(verification.findings) + verification.more
    lines.append(
        f"ALTERED: {formatting.format_count(finding_count, 'finding')}"
        if finding_count
        else "unaltered"
    )
    return lines
