"""A closing: the checklist of a month, and every difference between the ledger and the bank.

Both come as tables, named after what they are ("ledger-may.csv", "bank.csv"), or as one with a
column `source`. Lines belong together by their reference, else by date and amount. Said in words:
the period ("2026-05", "May 2026"), "opening balance 100.00", "closing balance 250.00", "tolerance
0.05", and in a revision which differences are in order: "accept R7 and R9".
"""

import re
from collections import Counter
from collections.abc import Iterable
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

SIDES: dict[str, tuple[str, ...]] = {"ledger": ("ledger", "books", "gl"), "bank": ("bank", "state")}
"""By side, the words for it in a table's name, or a row's source."""
MONTHS: tuple[str, ...] = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
LISTED_DIFFERENCES_MAX = 200
"""Differences that are listed; all are counted."""
ZERO = Decimal(0)
_FIGURE = r"(-?\d[\d.,' ]*)"
_TOLERANCE = re.compile(rf"\b(?:tolerance|within|up to)\s*(?:of\s*)?{_FIGURE}", re.I)
_OPENING = re.compile(rf"\bopening(?:\s+balance)?(?:\s+is|\s+of)?\s*:?\s*{_FIGURE}", re.I)
_CLOSING = re.compile(rf"\bclosing\s+balance(?:\s+is|\s+of)?\s*:?\s*{_FIGURE}", re.I)
_ACCEPTED = re.compile(r"\b(?:accept|accepted|ignore)\s+([^.;\n]+)", re.I)
_REFERENCE = re.compile(r"[A-Za-z0-9][\w/-]*\d[\w/-]*|\d+")
_PERIOD = re.compile(r"\b(\d{4})-(0[1-9]|1[0-2])\b(?!-\d)")
_MONTH = re.compile(rf"\b({'|'.join(MONTHS)})[a-z]*\.?\s+(\d{{4}})\b", re.I)


class ClosingEntry(NamedTuple):
    reference: str
    date: date | None
    amount: Decimal | None
    label: str

    @property
    def key(self) -> str:
        """What matches it with the other side."""
        return self.reference or f"{self.date or 'no date'} {self.amount}"


class ClosingOptions(NamedTuple):
    """Options from the texts."""

    tolerance: Decimal = ZERO
    opening: Decimal | None = None
    closing: Decimal | None = None
    period: tuple[int, int] | None = None
    accepted: frozenset[str] = frozenset()


def work_out(texts: list[str], files: Files) -> tuple[list[str], list[str]]:
    found_tables = read_tables(texts, files)
    entries = {side: _entries_of(found_tables, side) for side in SIDES}
    options, unknown = _read_options(texts)
    rows = [_presence_item(side, entries[side]) for side in SIDES]
    rows += [_readable_item(entries), *_period_items(entries, options), _unique_item(entries)]
    differences = _differences(entries, options)
    agreed = all(entries.values()) and not differences
    rows.append(
        _checklist_item(f"ledger and bank agree: {_count(differences, 'difference')}", ok=agreed)
    )
    rows += [f"    {difference}" for difference in differences[:LISTED_DIFFERENCES_MAX]]
    rows += [f"    accepted: {', '.join(sorted(options.accepted))}"] if options.accepted else []
    rows += _balance_items(entries, options)
    ledger, bank = (_sum(entries[side]) for side in SIDES)
    rows.append(f"ledger {ledger}, bank {bank}, difference {ledger - bank}")
    done = all(not row.startswith("[ ]") for row in rows)
    return [*rows, f"ready to close: {'yes' if done else 'no'}"], unknown


def _checklist_item(text: str, *, ok: bool) -> str:
    return f"[{'x' if ok else ' '}] {text}"


def _count(items: list[str], noun: str) -> str:
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"


# Input


def _entries_of(found_tables: dict[str, list[Row]], side: str) -> list[ClosingEntry]:
    entries: list[ClosingEntry] = []
    for name, rows in found_tables.items():
        table_side = _side_of(name)
        for n, row in enumerate(rows, 1):
            if (_side_of(row.get("source", "")) or table_side) == side and "amount" in row:
                entries.append(_read_entry(row, f"{side} {n}"))
    return entries


def _side_of(name: str) -> str:
    low = name.lower()
    return next((side for side, keys in SIDES.items() if any(key in low for key in keys)), "")


def _read_entry(row: Row, label: str) -> ClosingEntry:
    value = parse_amount(row["amount"])
    return ClosingEntry(
        row.get("reference", "").strip(),
        parse_date(row.get("date", "")),
        round_to_cent(value) if value is not None else None,
        label,
    )


