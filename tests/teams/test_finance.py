"""What finance's specialists work out by rules: to the cent, from words and from tables."""

import json
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.teams.finance import audit, closing, invoice
from handrail.teams.finance.tables import parse_amount, parse_date, read_table

LEDGER = """reference,date,amount
R1,2026-05-02,100.00
R2,2026-05-03,50
R3,2026-05-09,20.00
"""
BANK = """ref;date;amount
R1;02.05.2026;100,00
R2;03.05.2026;45,00
R9;04.05.2026;7,00
"""
ENTRIES = """entry,date,amount,receipt,vendor
1,2026-05-02,100.00,yes,Acme
2,2026-05-04,12345.67,,Acme
3,2026-05-05,19.99,yes,Bob
4,2026-05-05,19.99,yes,Bob
5,2026-05-06,7.10,yes,Eve
"""


def billed(*said: str, **files: str) -> list[str]:
    return invoice.work_out(list(said), files)[0]


def closed(*said: str, files: dict[str, str] | None = None) -> list[str]:
    both = {"ledger-may.csv": LEDGER, "bank.csv": BANK}
    return closing.work_out(list(said), both if files is None else files)[0]


def audited(*said: str, table: str = ENTRIES) -> list[str]:
    return audit.work_out(list(said), {"entries.csv": table})[0]


# Invoices


def test_lines_tax_and_sum_are_worked_out_from_words():
    assert billed("Invoice for 3 x 19.99 and 2 x 5.00, tax 20%") == [
        "3 x 19.99 = 59.97",
        "2 x 5.00 = 10.00",
        "net 69.97",
        "tax 20% 13.99",
        "total 83.96",
    ]


def test_rates_and_discounts_stand_apart():
    told = billed("2 x 10.00 at 7%, 1 x 100 less 10%, tax 19%, 5% discount")
    assert told == [
        "2 x 10.00 at 7% = 20.00",
        "1 x 100 at 19% less 10% = 90.00",
        "discount 5% -5.50",
        "net 104.50",
        "tax 19% 16.25 (on 85.50)",
        "tax 7% 1.33 (on 19.00)",
        "total 122.08",
    ]


def test_rounding_per_line_and_per_total_differ_as_stated():
    said = "3 x 0.33 and 3 x 0.33 and 3 x 0.33, tax 7%"
    assert billed(said)[-2:] == ["tax 7% 0.21", "total 3.18"]
    by_line = billed(f"{said}, rounded per line")
    assert by_line[-3:] == ["tax 7% 0.21", "rounded per line", "total 3.18"]
    said = "1 x 0.05 and 1 x 0.05 and 1 x 0.05, tax 10%"
    assert billed(said)[-1] == "total 0.17"
    assert billed(f"{said}, round per line")[-1] == "total 0.18"
    assert billed(f"{said}, round per line", "rounding by the total")[-1] == "total 0.17"


@pytest.mark.requirement("R2.3")
@pytest.mark.parametrize(
    ("revisions", "last"),
    [
        (["use 7% tax"], ["net 25.00", "tax 7% 1.75", "total 26.75"]),
        (["use 7% tax", "no, 19 % VAT"], ["net 25.00", "tax 19% 4.75", "total 29.75"]),
        (["add 1 x 3.00"], ["net 28.00", "tax 20% 5.60", "total 33.60"]),
        (["it should be 4 x 10"], ["net 40.00", "tax 20% 8.00", "total 48.00"]),
        (["line 2 is 2 x 5.00"], ["net 30.00", "tax 20% 6.00", "total 36.00"]),
        (["without line 2"], ["net 20.00", "tax 20% 4.00", "total 24.00"]),
        (["10% discount"], ["net 22.50", "tax 20% 4.50", "total 27.00"]),
        (["discount of 10%", "0% discount"], ["net 25.00", "tax 20% 5.00", "total 30.00"]),
    ],
)
def test_a_revisions_numbers_are_really_applied(revisions: list[str], last: list[str]):
    assert billed("2 x 10.00 and 1 x 5.00", *revisions)[-3:] == last


