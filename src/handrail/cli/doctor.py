"""`handrail doctor`: do the invariants hold in this database, now?"""

import msgspec

from handrail.cli import words
from handrail.cli.database import FAILED, WRONG_INPUT, InputError, complain, records
from handrail.cli.verify import finding_document, finding_line
from handrail.engine.doctor import MEANINGS, examine
from handrail.store.port import StoreError


def examine_database(database: str, *, as_json: bool) -> int:
    """Examines and prints; the exit code."""
    try:
        with records(database) as store:
            found = examine(store)
            where = store.where
    except InputError as error:
        complain("doctor", error)
        return WRONG_INPUT
    except StoreError as error:
        complain("doctor", error)
        return FAILED
    if as_json:
        findings = [finding_document(one) for one in found]
        document = {"database": where, "healthy": not found, "findings": findings}
        print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    else:
        lines = [finding_line(one) for one in found]
        told = words.count(len(found), "finding") if found else "healthy"
        print("\n".join([*lines, f"{words.clean(where)}: {len(MEANINGS)} checks, {told}"]))
    return FAILED if found else 0
