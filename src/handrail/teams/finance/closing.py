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

from handrail.teams.finance.tables import Files, Row, amount, day, rounded, tables

SIDES: dict[str, tuple[str, ...]] = {"ledger": ("ledger", "books", "gl"), "bank": ("bank", "state")}
"""A side, and what a table's name, or a row's source, says of it."""
MONTHS: tuple[str, ...] = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
DIFFERENCES_MAX = 200
"""So many are listed; all are counted."""
ZERO = Decimal(0)
_FIGURE = r"(-?\d[\d.,' ]*)"
_TOLERANCE = re.compile(rf"\b(?:tolerance|within|up to)\s*(?:of\s*)?{_FIGURE}", re.I)
_OPENING = re.compile(rf"\bopening(?:\s+balance)?(?:\s+is|\s+of)?\s*:?\s*{_FIGURE}", re.I)
_CLOSING = re.compile(rf"\bclosing\s+balance(?:\s+is|\s+of)?\s*:?\s*{_FIGURE}", re.I)
_ACCEPTED = re.compile(r"\b(?:accept|accepted|ignore)\s+([^.;\n]+)", re.I)
_REFERENCE = re.compile(r"[A-Za-z0-9][\w/-]*\d[\w/-]*|\d+")
_PERIOD = re.compile(r"\b(\d{4})-(0[1-9]|1[0-2])\b(?!-\d)")
_MONTH = re.compile(rf"\b({'|'.join(MONTHS)})[a-z]*\.?\s+(\d{{4}})\b", re.I)


class Entry(NamedTuple):
    reference: str
    date: date | None
    amount: Decimal | None
    place: str

    @property
    def key(self) -> str:
        """What it is found by on the other side."""
        return self.reference or f"{self.date or 'no date'} {self.amount}"


class Wanted(NamedTuple):
    """What was said about it."""

    tolerance: Decimal = ZERO
    opening: Decimal | None = None
    closing: Decimal | None = None
    period: tuple[int, int] | None = None
    accepted: frozenset[str] = frozenset()


def work_out(said: list[str], files: Files) -> tuple[list[str], list[str]]:
    found = tables(said, files)
    entries = {side: _entries(found, side) for side in SIDES}
    wanted, unknown = _wanted(said)
    rows = [_there(side, entries[side]) for side in SIDES]
    rows += [_readable(entries), *_in_period(entries, wanted), _unique(entries)]
    differences = _differences(entries, wanted)
    agreed = all(entries.values()) and not differences
    rows.append(_item(f"ledger and bank agree: {_count(differences, 'difference')}", ok=agreed))
    rows += [f"    {one}" for one in differences[:DIFFERENCES_MAX]]
    rows += [f"    accepted: {', '.join(sorted(wanted.accepted))}"] if wanted.accepted else []
    rows += _balance(entries, wanted)
    ledger, bank = (_sum(entries[side]) for side in SIDES)
    rows.append(f"ledger {ledger}, bank {bank}, difference {ledger - bank}")
    done = all(not row.startswith("[ ]") for row in rows)
    return [*rows, f"ready to close: {'yes' if done else 'no'}"], unknown


def _item(told: str, *, ok: bool) -> str:
    return f"[{'x' if ok else ' '}] {told}"


def _count(found: list[str], what: str) -> str:
    return f"{len(found)} {what}{'' if len(found) == 1 else 's'}"


# What there is


def _entries(found: dict[str, list[Row]], side: str) -> list[Entry]:
    entries: list[Entry] = []
    for name, rows in found.items():
        named = _side(name)
        for n, row in enumerate(rows, 1):
            if (_side(row.get("source", "")) or named) == side and "amount" in row:
                entries.append(_entry(row, f"{side} {n}"))
    return entries


def _side(name: str) -> str:
    low = name.lower()
    return next((side for side, keys in SIDES.items() if any(key in low for key in keys)), "")


def _entry(row: Row, place: str) -> Entry:
    value = amount(row["amount"])
    return Entry(
        row.get("reference", "").strip(),
        day(row.get("date", "")),
        rounded(value) if value is not None else None,
        place,
    )


