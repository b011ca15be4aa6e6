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

from handrail.teams.finance.tables import Files, Row, amount, rounded, tables

TAX = Decimal(20)
"""If nobody says how much."""
LINES_MAX = 1_000
HUNDRED = Decimal(100)
NONE = "no lines were found; write them as '3 x 19.99', or attach a table of quantity and price"
_NUMBER = r"\d(?:[\d.,']{0,15}\d)?"
_LINE = re.compile(
    rf"({_NUMBER})\s*[x×*]\s*({_NUMBER})(?:\s*(?:at|@)\s*({_NUMBER})\s*%)?(?:\s*less\s*({_NUMBER})\s*%)?"
)
_NAMED_RATE = re.compile(rf"\bline\s*(\d{{1,4}})\s*(?:at|with|has|gets)\s*({_NUMBER})\s*%", re.I)
_NAMED_LINE = re.compile(rf"\bline\s*(\d{{1,4}})\s*(?:is|as|=|:|to)\s*(?={_NUMBER}\s*[x×*])", re.I)
_DROPPED = re.compile(r"\b(?:without|remove|drop|delete)\s+line\s*(\d{1,4})", re.I)
_DISCOUNT = re.compile(
    rf"(?:discount(?:\s+of)?\s*({_NUMBER})\s*%)|(?:({_NUMBER})\s*%\s*(?:discount|rebate|off))", re.I
)
_RATE = re.compile(rf"({_NUMBER})\s*%")
_ADDS = re.compile(r"\b(?:add|also|plus)\b", re.I)
_ROUNDING = re.compile(
    r"\bround(?:ed|ing)?\b[^.\n]*?\b(?:per|by|each|on|the)\s+(line|total)\b", re.I
)


class Line(NamedTuple):
    quantity: Decimal
    price: Decimal
    rate: Decimal | None = None
    discount: Decimal = Decimal(0)

    @property
    def net(self) -> Decimal:
        return self.quantity * self.price * (1 - self.discount / HUNDRED)


class Invoice(NamedTuple):
    lines: tuple[Line, ...] = ()
    rate: Decimal = TAX
    discount: Decimal = Decimal(0)
    rounding: Literal["line", "total"] = "total"


class Sums(NamedTuple):
    """Net and tax by rate, in the order of the rates."""

    net: Decimal
    taxes: tuple[tuple[Decimal, Decimal, Decimal], ...]
    """(rate, on how much, how much)"""
    discount: Decimal

    @property
    def total(self) -> Decimal:
        return self.net + sum((tax for _, _, tax in self.taxes), Decimal(0))


def work_out(said: list[str], files: Files) -> tuple[list[str], list[str]]:
    found, unknown = read(said, files)
    if not found.lines:
        return [NONE, "total 0.00"], unknown
    return shown(found, sums(found)), unknown


def read(said: list[str], files: Files) -> tuple[Invoice, list[str]]:
    """The invoice that all of it comes to, and which revisions changed nothing."""
    task, *revisions = said
    listed = [row for rows in tables(said[:1], files).values() for row in rows]
    found = Invoice(tuple(line for row in listed if (line := _from_row(row)))[:LINES_MAX])
    found = _told(found, task, again=False)
    unknown: list[str] = []
    for text in revisions:
        again = _told(found, text, again=True)
        if again == found and not _speaks(text):
            unknown.append(text)
        found = again
    return found, unknown


def _speaks(text: str) -> bool:
    """Whether it says something known, even if it was so before."""
    parts = (_LINE, _NAMED_RATE, _DROPPED, _DISCOUNT, _RATE, _ROUNDING)
    return any(part.search(text) for part in parts)


def _from_row(row: Row) -> Line | None:
    quantity, price = amount(row.get("quantity", "1")), amount(row.get("price", ""))
    if quantity is None or price is None:
        return None
    rate, discount = amount(row.get("tax", "")), amount(row.get("discount", ""))
    return Line(quantity, price, rate, discount or Decimal(0))


def _told(before: Invoice, text: str, *, again: bool) -> Invoice:
    """What a text changes. Each part is taken out once it is understood, so that the percentage of
    a discount or of one line is not taken for the tax."""
    lines, rest = _changed(before.lines, text)
    discount, rest = _part(rest, _DISCOUNT)
    rounding = _ROUNDING.search(rest)
    rate, _ = _part(rest, _RATE)
    if again and rate is not None:  # for the whole, whatever single lines had before
        lines, _ = _changed(tuple(line._replace(rate=None) for line in before.lines), text)
    return Invoice(
        lines,
        before.rate if rate is None else rate,
        before.discount if discount is None else discount,
        before.rounding if rounding is None else _rounding(rounding[1]),
    )


