"""The verification of the record as it is shown."""

from handrail.views.audit import Finding, Verification


def test_a_record_without_findings_is_unaltered():
    clean = Verification(head="", at="", commits=0, entries=0, runs=0, archived=0)
    assert clean.unaltered


def test_a_record_with_a_finding_is_altered():
    finding = Finding(code="hash", message="a hash does not follow")
    altered = Verification(
        head="", at="", commits=1, entries=1, runs=0, archived=0, findings=(finding,)
    )
    assert not altered.unaltered
