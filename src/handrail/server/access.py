"""Who makes a request, and whether they may: the caller, and the checks of handlers.

`handrail.api` declares who may make which call. What a call is limited to for some callers, its
handler checks against the object, with the functions below.

Authors come from the token. A body may name an author too, in any of the API's author fields; it
must be the same. An attempt to act as another person, or to use an answer twice, is refused and
logged, and stored as a note of its run: evidence that changes nothing (K21).
"""

import logging
from typing import Literal

import msgspec

from handrail.api.access import Access, PersonRole, Role
from handrail.api.shared import AuthoredBody
from handrail.engine.engine import Engine
from handrail.engine.log_events import log_event
from handrail.kernel.decision import Value
from handrail.kernel.definition.model import PERSON_LEVELS
from handrail.kernel.run.state import Person
from handrail.server.problems import HTTPProblemError
from handrail.store.rows import NoteRow, iso

log = logging.getLogger("handrail.http")

EVIDENCE_CHARS_MAX = 1_000
"""Per text of a request."""


class Caller(Value):
    """The author of a request, according to its token or session; never to its body."""

    name: str
    """The person's name, or the agent's id."""
    role: Role
    works_as: tuple[str, ...] | None = None
    """The roles that an agent may register; None: any."""
    credential: str = ""
    in_browser: bool = False

    @property
    def person(self) -> Person:
        assert self.role not in ("agent", "reporter"), "no person"
        return Person(name=self.name, role=self.role)

    def is_at_least(self, role: PersonRole) -> bool:
        return PERSON_LEVELS.get(self.role, -1) >= PERSON_LEVELS[role]


def may_call(access: Access, caller: Caller) -> bool:
    if caller.role == "agent":
        return access.agents
    if caller.role == "reporter":
        return access.reporters
    return access.people is not None and caller.is_at_least(access.people)


def describe_required_role(access: Access) -> str:
    """Return who may make the call, as text."""
    roles = [f"the role {access.people}"] if access.people is not None else []
    roles += ["an agent's token"] if access.agents else []
    roles += ["a reporter's token"] if access.reporters else []
    return " or ".join(roles) or "nobody"


def check_own_agent(caller: Caller, agent_id: str) -> None:
    """Check that an agent acts for itself; people are not limited by this."""
    if caller.role == "agent" and caller.name != agent_id:
        message = (
            f"the token of agent '{caller.name}' cannot act for '{agent_id}'; use its own token"
        )
        raise HTTPProblemError(403, "foreign_agent", message)


def check_same_author(caller: Caller, *names: str | None) -> None:
    """Check that the authors named in a body, if any, are the token's owner."""
    for name in names:
        if name and name != caller.name:
            message = f"the request says it is by '{name}', its token is of '{caller.name}'"
            raise HTTPProblemError(403, "forged_author", f"{message}; leave the name out")


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