def _rounding(word: str) -> Literal["line", "total"]:
    return "line" if word.lower() == "line" else "total"


def _part(text: str, pattern: re.Pattern[str]) -> tuple[Decimal | None, str]:
    """The last figure of that kind, and the text without any."""
    values = [next(one for one in match.groups() if one) for match in pattern.finditer(text)]
    return (_decimal(values[-1]) if values else None), pattern.sub(" ", text)


def _changed(lines: tuple[Line, ...], text: str) -> tuple[tuple[Line, ...], str]:
    now = list(lines)
    for match in _NAMED_RATE.finditer(text):
        _set(now, int(match[1]), lambda line, rate=match[2]: line._replace(rate=_decimal(rate)))
    text = _NAMED_RATE.sub(" ", text)
    named = {match.end(): int(match[1]) for match in _NAMED_LINE.finditer(text)}
    said = list(_LINE.finditer(text))
    for match in said:
        if match.start() in named:
            said_line = _line(match)
            _set(now, named[match.start()], lambda _, line=said_line: line)
    others = [_line(match) for match in said if match.start() not in named]
    if others:
        now = [*now, *others] if _ADDS.search(text) or not lines else others
    dropped = {int(match[1]) for match in _DROPPED.finditer(text)}
    now = [line for n, line in enumerate(now, 1) if n not in dropped]
    return tuple(now[:LINES_MAX]), _LINE.sub(" ", text)


def _set(lines: list[Line], n: int, change: Callable[[Line], Line]) -> None:
    if 1 <= n <= len(lines):
        lines[n - 1] = change(lines[n - 1])


def _line(match: re.Match[str]) -> Line:
    quantity, price, rate, discount = match.groups()
    return Line(
        _decimal(quantity),
        _decimal(price),
        _decimal(rate) if rate else None,
        _decimal(discount) if discount else Decimal(0),
    )


def _decimal(text: str) -> Decimal:
    return amount(text) or Decimal(0)


def sums(invoice: Invoice) -> Sums:
    left = 1 - invoice.discount / HUNDRED
    by_rate: dict[Decimal, list[Decimal]] = {}
    for line in invoice.lines:
        rate = invoice.rate if line.rate is None else line.rate
        by_rate.setdefault(rate, []).append(line.net * left)
    taxes: list[tuple[Decimal, Decimal, Decimal]] = []
    for rate, nets in sorted(by_rate.items(), reverse=True):
        if invoice.rounding == "line":
            whole = [rounded(net) for net in nets]
            base, tax = sum(whole), sum(rounded(net * rate / HUNDRED) for net in whole)
        else:
            base = rounded(sum(nets, Decimal(0)))
            tax = rounded(base * rate / HUNDRED)
        taxes.append((rate, Decimal(base), Decimal(tax)))
    net = sum((base for _, base, _ in taxes), Decimal(0))
    before = sum((line.net for line in invoice.lines), Decimal(0))
    return Sums(net, tuple(taxes), rounded(before) - net if invoice.discount else Decimal(0))


def shown(invoice: Invoice, found: Sums) -> list[str]:
    rows = [_row(line, several=len(found.taxes) > 1, of=invoice) for line in invoice.lines]
    if invoice.discount:
        rows.append(f"discount {plain(invoice.discount)}% -{found.discount}")
    rows.append(f"net {found.net}")
    for rate, base, tax in found.taxes:
        on = f" (on {base})" if len(found.taxes) > 1 else ""
        rows.append(f"tax {plain(rate)}% {tax}{on}")
    rows += [f"rounded per {invoice.rounding}"] if invoice.rounding == "line" else []
    return [*rows, f"total {found.total}"]


def _row(line: Line, *, several: bool, of: Invoice) -> str:
    rate = of.rate if line.rate is None else line.rate
    less = f" less {plain(line.discount)}%" if line.discount else ""
    at = f" at {plain(rate)}%" if several else ""
    return f"{plain(line.quantity)} x {line.price}{at}{less} = {rounded(line.net)}"


def plain(value: Decimal) -> str:
    """Without zeros behind the point."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
