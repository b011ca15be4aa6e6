"""The planner: whom a task, or its revision, concerns.

What was said last counts first. A revision changes the specialist only if it names a subject; "use
7% tax" stays where it was. In the task itself weaker words count too.
"""

import re

from handrail.engine.dispatch import Dispatch
from handrail.kernel.result import Result
from handrail.teams.scripted import hand, words

SUBJECTS: dict[str, str] = {
    "audit": "audit audits audited auditing",
    "closing": "closing close closed reconcile reconciled reconciliation",
    "invoice": "invoice invoices invoiced bill bills billing",
}
WEAKER: dict[str, str] = {
    "audit": "sample finding findings receipts entries",
    "closing": "ledger bank month checklist balance",
    "invoice": "tax total vat price prices discount",
}
_WORD = re.compile(r"[a-z]+")


def planner(dispatch: Dispatch) -> Result:
    """Everything that was said is there, in full; the newest is read first."""
    task = words(dispatch)
    for text in (*(one.text for one in reversed(dispatch.iterations)), task):
        found = _named(text, SUBJECTS)
        if found:
            return hand(found, f"it concerns {found}: {' '.join(text.split())[:80]}")
    found = _named(task, WEAKER)
    if found:
        return hand(found, f"the task reads like {found}")
    return hand("invoice", "nothing names a subject; invoices are the most common")


def _named(text: str, subjects: dict[str, str]) -> str:
    said = set(_WORD.findall(text.lower()))
    return next((name for name, keys in subjects.items() if said & set(keys.split())), "")
