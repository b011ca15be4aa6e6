"""An audit: a sample of entries, and what is wrong with them.

Entries come as tables with reference, date, amount, receipt and vendor. The sample is drawn without
chance, evenly over the entries ("sample 20"; by default all are checked), so that drawing it again
gives the same. Said in words: "limit 5000", "ignore weekend", "accept 42".
"""

import re
from collections import Counter
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import NamedTuple

from handrail.teams.finance.tables import (
    Files,
    Row,
    parse_amount,
    parse_date,
    read_tables,
    round_to_cent,
)

AMOUNT_LIMIT_DEFAULT = Decimal(10_000)
ROUND_AMOUNT = Decimal(100)
"""Whole hundreds are round."""
SATURDAY = 5
LISTED_FINDINGS_MAX = 500
NO_RECEIPT_WORDS = frozenset({"", "no", "none", "missing", "false", "0", "-", "n"})
"""Words for a missing receipt."""
NO_ENTRIES_TEXT = (
    "no entries were found; attach a table of reference, date, amount, receipt and vendor"
)
_LIMIT = re.compile(r"\blimit(?:\s+of|\s+is|\s+to)?\s*:?\s*(\d[\d.,' ]*)", re.I)
_SAMPLE = re.compile(r"\bsample(?:\s+of|\s+size)?\s*:?\s*(\d{1,6})\b", re.I)
_ACCEPTED = re.compile(r"\b(?:accept|accepted)\s+([^.;\n]+)", re.I)
_IGNORED = re.compile(r"\b(?:ignore|without|skip)\s+([^.;\n]+)", re.I)
_REFERENCE = re.compile(r"[A-Za-z0-9][\w/-]*\d[\w/-]*|\d+")
_WORD = re.compile(r"[a-z]+")


DuplicateKey = tuple[str, date | None, Decimal | None]


class AuditEntry(NamedTuple):
    reference: str
    date: date | None
    amount: Decimal | None
    receipt: str
    vendor: str

    @property
    def duplicate_key(self) -> DuplicateKey:
        """Two entries with the same key are one too many."""
        return self.vendor.lower(), self.date, self.amount


class AuditOptions(NamedTuple):
    limit: Decimal = AMOUNT_LIMIT_DEFAULT
    sample: int = 0
    """0: all of them."""
    accepted: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()


class AuditContext(NamedTuple):
    """What an entry is checked against."""

    options: AuditOptions
    duplicate_counts: Counter[DuplicateKey]
    reference_counts: Counter[str]
    has_receipts: bool
    """Whether the table says anything about receipts."""


def _unreadable(entry: AuditEntry, context: AuditContext) -> str:
    return "" if entry.amount is not None else "amount cannot be read"


def _duplicate(entry: AuditEntry, context: AuditContext) -> str:
    if context.reference_counts[entry.reference] > 1:
        return "reference stands more than once"
    duplicate_count = (
        context.duplicate_counts[entry.duplicate_key]
        if entry.vendor and entry.amount is not None
        else 1
    )
    return (
        f"same vendor, date and amount as {duplicate_count - 1} other"
        if duplicate_count > 1
        else ""
    )


def _without_receipt(entry: AuditEntry, context: AuditContext) -> str:
    missing = context.has_receipts and entry.receipt.strip().lower() in NO_RECEIPT_WORDS
    return "receipt missing" if missing else ""


def _above_limit(entry: AuditEntry, context: AuditContext) -> str:
    limit = context.options.limit
    above = entry.amount is not None and abs(entry.amount) > limit
    return f"{entry.amount} is above the limit of {round_to_cent(limit)}" if above else ""


def _round_amount(entry: AuditEntry, context: AuditContext) -> str:
    value = entry.amount
    is_round = value is not None and value != 0 and value % ROUND_AMOUNT == 0
    return f"{value} is a round amount" if is_round else ""


