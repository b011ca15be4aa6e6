"""Tables of figures: CSV and JSON from a bead's files, or CSV that stands in its text.

Amounts are exact decimals. What cannot be read as an amount or a date is None, and whoever uses the
row says so: nothing is guessed.
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, cast

Files = Mapping[str, str]
Row = dict[str, str]
ROWS_MAX = 10_000
FILES_MAX = 20
FILE_BYTES_MAX = 1_000_000
DIGITS_MAX = 15
_EXACT = Context(prec=60)
CENT = Decimal("0.01")
NAMES: dict[str, tuple[str, ...]] = {
    "reference": ("reference", "ref", "id", "entry", "no", "number", "document"),
    "date": ("date", "posted", "posting_date", "booked"),
    "amount": ("amount", "value", "sum", "gross"),
    "receipt": ("receipt", "voucher", "attachment"),
    "vendor": ("vendor", "supplier", "payee", "account", "description", "text"),
    "source": ("source", "side", "book"),
    "quantity": ("quantity", "qty", "count", "pieces"),
    "price": ("price", "unit_price", "unit price", "each"),
    "tax": ("tax", "rate", "vat", "tax_rate"),
    "discount": ("discount", "rebate"),
}
"""What a column may be called."""
_KNOWN = {called: name for name, all_of in NAMES.items() for called in all_of}
_AMOUNT = re.compile(r"[-+]?\d[\d.,' ]*")
_GERMAN = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")


def rounded(value: Decimal) -> Decimal:
    """To the cent; half a cent goes up."""
    return value.quantize(CENT, ROUND_HALF_UP, _EXACT)


def amount(text: str) -> Decimal | None:
    """Of "1,234.50", "1.234,50", "-12" or "€ 12.00"; of two signs the last is the point."""
    found = _AMOUNT.search(text)
    if found is None:
        return None
    digits = re.sub(r"[' ]", "", found[0]).rstrip(".,")
    last = max(digits.rfind("."), digits.rfind(","))
    both = "." in digits and "," in digits
    point = last >= 0 and (both or digits.count(digits[last]) == 1)
    if point and digits[last] == "," and not both and len(digits) - last - 1 == 3:
        point = False  # 1,234 is a thousand and some
    whole, part = (digits[:last], digits[last + 1 :]) if point else (digits, "")
    plain = re.sub(r"[.,]", "", whole) + (f".{part}" if part else "")
    try:
        return Decimal(plain) if len(plain) <= DIGITS_MAX else None
    except InvalidOperation:
        return None


def day(text: str) -> date | None:
    """Of "2026-05-02" or "2.5.2026"."""
    german = _GERMAN.fullmatch(text.strip())
    try:
        if german is not None:
            return date(int(german[3]), int(german[2]), int(german[1]))
        return date.fromisoformat(text.strip()[:10])
    except ValueError:
        return None


def tables(said: Iterable[str], files: Files) -> dict[str, list[Row]]:
    """Every table by where it stands; columns that are known have the names of NAMES."""
    found = {name: read(name, text) for name, text in sorted(files.items())[:FILES_MAX]}
    for n, text in enumerate(said):
        found[f"text {n}"] = _csv(_block(text))
    return {name: rows[:ROWS_MAX] for name, rows in found.items() if rows}


def read(name: str, text: str) -> list[Row]:
    return _json(text) if name.lower().endswith(".json") else _csv(text)


def _csv(text: str) -> list[Row]:
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        return []
    sign = max(",;\t", key=lines[0].count)
    reader = csv.reader(io.StringIO("\n".join(lines[: ROWS_MAX + 1])), delimiter=sign)
    try:
        head, *rows = list(reader)
    except csv.Error:
        return []  # a field that has no end, or holds what no table does
    names = [_name(one) for one in head]
    if not set(names) & set(NAMES):
        return []
    return [dict(zip(names, map(str.strip, row), strict=False)) for row in rows]


def _block(text: str) -> str:
    """The lines of a text that look like a table: a head with known columns, and what follows."""
    lines = text.splitlines()
    for n, line in enumerate(lines):
        sign = max(",;\t", key=line.count)
        columns = [_name(one) for one in line.split(sign)]
        if len(columns) > 1 and len(set(columns) & set(NAMES)) > 1:
            rest = [one for one in lines[n:] if sign in one]
            return "\n".join(rest)
    return ""


def _json(text: str) -> list[Row]:
    """A list of objects, or an object that has one."""
    try:
        document: Any = json.loads(text, parse_float=str)
    except (ValueError, RecursionError):
        return []
    held = cast("dict[str, Any]", document).values() if isinstance(document, dict) else (document,)
    for one in held:
        if isinstance(one, list):
            rows = cast("list[Any]", one)[:ROWS_MAX]
            return [_plain(cast("dict[str, Any]", row)) for row in rows if isinstance(row, dict)]
    return []


def _plain(row: dict[str, Any]) -> Row:
    texts = {True: "yes", False: "no", None: ""}
    return {
        _name(str(key)): texts[value] if value is None or isinstance(value, bool) else str(value)
        for key, value in row.items()
    }


def _name(column: str) -> str:
    plain = column.strip().strip('"').lower()
    return _KNOWN.get(plain, plain)
