"""Sessions of the page: who is signed in where, for whoever that is, and ended from elsewhere.

A session is a person's own: others' are as if they were not there, but for an admin.
"""

from litestar import delete, get

from handrail.engine.engine import Engine
from handrail.engine.pages import Page
from handrail.kernel.decision import Value
from handrail.server.access import Caller
from handrail.server.authenticate import Credentials
from handrail.server.problems import Wrong, documented
from handrail.server.secrets import caller_of
from handrail.store.office import CredentialRow


class SessionView(Value, omit_defaults=False):
    """`mine` is the one that this request came with."""

    id: str
    name: str
    role: str
    created_at: str
    expires_at: str | None
    mine: bool


@get("/sessions", responses=documented())
async def sessions(engine: Engine, caller: Caller) -> Page[SessionView]:
    """Sessions of the page that are good still, the newest first: one's own; an admin sees all."""
    return Page(items=tuple(_shown(row, caller) for row in await _seen(engine, caller)))


@delete("/sessions/{session_id:str}", responses=documented(404))
async def end_session(
    engine: Engine, credentials: Credentials, caller: Caller, session_id: str
) -> None:
    """Whoever is signed in by it is signed out, wherever that is."""
    ids = [row.id for row in await _seen(engine, caller)]
    if session_id not in ids or not await engine.revoke_credential(session_id):
        told = f"there is no session '{session_id[:80]}' in use; look at the list of sessions"
        raise Wrong(404, "unknown_session", told)
    credentials.forget()


async def _seen(engine: Engine, caller: Caller) -> list[CredentialRow]:
    now = engine.clock()
    rows = [row for row in await engine.credentials("session") if caller_of(row, now) is not None]
    return [row for row in rows if row.name == caller.name or caller.is_at_least("admin")]


def _shown(row: CredentialRow, caller: Caller) -> SessionView:
    return SessionView(
        id=row.id,
        name=row.name,
        role=row.role,
        created_at=row.created_at,
        expires_at=row.expires_at,
        mine=row.id == caller.credential,
    )


HANDLERS = [sessions, end_session]
