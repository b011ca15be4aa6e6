"""The runbook: complete, and found by the way people write."""

from collections import Counter

import pytest

from handrail.teams.helpdesk import SPECIALTIES
from handrail.teams.runbook import (
    RunbookEntry,
    classify,
    find_entries,
    format_entry,
    load_runbook,
    propose_entry,
)

ENTRIES = load_runbook().entries
WRITTEN = {
    "VPN drops every hour": ("network", "NET-01"),
    "I cannot connect to the VPN since this morning": ("network", "NET-02"),
    "Wi-Fi is very slow in meeting room 3": ("network", "NET-03"),
    "DNS does not resolve internal names": ("network", "NET-05"),
    "my mail app crashes": ("application", "APP-01"),
    "Outlook crashes when I open an attachment": ("application", "APP-02"),
    "Excel freezes when saving large files": ("application", "APP-03"),
    "Nothing comes out of the printer on floor 2": ("application", "APP-04"),
    "Teams call has no sound": ("application", "APP-07"),
    "Windows update hangs at 30%": ("application", "APP-09"),
    "Cannot sign in to the payroll app": ("application", "APP-10"),
    "403 forbidden when reading the storage bucket": ("cloud", "CLD-01"),
    "our pods in the kubernetes cluster keep restarting": ("cloud", "CLD-02"),
    "The disk of the VM is full, no space left": ("cloud", "CLD-04"),
    "Database instance reached its connection limit": ("cloud", "CLD-07"),
    "our cloud bill doubled": ("cloud", "CLD-08"),
    "I forgot my password": ("security", "SEC-01"),
    "Account locked after too many attempts": ("security", "SEC-02"),
    "phishing email wants my bank details": ("security", "SEC-04"),
    "Ransomware note on my screen": ("security", "SEC-05"),
    "My laptop was stolen on the train": ("security", "SEC-06"),
    "Two-factor code never arrives": ("security", "SEC-07"),
    "the coffee is cold": ("", None),
    "order a new chair": ("", None),
    "Please book a table for lunch": ("", None),
    "our firewall sings in the night": ("network", None),
}


@pytest.mark.parametrize("title", WRITTEN)
def test_a_ticket_finds_its_specialty_and_its_entry(title: str):
    specialty, wanted = WRITTEN[title]
    assert classify(title).specialty == specialty
    entry = propose_entry(specialty, title, "")
    assert (entry.id if entry is not None else None) == wanted


def test_there_are_enough_entries_and_each_is_complete():
    assert len(ENTRIES) >= 25
    assert len({entry.id for entry in ENTRIES}) == len(ENTRIES)
    assert set(Counter(entry.specialty for entry in ENTRIES)) == set(SPECIALTIES)
    assert min(Counter(entry.specialty for entry in ENTRIES).values()) >= 5
    for entry in ENTRIES:
        assert entry.symptoms, entry.id
        assert entry.checks, entry.id
        assert entry.steps, entry.id
        assert entry.give_up, entry.id


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_every_symptom_leads_to_its_specialty_and_its_entry(entry: RunbookEntry):
    for symptom in entry.symptoms:
        assert classify(symptom).specialty == entry.specialty, symptom
        assert entry in find_entries(symptom), symptom


def test_a_ticket_is_also_known_by_its_description():
    assert classify("Help", "my laptop was stolen").specialty == "security"
    entry = propose_entry("security", "Help", "my laptop was stolen")
    assert entry is not None
    assert entry.id == "SEC-06"


def test_what_was_tried_is_not_proposed_again():
    first = propose_entry("network", "VPN drops", "")
    assert first is not None
    second = propose_entry("network", "VPN drops", "", [first.id])
    assert second != first


def test_a_proposal_names_its_entry_the_checks_the_steps_and_when_to_give_up():
    entry = ENTRIES[0]
    said = format_entry(entry)
    assert said.splitlines()[0] == f"Runbook {entry.id}, {entry.title}."
    for part in (*entry.checks, *entry.steps, entry.give_up):
        assert part in said
