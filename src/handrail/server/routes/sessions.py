"""Web app sessions: people list their own, and end them from elsewhere.

Sessions of others are as if they did not exist, except for an admin.
"""

from msgspec import convert
from msgspec.structs import asdict

from handrail.api.admin import SessionCalls, SessionView
from handrail.engine.engine import Engine
from handrail.kernel.decision import prepare_types
from handrail.server.access import Caller
from handrail.server.authentication import CredentialCache
from handrail.server.binding import serves
from handrail.server.credentials import caller_from_credential
from handrail.server.problems import HTTPProblemError
from handrail.store.credentials import CredentialRow
from handrail.views.pages import Page

prepare_types(SessionView)


@serves(SessionCalls.list)
async def list_sessions(engine: Engine, caller: Caller) -> Page[SessionView]:
    return Page(
        items=tuple(_to_view(row, caller) for row in await _visible_sessions(engine, caller))
    )


@serves(SessionCalls.end)
async def end_session(
    engine: Engine, credentials: CredentialCache, caller: Caller, session_id: str
) -> None:
    ids = [row.id for row in await _visible_sessions(engine, caller)]
    if session_id not in ids or not await engine.credentials.revoke(session_id):
        message = f"there is no session '{session_id[:80]}' in use; look at the list of sessions"
        raise HTTPProblemError(404, "unknown_session", message)
    credentials.clear()


async def _visible_sessions(engine: Engine, caller: Caller) -> list[CredentialRow]:
    now = engine.clock()
    rows = [
        row
        for row in await engine.credentials.list("session")
        if caller_from_credential(row, now) is not None
    ]
    return [row for row in rows if row.name == caller.name or caller.is_at_least("admin")]


def _to_view(row: CredentialRow, caller: Caller) -> SessionView:
    return convert({**asdict(row), "mine": row.id == caller.credential}, SessionView)
