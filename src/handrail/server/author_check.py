"""Who a request says it is from, against who it is from; and what is kept of those that lie.

Authors come from the token. A body may name one all the same, under any of the names that the API
answers with; it has to be the same. Whoever tries to pass for somebody else, or to use an answer a
second time, is refused and told in the log, and it is kept as a note of the run that it was about:
evidence that changes nothing (K21).
"""

import logging
from typing import Literal

import msgspec

from handrail.engine.engine import Engine
from handrail.engine.log_events import log_event
from handrail.kernel.decision import Value
from handrail.server.access import Caller, check_same_author
from handrail.server.problems import HTTPProblemError
from handrail.server.request_body import NulFreeText
from handrail.store.engine_store import NoteRow, iso

log = logging.getLogger("handrail.http")

EVIDENCE_CHARS_MAX = 1_000
"""Of each text of a request that is kept as evidence."""


class AuthoredBody(Value):
    """Base of bodies: names of authors may be left out, and are the token's if they are there."""

    by: NulFreeText = ""
    actor: NulFreeText = ""
    filed_by: NulFreeText = ""


async def check_author(
    engine: Engine, caller: Caller, body: AuthoredBody, run_id: str | None = None
) -> None:
    """403 `forged_author` if the body names somebody else; `run_id` is the run it is about."""
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
    """What was tried, by whom: in the log, and as a note of its run."""
    name, role = caller.name, caller.role
    log_event(log, code, actor=name, role=role, execution_id=run_id, reason=reason)
    if run_id is not None:
        evidence = {name: text[:EVIDENCE_CHARS_MAX] for name, text in fields.items() if text}
        body = msgspec.json.encode(evidence).decode()
        at = iso(engine.clock())
        note = NoteRow(execution_id=run_id, at=at, actor=name, code=code, body=body)
        await engine.committer.call_store(engine.store.add_note, note)