def _on_weekend(entry: AuditEntry, context: AuditContext) -> str:
    if entry.date is None or entry.date.weekday() < SATURDAY:
        return ""
    return f"posted on a {entry.date:%A}"


RULES: dict[str, Callable[[AuditEntry, AuditContext], str]] = {
    "unreadable": _unreadable,
    "duplicate": _duplicate,
    "receipt": _without_receipt,
    "limit": _above_limit,
    "round": _round_amount,
    "weekend": _on_weekend,
}
"""By the word that makes the audit ignore the rule."""


def work_out(texts: list[str], files: Files) -> tuple[list[str], list[str]]:
    table_rows = [
        row for rows in read_tables(texts, files).values() for row in rows if "amount" in row
    ]
    entries = [_read_entry(row, n) for n, row in enumerate(table_rows, 1)]
    options, unknown = _read_options(texts)
    if not entries:
        return [NO_ENTRIES_TEXT, "0 findings in 0 entries"], unknown
    context = AuditContext(
        options,
        Counter(entry.duplicate_key for entry in entries),
        Counter(entry.reference for entry in entries),
        any("receipt" in row for row in table_rows),
    )
    sample = draw_sample(entries, options.sample)
    findings = [
        (entry.reference, finding) for entry in sample for finding in _findings(entry, context)
    ]
    rows = [
        f"entry {reference}: {finding}" for reference, finding in findings[:LISTED_FINDINGS_MAX]
    ]
    rows += [f"accepted: {', '.join(sorted(options.accepted))}"] if options.accepted else []
    rows += [f"not looked for: {', '.join(sorted(options.ignored))}"] if options.ignored else []
    coverage = (
        f"{len(sample)} of {len(entries)}" if len(sample) < len(entries) else f"{len(entries)}"
    )
    count = f"{len(findings)} finding{'' if len(findings) == 1 else 's'}"
    return [*rows, f"{count} in {coverage} entries"], unknown


def draw_sample(entries: list[AuditEntry], size: int) -> list[AuditEntry]:
    """Return `size` entries, evenly over all of them; the first is always among them."""
    if not 0 < size < len(entries):
        return entries
    return [entries[n * len(entries) // size] for n in range(size)]


def _read_entry(row: Row, n: int) -> AuditEntry:
    value = parse_amount(row["amount"])
    return AuditEntry(
        row.get("reference", "").strip() or str(n),
        parse_date(row.get("date", "")),
        round_to_cent(value) if value is not None else None,
        row.get("receipt", ""),
        row.get("vendor", ""),
    )


def _findings(entry: AuditEntry, context: AuditContext) -> list[str]:
    if entry.reference in context.options.accepted:
        return []
    findings = [
        rule(entry, context) for name, rule in RULES.items() if name not in context.options.ignored
    ]
    return [finding for finding in findings if finding]


def _read_options(texts: list[str]) -> tuple[AuditOptions, list[str]]:
    """Read the options; the last text counts, and accepted or ignored items stay so."""
    options, unknown = AuditOptions(), list[str]()
    for n, text in enumerate(texts):
        limit, size = _LIMIT.search(text), _SAMPLE.search(text)
        accepted = {
            reference for part in _ACCEPTED.findall(text) for reference in _REFERENCE.findall(part)
        }
        ignored = {name for part in _IGNORED.findall(text) for name in _named_rules(part)}
        is_understood = limit or size or accepted or ignored or read_tables([text], {})
        if n and not is_understood:
            unknown.append(text)
        value = parse_amount(limit[1]) if limit else None
        options = AuditOptions(
            options.limit if value is None else value,
            int(size[1]) if size else options.sample,
            options.accepted | accepted,
            options.ignored | ignored,
        )
    return options, unknown


def _named_rules(text: str) -> list[str]:
    """Return the rules that the text names, in the singular or plural."""
    words = {word.rstrip("s") for word in _WORD.findall(text.lower())}
    return [name for name in RULES if name in words]
