"""Finance, offline: keywords choose the specialist, small sums are really worked out.

The planner reads the last revision first, then the task; a revision that names no subject stays
with the specialist before. Endings: approved, closed by the person (reject), without review.
"""

import re
from decimal import Decimal

from handrail.engine.dispatch import Dispatch
from handrail.kernel.result import Result
from handrail.teams.scripted import Agent, hand, words

SUBJECTS = {
    "audit": ("audit", "sample", "finding"),
    "closing": ("closing", "close", "month", "checklist"),
    "invoice": ("invoice", "tax", "bill", "total"),
}
CHECKLIST = ("bank statements reconciled", "accruals booked", "ledgers locked")
SAMPLE = ("entry 17: receipt present", "entry 42: receipt missing", "entry 99: receipt present")
_LINE = re.compile(r"(\d+)\s*x\s*(\d+(?:\.\d+)?)")
_TAX = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_CENT = Decimal("0.01")


def staff() -> dict[str, Agent]:
    return {"planner": _planner, "invoice": _invoice, "closing": _closing, "audit": _audit}


def _planner(dispatch: Dispatch) -> Result:
    revisions = [one.text for one in dispatch.iterations]
    for text in (*reversed(revisions), words(dispatch)):
        said = text.lower()
        for specialist, keys in SUBJECTS.items():
            if any(key in said for key in keys):
                return hand(specialist, f"it concerns {specialist}: {text.strip()[:80]}")
    return hand("invoice", "nothing names a subject; invoices are the most common")


def _told(dispatch: Dispatch) -> str:
    """The task and all revisions, the newest first: the last word counts."""
    return " \n".join([*(one.text for one in reversed(dispatch.iterations)), words(dispatch)])


def _invoice(dispatch: Dispatch) -> Result:
    told = _told(dispatch)
    lines = [(int(n), Decimal(price)) for n, price in _LINE.findall(told)]
    rate = Decimal(next(iter(_TAX.findall(told)), "20"))
    net = sum((n * price for n, price in lines), Decimal(0))
    tax = (net * rate / 100).quantize(_CENT)
    rows = [f"{n} x {price} = {(n * price).quantize(_CENT)}" for n, price in lines]
    rows += [f"net {net.quantize(_CENT)}", f"tax {rate}% {tax}", f"total {net + tax}"]
    return _reviewed(dispatch, rows)


def _closing(dispatch: Dispatch) -> Result:
    return _reviewed(dispatch, [f"[x] {item}" for item in CHECKLIST])


def _audit(dispatch: Dispatch) -> Result:
    return _reviewed(dispatch, [*SAMPLE, "1 finding in 3 entries"])


def _reviewed(dispatch: Dispatch, rows: list[str]) -> Result:
    last = dispatch.iterations[-1].text if dispatch.iterations else ""
    noted = [f"revised: {last}"] if last else []
    return hand("review", f"{dispatch.agent} is done", "\n".join([*rows, *noted]))
