"""An audit: a sample of entries, and what is wrong with them.

Entries come as tables with reference, date, amount, receipt and vendor. The sample is drawn without
chance, evenly over the entries ("sample 20"; without a word all are looked at), so that whoever
draws it again has the same. Said in words: "limit 5000", "ignore weekend", "accept 42".
"""

import re
from collections import Counter
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import NamedTuple

from handrail.teams.finance.tables import Files, Row, amount, day, rounded, tables

LIMIT = Decimal(10_000)
ROUND = Decimal(100)
"""Whole hundreds are round."""
SATURDAY = 5
LISTED_MAX = 500
NO = frozenset({"", "no", "none", "missing", "false", "0", "-", "n"})
"""What a receipt is not."""
NONE = "no entries were found; attach a table of reference, date, amount, receipt and vendor"
_LIMIT = re.compile(r"\blimit(?:\s+of|\s+is|\s+to)?\s*:?\s*(\d[\d.,' ]*)", re.I)
_SAMPLE = re.compile(r"\bsample(?:\s+of|\s+size)?\s*:?\s*(\d{1,6})\b", re.I)
_ACCEPTED = re.compile(r"\b(?:accept|accepted)\s+([^.;\n]+)", re.I)
_IGNORED = re.compile(r"\b(?:ignore|without|skip)\s+([^.;\n]+)", re.I)
_REFERENCE = re.compile(r"[A-Za-z0-9][\w/-]*\d[\w/-]*|\d+")
_WORD = re.compile(r"[a-z]+")


Twin = tuple[str, date | None, Decimal | None]


class Entry(NamedTuple):
    reference: str
    date: date | None
    amount: Decimal | None
    receipt: str
    vendor: str

    @property
    def twin(self) -> Twin:
        """Two entries with the same are one too many."""
        return self.vendor.lower(), self.date, self.amount


class Wanted(NamedTuple):
    limit: Decimal = LIMIT
    sample: int = 0
    """0: all of them."""
    accepted: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()


class Seen(NamedTuple):
    """What an entry is held against."""

    wanted: Wanted
    twins: Counter[Twin]
    references: Counter[str]
    receipts: bool
    """Whether the table says anything about receipts."""


def _unreadable(entry: Entry, seen: Seen) -> str:
    return "" if entry.amount is not None else "amount cannot be read"


def _duplicate(entry: Entry, seen: Seen) -> str:
    if seen.references[entry.reference] > 1:
        return "reference stands more than once"
    twins = seen.twins[entry.twin] if entry.vendor and entry.amount is not None else 1
    return f"same vendor, date and amount as {twins - 1} other" if twins > 1 else ""


def _without_receipt(entry: Entry, seen: Seen) -> str:
    missing = seen.receipts and entry.receipt.strip().lower() in NO
    return "receipt missing" if missing else ""


def _above(entry: Entry, seen: Seen) -> str:
    limit = seen.wanted.limit
    above = entry.amount is not None and abs(entry.amount) > limit
    return f"{entry.amount} is above the limit of {rounded(limit)}" if above else ""


def _round(entry: Entry, seen: Seen) -> str:
    value = entry.amount
    is_round = value is not None and value != 0 and value % ROUND == 0
    return f"{value} is a round amount" if is_round else ""


def _weekend(entry: Entry, seen: Seen) -> str:
    if entry.date is None or entry.date.weekday() < SATURDAY:
        return ""
    return f"posted on a {entry.date:%A}"


RULES: dict[str, Callable[[Entry, Seen], str]] = {
    "unreadable": _unreadable,
    "duplicate": _duplicate,
    "receipt": _without_receipt,
    "limit": _above,
    "round": _round,
    "weekend": _weekend,
}
"""By the word with which it is ignored."""


def work_out(said: list[str], files: Files) -> tuple[list[str], list[str]]:
    listed = [row for rows in tables(said, files).values() for row in rows if "amount" in row]
    entries = [_entry(row, n) for n, row in enumerate(listed, 1)]
    wanted, unknown = _wanted(said)
    if not entries:
        return [NONE, "0 findings in 0 entries"], unknown
    seen = Seen(
        wanted,
        Counter(one.twin for one in entries),
        Counter(one.reference for one in entries),
        any("receipt" in row for row in listed),
    )
    sample = drawn(entries, wanted.sample)
    found = [(one.reference, told) for one in sample for told in _findings(one, seen)]
    rows = [f"entry {reference}: {told}" for reference, told in found[:LISTED_MAX]]
    rows += [f"accepted: {', '.join(sorted(wanted.accepted))}"] if wanted.accepted else []
    rows += [f"not looked for: {', '.join(sorted(wanted.ignored))}"] if wanted.ignored else []
    of = f"{len(sample)} of {len(entries)}" if len(sample) < len(entries) else f"{len(entries)}"
    count = f"{len(found)} finding{'' if len(found) == 1 else 's'}"
    return [*rows, f"{count} in {of} entries"], unknown


def drawn(entries: list[Entry], size: int) -> list[Entry]:
    """So many, evenly over all of them; the first is always among them."""
    if not 0 < size < len(entries):
        return entries
    return [entries[n * len(entries) // size] for n in range(size)]


def _entry(row: Row, n: int) -> Entry:
    value = amount(row["amount"])
    return Entry(
        row.get("reference", "").strip() or str(n),
        day(row.get("date", "")),
        rounded(value) if value is not None else None,
        row.get("receipt", ""),
        row.get("vendor", ""),
    )


def _findings(entry: Entry, seen: Seen) -> list[str]:
    if entry.reference in seen.wanted.accepted:
        return []
    told = [rule(entry, seen) for name, rule in RULES.items() if name not in seen.wanted.ignored]
    return [one for one in told if one]


def _wanted(said: list[str]) -> tuple[Wanted, list[str]]:
    """What was said last counts; what was accepted or is ignored stays so."""
    wanted, unknown = Wanted(), list[str]()
    for n, text in enumerate(said):
        limit, size = _LIMIT.search(text), _SAMPLE.search(text)
        accepted = {one for part in _ACCEPTED.findall(text) for one in _REFERENCE.findall(part)}
        ignored = {name for part in _IGNORED.findall(text) for name in _rules(part)}
        known = limit or size or accepted or ignored or tables([text], {})
        if n and not known:
            unknown.append(text)
        value = amount(limit[1]) if limit else None
        wanted = Wanted(
            wanted.limit if value is None else value,
            int(size[1]) if size else wanted.sample,
            wanted.accepted | accepted,
            wanted.ignored | ignored,
        )
    return wanted, unknown


def _rules(text: str) -> list[str]:
    """The rules that are named, by one or many of them."""
    said = {word.rstrip("s") for word in _WORD.findall(text.lower())}
    return [name for name in RULES if name in said]
