"""`handrail doctor`: check the invariants of this database, now."""

import msgspec

from handrail.cli import formatting
from handrail.cli.database import (
    EXIT_FAILED,
    EXIT_WRONG_INPUT,
    InputError,
    open_database,
    print_error,
)
from handrail.cli.verify import finding_document, finding_line
from handrail.engine.audit.doctor import INVARIANTS, check_database
from handrail.store.engine_store import StoreError


def examine_database(database: str, *, as_json: bool) -> int:
    """Examine and print; return the exit code."""
    try:
        with open_database(database) as store:
            problems = check_database(store)
            location = store.display_name
    except InputError as error:
        print_error("doctor", error)
        return EXIT_WRONG_INPUT
    except StoreError as error:
        print_error("doctor", error)
        return EXIT_FAILED
    if as_json:
        findings = [finding_document(finding) for finding in problems]
        document = {"database": location, "healthy": not problems, "findings": findings}
        print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    else:
        lines = [finding_line(finding) for finding in problems]
        verdict = formatting.format_count(len(problems), "finding") if problems else "healthy"
        print(
            "\n".join(
                [*lines, f"{formatting.printable(location)}: {len(INVARIANTS)} checks, {verdict}"]
            )
        )
    return EXIT_FAILED if problems else 0
