"""Answer links: who they are for, how long they last, and what is stored of them.

A link lets one person answer one approval, and nothing else. Its secret has 256 bits and is stored
as a digest. Rules:

1. People make links for themselves; an admin, who can make any token, makes them for any person.
2. The link fixes the person when it is made; what the person may do is checked when it is used: a
   person whose tokens are all gone may do nothing, and a lower role counts.
3. A link ends with its approval, and after LINK_SECONDS_MAX at the latest.
"""

import hmac
import secrets
from datetime import datetime, timedelta

import msgspec

from handrail.api.operation import API_PREFIX, PersonRole
from handrail.engine.engine import Engine
from handrail.engine.ids import uuid7
from handrail.kernel.definition.model import PERSON_LEVELS
from handrail.kernel.run.state import Person
from handrail.server.access import SECRET_PREFIX, caller_from_credential, digest_secret
from handrail.server.problems import HTTPProblemError
from handrail.store.notifications import AnswerLinkRow
from handrail.store.rows import iso, parse_iso
from handrail.views.approvals import Approval

LINK_SECONDS_MAX = 30 * 86_400.0


def make_link_secret() -> str:
    return SECRET_PREFIX + secrets.token_urlsafe(32)


def make_link_row(
    secret: str,
    approval: Approval,
    person: Person,
    *,
    by: str,
    now: datetime,
    seconds: float = LINK_SECONDS_MAX,
) -> AnswerLinkRow:
    """Return the row of a new link."""
    expires_at = min(approval.deadline, now + timedelta(seconds=min(seconds, LINK_SECONDS_MAX)))
    return AnswerLinkRow(
        id=uuid7().hex,
        digest=digest_secret(secret),
        approval_id=approval.id,
        shown=approval.digest,
        name=person.name,
        role=person.role,
        created_by=by,
        created_at=iso(now),
        expires_at=iso(expires_at),
        used_at=None,
    )


def link_path(secret: str) -> str:
    return f"{API_PREFIX}/answer-links/{secret}"


async def find_valid_link(engine: Engine, secret: str) -> AnswerLinkRow:
    """Return the link of a secret, if it is still valid. Does not check the approval."""
    secret_digest = digest_secret(secret)
    row = await engine.approvals.link(secret_digest)
    if row is None or not hmac.compare_digest(row.digest, secret_digest):
        raise HTTPProblemError(401, "bad_link", "this answer link is unknown", "ask for a new one")
    if row.used_at is not None:
        raise HTTPProblemError(
            410, "link_used", f"this link was used at {row.used_at}", "it answers once"
        )
    if parse_iso(row.expires_at) <= engine.clock():
        raise HTTPProblemError(
            410,
            "link_expired",
            f"this answer link expired at {row.expires_at}",
            "ask for a new one",
        )
    return row


async def current_person(engine: Engine, row: AnswerLinkRow) -> Person:
    """Return the link's person with their current role."""
    role = msgspec.convert(row.role, PersonRole)
    tokens = [token for token in await engine.credentials.list("token") if token.name == row.name]
    callers = [caller_from_credential(token, engine.clock()) for token in tokens]
    levels = [PERSON_LEVELS.get(caller.role, -1) for caller in callers if caller is not None]
    if tokens and not levels:
        raise HTTPProblemError(
            403,
            "not_allowed",
            f"{row.name} has no valid API token any more, so this link cannot be used",
            "ask an admin",
        )
    level = min(PERSON_LEVELS[role], max(levels, default=PERSON_LEVELS[role]))
    if level < 0:
        raise HTTPProblemError(
            403, "not_allowed", f"{row.name} has no role of a person any more", "ask an admin"
        )
    by_level: dict[int, PersonRole] = {0: "viewer", 1: "operator", 2: "ceo", 3: "admin"}
    return Person(name=row.name, role=by_level[level])
