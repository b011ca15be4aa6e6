"""`handrail doctor`: check the invariants of this database, now."""

from handrail.cli import formatting, output
from handrail.cli.command import EXIT_FAILED
from handrail.cli.database import open_database
from handrail.cli.options import AsJson, Database


def doctor(database: Database = "", as_json: AsJson = False) -> int:
    """Check that the invariants hold, and that nothing is stuck.

    Works on a live database and changes nothing. Exit code 1 if something is wrong.
    """
    from handrail.engine.audit.doctor import INVARIANTS, check_database

    with open_database(database) as store:
        findings, location = check_database(store), store.display_name
    verdict = formatting.format_count(len(findings), "finding") if findings else "healthy"
    lines = [f"{finding.code}: {finding.message}" for finding in findings]
    lines.append(f"{location}: {len(INVARIANTS)} checks, {verdict}")
    document = {"database": location, "healthy": not findings, "findings": findings}
    output.show(document, lines, as_json=as_json)
    return EXIT_FAILED if findings else 0
