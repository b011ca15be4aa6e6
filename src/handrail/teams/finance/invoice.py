"""An invoice: line totals, discounts, and tax for each rate, to the cent.

Said in words: "3 x 19.99 and 2 x 5.00 at 7%, tax 20%, 5% discount, round per line"; or as a table
with quantity, price, tax and discount. What is said later counts: "use 7% tax" for the whole,
"line 2 at 7%", "line 2 is 4 x 5.00", "add 1 x 3.00", "without line 2"; other lines in a revision
stand for all of them.

Rounding. *Total* (the usual): lines are summed exactly for each rate, the sum is rounded, and its
tax. *Line*: each line's net and tax are rounded, then summed.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Literal, NamedTuple

from handrail.teams.finance.tables import Files, Row, parse_amount, read_tables, round_to_cent

TAX_RATE_DEFAULT = Decimal(20)
"""The rate if no text names one."""
LINES_MAX = 1_000
HUNDRED = Decimal(100)
NO_LINES_TEXT = (
    "no lines were found; write them as '3 x 19.99', or attach a table of quantity and price"
)
_NUMBER = r"\d(?:[\d.,']{0,15}\d)?"
_LINE = re.compile(
    rf"({_NUMBER})\s*[x×*]\s*({_NUMBER})(?:\s*(?:at|@)\s*({_NUMBER})\s*%)?(?:\s*less\s*({_NUMBER})\s*%)?"
)
_NAMED_RATE = re.compile(rf"\bline\s*(\d{{1,4}})\s*(?:at|with|has|gets)\s*({_NUMBER})\s*%", re.I)
_NAMED_LINE = re.compile(rf"\bline\s*(\d{{1,4}})\s*(?:is|as|=|:|to)\s*(?={_NUMBER}\s*[x×*])", re.I)
_DROPPED_LINE = re.compile(r"\b(?:without|remove|drop|delete)\s+line\s*(\d{1,4})", re.I)
_DISCOUNT = re.compile(
    rf"(?:discount(?:\s+of)?\s*({_NUMBER})\s*%)|(?:({_NUMBER})\s*%\s*(?:discount|rebate|off))", re.I
)
_RATE = re.compile(rf"({_NUMBER})\s*%")
_ADD_WORD = re.compile(r"\b(?:add|also|plus)\b", re.I)
_ROUNDING = re.compile(
    r"\bround(?:ed|ing)?\b[^.\n]*?\b(?:per|by|each|on|the)\s+(line|total)\b", re.I
)


class InvoiceLine(NamedTuple):
    quantity: Decimal
    price: Decimal
    rate: Decimal | None = None
    discount: Decimal = Decimal(0)

    @property
    def net(self) -> Decimal:
        return self.quantity * self.price * (1 - self.discount / HUNDRED)


class Invoice(NamedTuple):
    lines: tuple[InvoiceLine, ...] = ()
    rate: Decimal = TAX_RATE_DEFAULT
    discount: Decimal = Decimal(0)
    rounding: Literal["line", "total"] = "total"


class InvoiceTotals(NamedTuple):
    """Net and tax by rate, in the order of the rates."""

    net: Decimal
    taxes: tuple[tuple[Decimal, Decimal, Decimal], ...]
    """(rate, net, tax)"""
    discount: Decimal

    @property
    def total(self) -> Decimal:
        return self.net + sum((tax for _, _, tax in self.taxes), Decimal(0))


def work_out(texts: list[str], files: Files) -> tuple[list[str], list[str]]:
    invoice, unknown = read_invoice(texts, files)
    if not invoice.lines:
        return [NO_LINES_TEXT, "total 0.00"], unknown
    return format_invoice(invoice, calculate_totals(invoice)), unknown


def read_invoice(texts: list[str], files: Files) -> tuple[Invoice, list[str]]:
    """Return the invoice of all texts, and which revisions changed nothing."""
    task, *revisions = texts
    table_rows = [row for rows in read_tables(texts[:1], files).values() for row in rows]
    invoice = Invoice(
        tuple(line for row in table_rows if (line := _line_from_row(row)))[:LINES_MAX]
    )
    invoice = _apply_text(invoice, task, is_revision=False)
    unknown: list[str] = []
    for text in revisions:
        revised_invoice = _apply_text(invoice, text, is_revision=True)
        if revised_invoice == invoice and not _is_understood(text):
            unknown.append(text)
        invoice = revised_invoice
    return invoice, unknown


def _is_understood(text: str) -> bool:
    """Return whether the text says something known, even if it was so before."""
    patterns = (_LINE, _NAMED_RATE, _DROPPED_LINE, _DISCOUNT, _RATE, _ROUNDING)
    return any(pattern.search(text) for pattern in patterns)


def _line_from_row(row: Row) -> InvoiceLine | None:
    quantity, price = parse_amount(row.get("quantity", "1")), parse_amount(row.get("price", ""))
    if quantity is None or price is None:
        return None
    rate, discount = parse_amount(row.get("tax", "")), parse_amount(row.get("discount", ""))
    return InvoiceLine(quantity, price, rate, discount or Decimal(0))


def _apply_text(invoice: Invoice, text: str, *, is_revision: bool) -> Invoice:
    """Apply a text to the invoice. Each part is removed once it is understood, so that the
    percentage of a discount or of one line is not taken for the tax.
    """
    lines, rest = _apply_line_changes(invoice.lines, text)
    discount, rest = _take_figure(rest, _DISCOUNT)
    rounding = _ROUNDING.search(rest)
    rate, _ = _take_figure(rest, _RATE)
    if is_revision and rate is not None:  # for the whole, whatever single lines had before
        lines, _ = _apply_line_changes(
            tuple(line._replace(rate=None) for line in invoice.lines), text
        )
    return Invoice(
        lines,
        invoice.rate if rate is None else rate,
        invoice.discount if discount is None else discount,
        invoice.rounding if rounding is None else _rounding_mode(rounding[1]),
    )


def _rounding_mode(word: str) -> Literal["line", "total"]:
    return "line" if word.lower() == "line" else "total"


def _take_figure(text: str, pattern: re.Pattern[str]) -> tuple[Decimal | None, str]:
    """Return the last figure of that kind, and the text without any."""
    values = [next(group for group in match.groups() if group) for match in pattern.finditer(text)]
    return (_parse_decimal(values[-1]) if values else None), pattern.sub(" ", text)


def _apply_line_changes(
    lines: tuple[InvoiceLine, ...], text: str
) -> tuple[tuple[InvoiceLine, ...], str]:
    changed_lines = list(lines)
    for match in _NAMED_RATE.finditer(text):
        _change_line(
            changed_lines,
            int(match[1]),
            lambda line, rate=match[2]: line._replace(rate=_parse_decimal(rate)),
        )
    text = _NAMED_RATE.sub(" ", text)
    line_numbers = {match.end(): int(match[1]) for match in _NAMED_LINE.finditer(text)}
    matches = list(_LINE.finditer(text))
    for match in matches:
        if match.start() in line_numbers:
            new_line = _line_from_match(match)
            _change_line(changed_lines, line_numbers[match.start()], lambda _, line=new_line: line)
    unnamed_lines = [
        _line_from_match(match) for match in matches if match.start() not in line_numbers
    ]
    if unnamed_lines:
        changed_lines = (
            [*changed_lines, *unnamed_lines]
            if _ADD_WORD.search(text) or not lines
            else unnamed_lines
        )
    dropped = {int(match[1]) for match in _DROPPED_LINE.finditer(text)}
    changed_lines = [line for n, line in enumerate(changed_lines, 1) if n not in dropped]
    return tuple(changed_lines[:LINES_MAX]), _LINE.sub(" ", text)


def _change_line(
    lines: list[InvoiceLine], n: int, change: Callable[[InvoiceLine], InvoiceLine]
) -> None:
    if 1 <= n <= len(lines):
        lines[n - 1] = change(lines[n - 1])


def _line_from_match(match: re.Match[str]) -> InvoiceLine:
    quantity, price, rate, discount = match.groups()
    return InvoiceLine(
        _parse_decimal(quantity),
        _parse_decimal(price),
        _parse_decimal(rate) if rate else None,
        _parse_decimal(discount) if discount else Decimal(0),
    )


def _parse_decimal(text: str) -> Decimal:
    return parse_amount(text) or Decimal(0)


def calculate_totals(invoice: Invoice) -> InvoiceTotals:
    discount_factor = 1 - invoice.discount / HUNDRED
    by_rate: dict[Decimal, list[Decimal]] = {}
    for line in invoice.lines:
        rate = invoice.rate if line.rate is None else line.rate
        by_rate.setdefault(rate, []).append(line.net * discount_factor)
    taxes: list[tuple[Decimal, Decimal, Decimal]] = []
    for rate, nets in sorted(by_rate.items(), reverse=True):
        if invoice.rounding == "line":
            rounded_nets = [round_to_cent(net) for net in nets]
            base, tax = (
                sum(rounded_nets),
                sum(round_to_cent(net * rate / HUNDRED) for net in rounded_nets),
            )
        else:
            base = round_to_cent(sum(nets, Decimal(0)))
            tax = round_to_cent(base * rate / HUNDRED)
        taxes.append((rate, Decimal(base), Decimal(tax)))
    net = sum((base for _, base, _ in taxes), Decimal(0))
    undiscounted = sum((line.net for line in invoice.lines), Decimal(0))
    return InvoiceTotals(
        net, tuple(taxes), round_to_cent(undiscounted) - net if invoice.discount else Decimal(0)
    )


def format_invoice(invoice: Invoice, totals: InvoiceTotals) -> list[str]:
    rows = [
        _format_line(line, show_rate=len(totals.taxes) > 1, invoice=invoice)
        for line in invoice.lines
    ]
    if invoice.discount:
        rows.append(f"discount {format_decimal(invoice.discount)}% -{totals.discount}")
    rows.append(f"net {totals.net}")
    for rate, base, tax in totals.taxes:
        base_text = f" (on {base})" if len(totals.taxes) > 1 else ""
        rows.append(f"tax {format_decimal(rate)}% {tax}{base_text}")
    rows += [f"rounded per {invoice.rounding}"] if invoice.rounding == "line" else []
    return [*rows, f"total {totals.total}"]


def _format_line(line: InvoiceLine, *, show_rate: bool, invoice: Invoice) -> str:
    rate = invoice.rate if line.rate is None else line.rate
    discount_text = f" less {format_decimal(line.discount)}%" if line.discount else ""
    rate_text = f" at {format_decimal(rate)}%" if show_rate else ""
    return (
        f"{format_decimal(line.quantity)} x {line.price}{rate_text}{discount_text} = "
        f"{round_to_cent(line.net)}"
    )


def format_decimal(value: Decimal) -> str:
    """Format without trailing zeros."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
