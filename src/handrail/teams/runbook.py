"""The runbook: what the helpdesk knows without a model, as data (`runbook.yaml`).

A ticket belongs to the specialty whose words it has most of, each with its weight; an entry that
fits it speaks for its own specialty. An entry fits if the ticket has most words of one of its
symptoms. Whatever fits nothing is for a person.
"""

from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from handrail.engine.documents import load
from handrail.engine.likeness import covered, signature, words
from handrail.kernel.decision import Value, learn

FILE = Path(__file__).parent / "runbook.yaml"
FITS = 0.7
"""So much of a symptom, by weight, a ticket has to have."""
SPEAKS = 4
"""What an entry that fits says for its specialty, as a word of the vocabulary would."""
LEAST = 2
"""With less than this no specialty is named."""


class Entry(Value):
    """What to do about a usual ticket."""

    id: str
    specialty: str
    title: str
    symptoms: tuple[str, ...]
    checks: tuple[str, ...]
    steps: tuple[str, ...]
    give_up: str

    @property
    def named(self) -> str:
        return f"runbook {self.id}, {self.title}"


class Runbook(Value):
    vocabulary: dict[str, dict[str, int]]
    entries: tuple[Entry, ...]


learn(Runbook)


class Named(NamedTuple):
    """A specialty, and the words that speak for it; "" if none does."""

    specialty: str
    because: tuple[str, ...]


@cache
def runbook() -> Runbook:
    document, problems = load(FILE)
    assert not problems, problems
    return msgspec.convert(document, Runbook)


@cache
def _plain_vocabulary() -> dict[str, dict[str, tuple[str, int]]]:
    """By the plain forms of words, with the words as they are written."""
    return {
        specialty: {plain: (word, weight) for word, weight in said.items() for plain in words(word)}
        for specialty, said in runbook().vocabulary.items()
    }


@cache
def _signed() -> dict[str, tuple[str, ...]]:
    """The symptoms of each entry."""
    return {entry.id: tuple(map(signature, entry.symptoms)) for entry in runbook().entries}


def classify(title: str, text: str = "") -> Named:
    """What a ticket is about. A word of the title counts twice."""
    first, others = words(title), words(text)
    said = dict.fromkeys(others, 1) | dict.fromkeys(first, 2)
    fitting = {entry.specialty for entry in fit(title, text)}
    points: dict[str, int] = {}
    for specialty, known in _plain_vocabulary().items():
        heard = sum(weight * said[plain] for plain, (_, weight) in known.items() if plain in said)
        points[specialty] = heard + (SPEAKS if specialty in fitting else 0)
    best = max(points, key=lambda name: points[name])
    if points[best] < LEAST:
        return Named("", ())
    known = _plain_vocabulary()[best]
    return Named(best, tuple(known[plain][0] for plain in said if plain in known))


def fit(title: str, text: str = "") -> list[Entry]:
    """The entries that fit, the best first; of two as good as each other the first written."""
    ticket = signature(title, text)
    weighed = [(_best(ticket, _signed()[entry.id]), entry) for entry in runbook().entries]
    found = [one for one in weighed if one[0][0] >= FITS]
    return [entry for _, entry in sorted(found, key=lambda one: one[0], reverse=True)]


def _best(ticket: str, symptoms: Iterable[str]) -> tuple[float, int]:
    """How much of a symptom the ticket has, and how much that symptom says."""
    return max((covered(symptom, ticket), len(symptom.split())) for symptom in symptoms)


def proposed(specialty: str, title: str, text: str, tried: Collection[str] = ()) -> Entry | None:
    """What the specialty proposes, that was not tried before."""
    mine = (entry for entry in fit(title, text) if entry.specialty == specialty)
    return next((entry for entry in mine if entry.id not in tried), None)


def told(entry: Entry) -> str:
    """The proposal, with the entry that it comes from."""
    checks = "\n".join(f"- {check}" for check in entry.checks)
    steps = "\n".join(f"{number}. {step}" for number, step in enumerate(entry.steps, 1))
    named = entry.named[0].upper() + entry.named[1:]
    return f"{named}.\nCheck first:\n{checks}\nThen:\n{steps}\n{entry.give_up}"