def _read_options(texts: list[str]) -> tuple[ClosingOptions, list[str]]:
    """Read the options; the last text counts, and accepted differences stay accepted."""
    options, unknown = ClosingOptions(), list[str]()
    for n, text in enumerate(texts):
        figures = {
            name: value
            for name, pattern in (
                ("tolerance", _TOLERANCE),
                ("opening", _OPENING),
                ("closing", _CLOSING),
            )
            if (match := pattern.search(text)) and (value := parse_amount(match[1])) is not None
        }
        rest = _TOLERANCE.sub(" ", text)  # its figure is no reference
        accepted = {
            reference for part in _ACCEPTED.findall(rest) for reference in _REFERENCE.findall(part)
        }
        period = _read_period(text)
        if n and not (figures or accepted or period or read_tables([text], {})):
            unknown.append(text)
        options = options._replace(**figures, accepted=options.accepted | accepted)
        options = options._replace(period=period or options.period)
    return options, unknown


def _read_period(text: str) -> tuple[int, int] | None:
    if match := _PERIOD.search(text):
        return int(match[1]), int(match[2])
    if match := _MONTH.search(text):
        return int(match[2]), MONTHS.index(match[1].lower()) + 1
    return None


# The checklist


def _presence_item(side: str, entries: list[ClosingEntry]) -> str:
    if not entries:
        text = f"{side} is missing: attach a table named {side}, with reference, date and amount"
        return _checklist_item(text, ok=False)
    return _checklist_item(f"{side}: {len(entries)} lines, sum {_sum(entries)}", ok=True)


def _sum(entries: Iterable[ClosingEntry]) -> Decimal:
    return round_to_cent(sum((entry.amount for entry in entries if entry.amount is not None), ZERO))


def _readable_item(entries: dict[str, list[ClosingEntry]]) -> str:
    unreadable = [
        entry.label for side in entries.values() for entry in side if entry.amount is None
    ]
    text = f"{_count(unreadable, 'line')} cannot be read: {', '.join(unreadable[:20])}"
    return _checklist_item(text if unreadable else "every amount can be read", ok=not unreadable)


def _period_items(entries: dict[str, list[ClosingEntry]], options: ClosingOptions) -> list[str]:
    if options.period is None:
        return []
    period_text = f"{options.period[0]}-{options.period[1]:02}"
    all_entries = [entry for side in entries.values() for entry in side]
    outside = [
        entry.reference or entry.label
        for entry in all_entries
        if entry.date is None or (entry.date.year, entry.date.month) != options.period
    ]
    text = f"{_count(outside, 'line')} outside of {period_text}: {', '.join(outside[:20])}"
    return [_checklist_item(text if outside else f"all dates are in {period_text}", ok=not outside)]


def _unique_item(entries: dict[str, list[ClosingEntry]]) -> str:
    duplicates = [
        f"{side} {reference}"
        for side, lines in entries.items()
        for reference, count in Counter(
            entry.reference for entry in lines if entry.reference
        ).items()
        if count > 1
    ]
    text = f"stands more than once: {', '.join(duplicates[:20])}"
    return _checklist_item(text if duplicates else "no reference stands twice", ok=not duplicates)


def _differences(entries: dict[str, list[ClosingEntry]], options: ClosingOptions) -> list[str]:
    sums = {side: _sums_by_key(lines) for side, lines in entries.items()}
    ledger, bank = sums["ledger"], sums["bank"]
    differences: list[str] = []
    for key in sorted({*ledger, *bank} - options.accepted):
        ledger_amount, bank_amount = ledger.get(key), bank.get(key)
        if bank_amount is None:
            differences.append(f"{key}: ledger {ledger_amount}, not in the bank")
        elif ledger_amount is None:
            differences.append(f"{key}: bank {bank_amount}, not in the ledger")
        elif abs(ledger_amount - bank_amount) > options.tolerance:
            differences.append(
                f"{key}: ledger {ledger_amount}, bank {bank_amount}, difference "
                f"{ledger_amount - bank_amount}"
            )
    return differences


def _sums_by_key(entries: Iterable[ClosingEntry]) -> dict[str, Decimal]:
    sums: dict[str, Decimal] = {}
    for entry in entries:
        if entry.amount is not None:
            sums[entry.key] = sums.get(entry.key, ZERO) + entry.amount
    return sums


def _balance_items(entries: dict[str, list[ClosingEntry]], options: ClosingOptions) -> list[str]:
    if options.opening is None or options.closing is None:
        return []
    bank_sum = _sum(entries["bank"])
    computed = round_to_cent(options.opening + bank_sum)
    ok = abs(computed - options.closing) <= options.tolerance
    text = f"balance: {round_to_cent(options.opening)} and {bank_sum} come to {computed}"
    return [
        _checklist_item(text if ok else f"{text}, not to {round_to_cent(options.closing)}", ok=ok)
    ]
