"""Answer links: who they are for, how long they last, and what is kept of them.

A link is one person's answer to one question, and nothing else can be done with it. Its secret has
256 bits and is kept as a digest. Rules:

1. People make links for themselves; an admin, who can make anybody's token, makes them for anybody.
2. Who the person is was said when the link was made; what the person may do is asked when it is
   used: whoever had tokens and has none left is nobody, and a lower role counts.
3. It ends with its question, and after LINK_SECONDS_MAX at the latest.
"""

import hmac
import secrets
from datetime import datetime, timedelta

import msgspec
from uuid_utils import uuid7

from handrail.engine.engine import Engine
from handrail.kernel.approval import Approval
from handrail.kernel.definition import LEVELS
from handrail.kernel.run.state import Person
from handrail.server.access import API, PersonRole
from handrail.server.problems import Wrong
from handrail.server.secrets import PREFIX, caller_of, digest
from handrail.store.port import iso, moment
from handrail.store.reviews import LinkRow

LINK_SECONDS_MAX = 30 * 86_400.0


def new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def link_to(
    secret: str,
    approval: Approval,
    person: Person,
    *,
    by: str,
    now: datetime,
    seconds: float = LINK_SECONDS_MAX,
) -> LinkRow:
    """The row to be kept of a new link."""
    ends = min(approval.deadline, now + timedelta(seconds=min(seconds, LINK_SECONDS_MAX)))
    return LinkRow(
        id=uuid7().hex,
        digest=digest(secret),
        approval_id=approval.id,
        shown=approval.digest,
        name=person.name,
        role=person.role,
        created_by=by,
        created_at=iso(now),
        expires_at=iso(ends),
        used_at=None,
    )


def path_of(secret: str) -> str:
    return f"{API}/answer-links/{secret}"


async def known(engine: Engine, secret: str) -> LinkRow:
    """The link of that secret, if it is good still. The question is not looked at."""
    wanted = digest(secret)
    row = await engine.link(wanted)
    if row is None or not hmac.compare_digest(row.digest, wanted):
        told = "this link is not known here; ask for a new one"
        raise Wrong(401, "bad_link", told)
    if row.used_at is not None:
        told = f"this link was used at {row.used_at}; it answers once"
        raise Wrong(410, "link_used", told)
    if moment(row.expires_at) <= engine.clock():
        told = f"this link was good until {row.expires_at}; ask for a new one"
        raise Wrong(410, "link_expired", told)
    return row


async def person_of(engine: Engine, row: LinkRow) -> Person:
    """Whoever the link is for, with what they may do now."""
    role = msgspec.convert(row.role, PersonRole)
    tokens = [one for one in await engine.credentials("token") if one.name == row.name]
    callers = [caller_of(one, engine.clock()) for one in tokens]
    levels = [LEVELS.get(one.role, -1) for one in callers if one is not None]
    if tokens and not levels:
        told = f"{row.name} has no token any more, so this link is nobody's"
        raise Wrong(403, "not_allowed", f"{told}; ask an admin")
    least = min(LEVELS[role], max(levels, default=LEVELS[role]))
    if least < 0:
        raise Wrong(403, "not_allowed", f"{row.name} is no person here any more; ask an admin")
    by_level: dict[int, PersonRole] = {0: "viewer", 1: "operator", 2: "ceo", 3: "admin"}
    return Person(name=row.name, role=by_level[least])
