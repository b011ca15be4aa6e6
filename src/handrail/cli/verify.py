"""`handrail verify`: check that the record is what was written."""

import re
from pathlib import Path
from typing import Any

import msgspec

from handrail.cli import formatting
from handrail.cli.database import (
    EXIT_FAILED,
    EXIT_WRONG_INPUT,
    InputError,
    open_database,
    print_error,
)
from handrail.engine.audit.verification import verify
from handrail.store.engine_store import StoreError
from handrail.views.audit import Finding, Verification

HEAD_PATTERN = re.compile(r"[0-9a-fA-F]{64}")


def verify_database(database: str, *, head: str, archive: str, as_json: bool) -> int:
    """Check and print; return the exit code."""
    try:
        if head and not HEAD_PATTERN.fullmatch(head):
            message = f"--head is '{head[:80]}'; give the 64 hexadecimal digits of a head"
            raise InputError(message)
        if archive and not Path(archive).is_file():
            raise InputError(f"--archive {archive}: there is no such file; name an archive")
        with open_database(database) as store:
            verification = verify(store, head or None, Path(archive) if archive else None)
            location = store.display_name
    except InputError as error:
        print_error("verify", error)
        return EXIT_WRONG_INPUT
    except StoreError as error:
        print_error("verify", error)
        return EXIT_FAILED
    if as_json:
        print(
            msgspec.json.format(
                msgspec.json.encode(_verification_document(location, verification)), indent=2
            ).decode()
        )
    else:
        print("\n".join(_verification_lines(location, verification)))
    return 0 if verification.unaltered else EXIT_FAILED


def finding_document(finding: Finding) -> dict[str, Any]:
    return {name: getattr(finding, name) for name in finding.__struct_fields__}


def finding_line(finding: Finding) -> str:
    return f"{finding.code}: {formatting.printable(finding.message)}"


def _verification_document(location: str, verification: Verification) -> dict[str, Any]:
    values = {name: getattr(verification, name) for name in verification.__struct_fields__}
    findings = [finding_document(finding) for finding in verification.findings]
    return {
        "database": location,
        "unaltered": verification.unaltered,
        **values,
        "findings": findings,
    }


def _verification_lines(location: str, verification: Verification) -> list[str]:
    commits, runs = (
        formatting.format_count(verification.commits, "commit"),
        formatting.format_count(verification.runs, "run"),
    )
    entries = f"{verification.entries:,} entries" if verification.entries != 1 else "1 entry"
    archived = f", {verification.archived:,} archived" if verification.archived else ""
    lines = [f"{formatting.printable(location)}: {commits} with {entries}, {runs}{archived}"]
    if verification.head:
        lines.append(f"head {verification.head} of {verification.at}")
    lines += [finding_line(finding) for finding in verification.findings]
    if verification.more:
        lines.append(f"and {formatting.format_count(verification.more, 'more finding')}")
    finding_count = len(verification.findings) + verification.more
    lines.append(
        f"ALTERED: {formatting.format_count(finding_count, 'finding')}"
        if finding_count
        else "unaltered"
    )
    return lines
