"""The planner: chooses the specialist for a task, or its revision.

The last text counts first. A revision changes the specialist only if it names a subject; "use 7%
tax" stays where it was. In the task itself weaker words count too.
"""

import re

from handrail.engine.dispatch.dispatch import Dispatch
from handrail.kernel.result import Result
from handrail.teams.scripted import bead_text, hand_off

SUBJECTS: dict[str, str] = {
    "audit": "audit audits audited auditing",
    "closing": "closing close closed reconcile reconciled reconciliation",
    "invoice": "invoice invoices invoiced bill bills billing",
}
WEAK_SUBJECTS: dict[str, str] = {
    "audit": "sample finding findings receipts entries",
    "closing": "ledger bank month checklist balance",
    "invoice": "tax total vat price prices discount",
}
_WORD = re.compile(r"[a-z]+")


def planner(dispatch: Dispatch) -> Result:
    """Choose the specialist: all texts are there, in full, and the newest is read first."""
    task = bead_text(dispatch)
    for text in (*(iteration.text for iteration in reversed(dispatch.iterations)), task):
        subject = _find_subject(text, SUBJECTS)
        if subject:
            return hand_off(subject, f"it concerns {subject}: {' '.join(text.split())[:80]}")
    subject = _find_subject(task, WEAK_SUBJECTS)
    if subject:
        return hand_off(subject, f"the task reads like {subject}")
    return hand_off("invoice", "nothing names a subject; invoices are the most common")


def _find_subject(text: str, subjects: dict[str, str]) -> str:
    text_words = set(_WORD.findall(text.lower()))
    return next((name for name, keys in subjects.items() if text_words & set(keys.split())), "")