def test_one_line_may_have_another_rate_until_all_have_one():
    said = ["2 x 10.00 and 1 x 5.00", "line 2 at 7%"]
    assert billed(*said)[-3:] == ["tax 20% 4.00 (on 20.00)", "tax 7% 0.35 (on 5.00)", "total 29.35"]
    assert billed(*said, "use 10% tax")[-2:] == ["tax 10% 2.50", "total 27.50"]


def test_what_the_rules_do_not_know_is_named():
    _, unknown = invoice.work_out(["2 x 10", "make it look nicer", "use 7% tax"], {})
    assert unknown == ["make it look nicer"]


def test_an_invoice_without_lines_says_what_is_missing():
    assert billed("an invoice") == [invoice.NO_LINES_TEXT, "total 0.00"]


@pytest.mark.parametrize("name", ["lines.csv", "lines.json"])
def test_lines_come_from_a_table_too(name: str):
    rows = [
        {"qty": 2, "unit_price": "1,200.50", "tax": "7%"},
        {"qty": 1, "unit_price": 9.99, "tax": None},
    ]
    text = json.dumps({"lines": rows})
    if name.endswith(".csv"):
        text = 'qty;unit price;tax\n2;"1,200.50";7%\n1;9.99;\n'
    told, _ = invoice.work_out(["Invoice, tax 19%"], {name: text})
    assert told[-4:] == [
        "net 2410.99",
        "tax 19% 1.90 (on 9.99)",
        "tax 7% 168.07 (on 2401.00)",
        "total 2580.96",
    ]


cents = st.integers(0, 10**9)
lines = st.lists(
    st.tuples(st.integers(0, 1000), cents, st.sampled_from([0, 7, 19, 20])), min_size=1, max_size=20
)


