"""Checks the author named in a body against the token, and records refused attempts.

Authors come from the token. A body may name an author too, in any of the API's author fields; it
must be the same. An attempt to act as another person, or to use an answer twice, is refused and
logged, and stored as a note of its run: evidence that changes nothing (K21).
"""

import logging
from typing import Literal

import msgspec

from handrail.api.shared import AuthoredBody
from handrail.engine.engine import Engine
from handrail.engine.log_events import log_event
from handrail.server.access import Caller, check_same_author
from handrail.server.problems import HTTPProblemError
from handrail.store.engine_store import NoteRow, iso

log = logging.getLogger("handrail.http")

EVIDENCE_CHARS_MAX = 1_000
"""Per text of a request."""


async def check_author(
    engine: Engine, caller: Caller, body: AuthoredBody, run_id: str | None = None
) -> None:
    """Raise 403 `forged_author` if the body names another author; `run_id` is its run, if any."""
    try:
        check_same_author(caller, body.by, body.actor, body.filed_by)
    except HTTPProblemError as problem:
        authors = {"by": body.by, "actor": body.actor, "filed_by": body.filed_by}
        await record_refused_attempt(
            engine, caller, "forged_author", problem.detail, run_id, authors
        )
        raise


async def record_refused_attempt(
    engine: Engine,
    caller: Caller,
    code: Literal["forged_author", "replayed_answer"],
    reason: str,
    run_id: str | None,
    fields: dict[str, str],
) -> None:
    """Log a refused attempt, and add it as a note to its run."""
    name, role = caller.name, caller.role
    log_event(log, code, actor=name, role=role, execution_id=run_id, reason=reason)
    if run_id is not None:
        evidence = {name: text[:EVIDENCE_CHARS_MAX] for name, text in fields.items() if text}
        body = msgspec.json.encode(evidence).decode()
        at = iso(engine.clock())
        note = NoteRow(execution_id=run_id, at=at, actor=name, code=code, body=body)
        await engine.runs.add_note(note)
