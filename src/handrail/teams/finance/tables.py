"""Tables of figures: CSV and JSON from a bead's files, or CSV that stands in its text.

Amounts are exact decimals. A value that cannot be read as an amount or a date is None, and the user
of the row reports it: nothing is guessed.
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
_EXACT_CONTEXT = Context(prec=60)
CENT = Decimal("0.01")
COLUMN_NAMES: dict[str, tuple[str, ...]] = {
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
"""The headings for each column."""
_COLUMN_BY_NAME = {called: name for name, all_of in COLUMN_NAMES.items() for called in all_of}
_AMOUNT = re.compile(r"[-+]?\d[\d.,' ]*")
_GERMAN_DATE = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")


def round_to_cent(value: Decimal) -> Decimal:
    """Round to the cent; half a cent goes up."""
    return value.quantize(CENT, ROUND_HALF_UP, _EXACT_CONTEXT)


def parse_amount(text: str) -> Decimal | None:
    """Parse "1,234.50", "1.234,50", "-12" or "€ 12.00"; of two signs the last is the point."""
    match = _AMOUNT.search(text)
    if match is None:
        return None
    digits = re.sub(r"[' ]", "", match[0]).rstrip(".,")
    separator_at = max(digits.rfind("."), digits.rfind(","))
    has_both_separators = "." in digits and "," in digits
    has_decimals = separator_at >= 0 and (
        has_both_separators or digits.count(digits[separator_at]) == 1
    )
    if (
        has_decimals
        and digits[separator_at] == ","
        and not has_both_separators
        and len(digits) - separator_at - 1 == 3
    ):
        has_decimals = False  # 1,234 is a thousand and some
    integer_part, fraction = (
        (digits[:separator_at], digits[separator_at + 1 :]) if has_decimals else (digits, "")
    )
    number_text = re.sub(r"[.,]", "", integer_part) + (f".{fraction}" if fraction else "")
    try:
        return Decimal(number_text) if len(number_text) <= DIGITS_MAX else None
    except InvalidOperation:
        return None


def parse_date(text: str) -> date | None:
    """Parse "2026-05-02" or "2.5.2026"."""
    german = _GERMAN_DATE.fullmatch(text.strip())
    try:
        if german is not None:
            return date(int(german[3]), int(german[2]), int(german[1]))
        return date.fromisoformat(text.strip()[:10])
    except ValueError:
        return None


def read_tables(texts: Iterable[str], files: Files) -> dict[str, list[Row]]:
    """Return every table by its source; known columns have the names of COLUMN_NAMES."""
    rows_by_table = {
        name: read_table(name, text) for name, text in sorted(files.items())[:FILES_MAX]
    }
    for n, text in enumerate(texts):
        rows_by_table[f"text {n}"] = _parse_csv(_find_csv_block(text))
    return {name: rows[:ROWS_MAX] for name, rows in rows_by_table.items() if rows}


def read_table(name: str, text: str) -> list[Row]:
    return _parse_json(text) if name.lower().endswith(".json") else _parse_csv(text)


def _parse_csv(text: str) -> list[Row]:
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        return []
    delimiter = max(",;\t", key=lines[0].count)
    reader = csv.reader(io.StringIO("\n".join(lines[: ROWS_MAX + 1])), delimiter=delimiter)
    try:
        header, *rows = list(reader)
    except csv.Error:
        return []  # an unterminated field, or bytes that no table has
    names = [_column_name(column) for column in header]
    if not set(names) & set(COLUMN_NAMES):
        return []
    return [dict(zip(names, map(str.strip, row), strict=False)) for row in rows]


def _find_csv_block(text: str) -> str:
    """Return the lines of a text that look like a table: a head with known columns, and the
    rest.
    """
    lines = text.splitlines()
    for n, line in enumerate(lines):
        delimiter = max(",;\t", key=line.count)
        columns = [_column_name(cell) for cell in line.split(delimiter)]
        if len(columns) > 1 and len(set(columns) & set(COLUMN_NAMES)) > 1:
            rest = [row for row in lines[n:] if delimiter in row]
            return "\n".join(rest)
    return ""


def _parse_json(text: str) -> list[Row]:
    """Parse a list of objects, or an object that has one."""
    try:
        document: Any = json.loads(text, parse_float=str)
    except (ValueError, RecursionError):
        return []
    candidates = (
        cast("dict[str, Any]", document).values() if isinstance(document, dict) else (document,)
    )
    for candidate in candidates:
        if isinstance(candidate, list):
            rows = cast("list[Any]", candidate)[:ROWS_MAX]
            return [_text_row(cast("dict[str, Any]", row)) for row in rows if isinstance(row, dict)]
    return []


def _text_row(row: dict[str, Any]) -> Row:
    texts = {True: "yes", False: "no", None: ""}
    return {
        _column_name(str(key)): texts[value]
        if value is None or isinstance(value, bool)
        else str(value)
        for key, value in row.items()
    }


def _column_name(column: str) -> str:
    normalized = column.strip().strip('"').lower()
    return _COLUMN_BY_NAME.get(normalized, normalized)