@given(lines, st.integers(0, 100), st.sampled_from(["line", "total"]))
def test_the_sums_are_those_of_exact_fractions(found: list, discount: int, rounding: str):
    def cent(value: Fraction) -> Fraction:
        return Fraction((value * 100 * 2 + 1).__floor__() // 2, 100)  # half a cent goes up

    nets = [
        (rate, Fraction(n) * Fraction(price, 100) * Fraction(100 - discount, 100))
        for n, price, rate in found
    ]
    expected = Fraction(0)
    for rate in {rate for rate, _ in nets}:
        own = [net for one, net in nets if one == rate]
        bases = [cent(net) for net in own] if rounding == "line" else [cent(sum(own, Fraction(0)))]
        expected += sum(base + cent(base * rate / 100) for base in bases)
    made = invoice.Invoice(
        tuple(invoice.InvoiceLine(Decimal(n), Decimal(p) / 100, Decimal(r)) for n, p, r in found),
        Decimal(20),
        Decimal(discount),
        rounding,  # pyright: ignore[reportArgumentType]
    )
    assert Fraction(invoice.calculate_totals(made).total) == expected


# Closings


def test_a_closing_lists_every_difference():
    told = closed("Close May 2026")
    assert told == [
        "[x] ledger: 3 lines, sum 170.00",
        "[x] bank: 3 lines, sum 152.00",
        "[x] every amount can be read",
        "[x] all dates are in 2026-05",
        "[x] no reference stands twice",
        "[ ] ledger and bank agree: 3 differences",
        "    R2: ledger 50.00, bank 45.00, difference 5.00",
        "    R3: ledger 20.00, not in the bank",
        "    R9: bank 7.00, not in the ledger",
        "ledger 170.00, bank 152.00, difference 18.00",
        "ready to close: no",
    ]


@pytest.mark.requirement("R2.3")
def test_what_a_revision_accepts_is_a_difference_no_more():
    told = closed("Close May 2026", "accept R3 and R9", "ignore differences up to 5.00")
    assert "[x] ledger and bank agree: 0 differences" in told
    assert "    accepted: R3, R9" in told
    assert told[-1] == "ready to close: yes"


def test_a_closing_without_tables_says_what_is_missing():
    told = closed("closing of May", files={})
    assert told[0].startswith("[ ] ledger is missing: attach a table named ledger")
    assert told[-1] == "ready to close: no"


def test_balances_dates_doubles_and_unreadable_lines_are_checked():
    ledger = LEDGER + "R1,2026-06-01,1.00\nR4,,lots\n"
    files = {"ledger.csv": ledger, "bank.csv": BANK}
    told = closed("Close 2026-05, opening balance 10.00, closing balance 100.00", files=files)
    assert "[ ] 1 line cannot be read: ledger 5" in told
    assert "[ ] 2 lines outside of 2026-05: R1, R4" in told
    assert "[ ] stands more than once: ledger R1" in told
    assert "[ ] balance: 10.00 and 152.00 come to 162.00, not to 100.00" in told


def test_one_table_in_the_text_may_hold_both_sides():
    text = "Close it\nsource,reference,amount\nledger,R1,10.00\nbank,R1,10.00\n"
    assert closed(text, files={})[-1] == "ready to close: yes"


# Audits


def test_an_audit_finds_what_is_wrong():
    assert audited("audit") == [
        "entry 1: 100.00 is a round amount",
        "entry 1: posted on a Saturday",
        "entry 2: receipt missing",
        "entry 2: 12345.67 is above the limit of 10000.00",
        "entry 3: same vendor, date and amount as 1 other",
        "entry 4: same vendor, date and amount as 1 other",
        "6 findings in 5 entries",
    ]


@pytest.mark.requirement("R2.3")
def test_limits_and_exceptions_of_a_revision_are_applied():
    told = audited("audit", "limit 20,000 and ignore weekends and duplicates", "accept 2")
    assert told == [
        "entry 1: 100.00 is a round amount",
        "accepted: 2",
        "not looked for: duplicate, weekend",
        "1 finding in 5 entries",
    ]


def test_a_sample_is_drawn_evenly_and_the_same_every_time():
    rows = "\n".join(f"{n},2026-05-05,{n}.01,yes,v{n}" for n in range(1, 101))
    table = f"entry,date,amount,receipt,vendor\n{rows}\n"
    entries = [audit.AuditEntry(str(n), None, Decimal(n), "yes", "") for n in range(100)]
    assert [one.reference for one in audit.draw_sample(entries, 4)] == ["0", "25", "50", "75"]
    assert audited("audit, sample 10", table=table) == ["0 findings in 10 of 100 entries"]
    assert audited("audit, sample 10", "sample 500", table=table) == ["0 findings in 100 entries"]


def test_an_audit_without_entries_says_what_is_missing():
    assert audit.work_out(["audit"], {})[0] == [audit.NO_ENTRIES_TEXT, "0 findings in 0 entries"]


# Reading


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234.50", "1234.50"),
        ("1.234,50", "1234.50"),
        ("1,234", "1234"),
        ("12,5", "12.5"),
        ("1.234.567", "1234567"),
        ("-12", "-12"),
        ("€ 7.00", "7.00"),
        ("7%", "7"),
        ("", None),
        ("lots", None),
        ("9" * 40, None),
    ],
)
def test_amounts_are_read_as_people_write_them(text: str, value: str | None):
    assert parse_amount(text) == (Decimal(value) if value is not None else None)


def test_dates_are_read_in_two_forms():
    assert parse_date("2026-05-02") == parse_date("2.5.2026")
    assert parse_date("yesterday") is None
    assert parse_date("31.02.2026") is None


@given(st.text(max_size=300), st.sampled_from(["a.csv", "a.json", "bank", "ledger.csv"]))
def test_no_file_and_no_text_breaks_a_specialist(text: str, name: str):
    read_table(name, text)
    for work_out in (invoice.work_out, closing.work_out, audit.work_out):
        rows, _ = work_out([text, f"reference,amount,price\n{text}"], {name: text})
        assert rows


def test_half_a_cent_goes_up():
    assert Decimal("0.005").quantize(Decimal("0.01"), ROUND_HALF_UP) == Decimal("0.01")
    assert billed("1 x 0.50, tax 1%")[-2:] == ["tax 1% 0.01", "total 0.51"]
