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
from handrail.engine.vocabulary import tell
from handrail.kernel.decision import Value
from handrail.server.access import Caller, same_author
from handrail.server.bodies import Text
from handrail.server.problems import Wrong
from handrail.store.port import Note, iso

log = logging.getLogger("handrail.http")

KEPT_CHARS = 1_000
"""Of each text of a request that is kept as evidence."""


class Signed(Value):
    """Base of bodies: names of authors may be left out, and are the token's if they are there."""

    by: Text = ""
    actor: Text = ""
    filed_by: Text = ""


async def check_author(
    engine: Engine, caller: Caller, said: Signed, run_id: str | None = None
) -> None:
    """403 `forged_author` if the body names somebody else; `run_id` is the run it is about."""
    try:
        same_author(caller, said.by, said.actor, said.filed_by)
    except Wrong as wrong:
        named = {"by": said.by, "actor": said.actor, "filed_by": said.filed_by}
        await keep(engine, caller, "forged_author", wrong.detail, run_id, named)
        raise


async def keep(
    engine: Engine,
    caller: Caller,
    what: Literal["forged_author", "replayed_answer"],
    reason: str,
    run_id: str | None,
    said: dict[str, str],
) -> None:
    """What was tried, by whom: in the log, and as a note of its run."""
    name, role = caller.name, caller.role
    tell(log, what, actor=name, role=role, execution_id=run_id, reason=reason)
    if run_id is not None:
        kept = {name: text[:KEPT_CHARS] for name, text in said.items() if text}
        body = msgspec.json.encode(kept).decode()
        at = iso(engine.clock())
        note = Note(execution_id=run_id, at=at, actor=name, code=what, body=body)
        await engine.keeper.io(engine.store.add_note, note)
