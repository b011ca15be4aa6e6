"""Notes that keep refused results: as evidence, for the people who look at the run."""

import hashlib
from datetime import datetime

from handrail.engine.commit.projection import encode
from handrail.kernel.run.commands import Report
from handrail.store.rows import NoteRow, iso

NOTE_BYTES_MAX = 50_000
"""Bytes of a refused result that a note keeps; of a larger one, its beginning and its digest."""


def refused_note(run_id: str, report: Report, code: str, at: datetime) -> NoteRow:
    """Return the note of a refused report, cut to its size: its sender may send any amount."""
    body = encode(report)
    if len(body) > NOTE_BYTES_MAX:
        beginning = body[:NOTE_BYTES_MAX].decode(errors="ignore")
        digest = hashlib.sha256(body).hexdigest()
        body = encode({"bytes": len(body), "sha256": digest, "begins": beginning})
    return NoteRow(
        execution_id=run_id, at=iso(at), actor=report.agent, code=code, body=body.decode()
    )
