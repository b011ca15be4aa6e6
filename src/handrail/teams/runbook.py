"""The runbook: the helpdesk's knowledge without a model, as data (`runbook.yaml`).

A ticket belongs to the specialty whose words it has most of, each with its weight; an entry that
fits it counts for its own specialty. An entry fits if the ticket has most words of one of its
symptoms. A ticket that fits nothing is for a person.
"""

from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from handrail.engine.document_parser import load_document
from handrail.engine.services.similarity import coverage, signature, words
from handrail.kernel.decision import Value, prepare_types

RUNBOOK_FILE = Path(__file__).parent / "runbook.yaml"
SYMPTOM_SHARE_MIN = 0.7
"""The share of a symptom, by weight, that a ticket must have."""
ENTRY_WEIGHT = 4
"""The weight of a fitting entry for its specialty, like that of a word of the vocabulary."""
SPECIALTY_WEIGHT_MIN = 2
"""With less than this no specialty is named."""


class RunbookEntry(Value):
    """What to do about a usual ticket."""

    id: str
    specialty: str
    title: str
    symptoms: tuple[str, ...]
    checks: tuple[str, ...]
    steps: tuple[str, ...]
    give_up: str

    @property
    def label(self) -> str:
        return f"runbook {self.id}, {self.title}"


class Runbook(Value):
    vocabulary: dict[str, dict[str, int]]
    entries: tuple[RunbookEntry, ...]


prepare_types(Runbook)


class Classification(NamedTuple):
    """A specialty, and the words that count for it; "" if none does."""

    specialty: str
    matched_words: tuple[str, ...]


@cache
def load_runbook() -> Runbook:
    document, problems = load_document(RUNBOOK_FILE)
    assert not problems, problems
    return msgspec.convert(document, Runbook)


@cache
def _normalized_vocabulary() -> dict[str, dict[str, tuple[str, int]]]:
    """Return the vocabulary by normalized words, with the words as they are written."""
    return {
        specialty: {
            normalized: (word, weight)
            for word, weight in weights.items()
            for normalized in words(word)
        }
        for specialty, weights in load_runbook().vocabulary.items()
    }


@cache
def _symptom_signatures() -> dict[str, tuple[str, ...]]:
    """Return the symptoms of each entry."""
    return {entry.id: tuple(map(signature, entry.symptoms)) for entry in load_runbook().entries}


def classify(title: str, text: str = "") -> Classification:
    """Classify a ticket. A word of the title counts twice."""
    title_words, text_words = words(title), words(text)
    word_weights = dict.fromkeys(text_words, 1) | dict.fromkeys(title_words, 2)
    matching_specialties = {entry.specialty for entry in find_entries(title, text)}
    points: dict[str, int] = {}
    for specialty, vocabulary in _normalized_vocabulary().items():
        word_points = sum(
            weight * word_weights[normalized]
            for normalized, (_, weight) in vocabulary.items()
            if normalized in word_weights
        )
        points[specialty] = word_points + (ENTRY_WEIGHT if specialty in matching_specialties else 0)
    best = max(points, key=lambda name: points[name])
    if points[best] < SPECIALTY_WEIGHT_MIN:
        return Classification("", ())
    vocabulary = _normalized_vocabulary()[best]
    return Classification(
        best,
        tuple(vocabulary[normalized][0] for normalized in word_weights if normalized in vocabulary),
    )


def find_entries(title: str, text: str = "") -> list[RunbookEntry]:
    """Return the entries that fit, the best first; of equals the first written."""
    ticket = signature(title, text)
    scored_entries = [
        (_best_coverage(ticket, _symptom_signatures()[entry.id]), entry)
        for entry in load_runbook().entries
    ]
    matches = [match for match in scored_entries if match[0][0] >= SYMPTOM_SHARE_MIN]
    return [entry for _, entry in sorted(matches, key=lambda match: match[0], reverse=True)]


def _best_coverage(ticket: str, symptoms: Iterable[str]) -> tuple[float, int]:
    """Return how much of a symptom the ticket has, and how much weight that symptom has."""
    return max((coverage(symptom, ticket), len(symptom.split())) for symptom in symptoms)


def propose_entry(
    specialty: str, title: str, text: str, tried: Collection[str] = ()
) -> RunbookEntry | None:
    """Return the specialty's proposal that was not tried before."""
    candidates = (entry for entry in find_entries(title, text) if entry.specialty == specialty)
    return next((entry for entry in candidates if entry.id not in tried), None)


def format_entry(entry: RunbookEntry) -> str:
    """Format the proposal, with the entry that it comes from."""
    checks = "\n".join(f"- {check}" for check in entry.checks)
    steps = "\n".join(f"{number}. {step}" for number, step in enumerate(entry.steps, 1))
    heading = entry.label[0].upper() + entry.label[1:]
    return f"{heading}.\nCheck first:\n{checks}\nThen:\n{steps}\n{entry.give_up}"
