"""`handrail verify`: is the record what was written?"""

import re
from pathlib import Path
from typing import Any

import msgspec

from handrail.cli import words
from handrail.cli.database import FAILED, WRONG_INPUT, InputError, complain, records
from handrail.engine.audit import Verified, verify
from handrail.engine.findings import Finding
from handrail.store.port import StoreError

HEAD = re.compile(r"[0-9a-fA-F]{64}")


def verify_database(database: str, *, head: str, archive: str, as_json: bool) -> int:
    """Checks and prints; the exit code."""
    try:
        if head and not HEAD.fullmatch(head):
            told = f"--head is '{head[:80]}'; give the 64 hexadecimal digits of a head"
            raise InputError(told)
        if archive and not Path(archive).is_file():
            raise InputError(f"--archive {archive}: there is no such file; name an archive")
        with records(database) as store:
            done = verify(store, head or None, Path(archive) if archive else None)
            where = store.where
    except InputError as error:
        complain("verify", error)
        return WRONG_INPUT
    except StoreError as error:
        complain("verify", error)
        return FAILED
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(_document(where, done)), indent=2).decode())
    else:
        print("\n".join(_lines(where, done)))
    return 0 if done.unaltered else FAILED


def finding_document(finding: Finding) -> dict[str, Any]:
    return {name: getattr(finding, name) for name in finding.__struct_fields__}


def finding_line(finding: Finding) -> str:
    return f"{finding.code}: {words.clean(finding.message)}"


def _document(where: str, done: Verified) -> dict[str, Any]:
    values = {name: getattr(done, name) for name in done.__struct_fields__}
    findings = [finding_document(one) for one in done.findings]
    return {"database": where, "unaltered": done.unaltered, **values, "findings": findings}


def _lines(where: str, done: Verified) -> list[str]:
    commits, runs = words.count(done.commits, "commit"), words.count(done.runs, "run")
    entries = f"{done.entries:,} entries" if done.entries != 1 else "1 entry"
    archived = f", {done.archived:,} archived" if done.archived else ""
    lines = [f"{words.clean(where)}: {commits} with {entries}, {runs}{archived}"]
    if done.head:
        lines.append(f"head {done.head} of {done.at}")
    lines += [finding_line(one) for one in done.findings]
    if done.more:
        lines.append(f"and {words.count(done.more, 'more finding')}")
    wrong = len(done.findings) + done.more
    lines.append(f"ALTERED: {words.count(wrong, 'finding')}" if wrong else "unaltered")
    return lines