def _wanted(said: list[str]) -> tuple[Wanted, list[str]]:
    """What was said last counts; what was accepted stays so."""
    wanted, unknown = Wanted(), list[str]()
    for n, text in enumerate(said):
        figures = {
            name: value
            for name, pattern in (
                ("tolerance", _TOLERANCE),
                ("opening", _OPENING),
                ("closing", _CLOSING),
            )
            if (match := pattern.search(text)) and (value := amount(match[1])) is not None
        }
        rest = _TOLERANCE.sub(" ", text)  # its figure is no reference
        accepted = {one for part in _ACCEPTED.findall(rest) for one in _REFERENCE.findall(part)}
        period = _period(text)
        if n and not (figures or accepted or period or tables([text], {})):
            unknown.append(text)
        wanted = wanted._replace(**figures, accepted=wanted.accepted | accepted)
        wanted = wanted._replace(period=period or wanted.period)
    return wanted, unknown


def _period(text: str) -> tuple[int, int] | None:
    if match := _PERIOD.search(text):
        return int(match[1]), int(match[2])
    if match := _MONTH.search(text):
        return int(match[2]), MONTHS.index(match[1].lower()) + 1
    return None


# The checklist


def _there(side: str, entries: list[Entry]) -> str:
    if not entries:
        told = f"{side} is missing: attach a table named {side}, with reference, date and amount"
        return _item(told, ok=False)
    return _item(f"{side}: {len(entries)} lines, sum {_sum(entries)}", ok=True)


def _sum(entries: Iterable[Entry]) -> Decimal:
    return rounded(sum((one.amount for one in entries if one.amount is not None), ZERO))


def _readable(entries: dict[str, list[Entry]]) -> str:
    wrong = [one.place for side in entries.values() for one in side if one.amount is None]
    told = f"{_count(wrong, 'line')} cannot be read: {', '.join(wrong[:20])}"
    return _item(told if wrong else "every amount can be read", ok=not wrong)


def _in_period(entries: dict[str, list[Entry]], wanted: Wanted) -> list[str]:
    if wanted.period is None:
        return []
    named = f"{wanted.period[0]}-{wanted.period[1]:02}"
    every = [one for side in entries.values() for one in side]
    out = [
        one.reference or one.place
        for one in every
        if one.date is None or (one.date.year, one.date.month) != wanted.period
    ]
    told = f"{_count(out, 'line')} outside of {named}: {', '.join(out[:20])}"
    return [_item(told if out else f"all dates are in {named}", ok=not out)]


def _unique(entries: dict[str, list[Entry]]) -> str:
    twice = [
        f"{side} {reference}"
        for side, lines in entries.items()
        for reference, count in Counter(one.reference for one in lines if one.reference).items()
        if count > 1
    ]
    told = f"stands more than once: {', '.join(twice[:20])}"
    return _item(told if twice else "no reference stands twice", ok=not twice)


def _differences(entries: dict[str, list[Entry]], wanted: Wanted) -> list[str]:
    sums = {side: _by_key(lines) for side, lines in entries.items()}
    ledger, bank = sums["ledger"], sums["bank"]
    found: list[str] = []
    for key in sorted({*ledger, *bank} - wanted.accepted):
        ours, theirs = ledger.get(key), bank.get(key)
        if theirs is None:
            found.append(f"{key}: ledger {ours}, not in the bank")
        elif ours is None:
            found.append(f"{key}: bank {theirs}, not in the ledger")
        elif abs(ours - theirs) > wanted.tolerance:
            found.append(f"{key}: ledger {ours}, bank {theirs}, difference {ours - theirs}")
    return found


def _by_key(entries: Iterable[Entry]) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    for one in entries:
        if one.amount is not None:
            found[one.key] = found.get(one.key, ZERO) + one.amount
    return found


def _balance(entries: dict[str, list[Entry]], wanted: Wanted) -> list[str]:
    if wanted.opening is None or wanted.closing is None:
        return []
    moved = _sum(entries["bank"])
    comes_to = rounded(wanted.opening + moved)
    ok = abs(comes_to - wanted.closing) <= wanted.tolerance
    told = f"balance: {rounded(wanted.opening)} and {moved} come to {comes_to}"
    return [_item(told if ok else f"{told}, not to {rounded(wanted.closing)}", ok=ok)]
