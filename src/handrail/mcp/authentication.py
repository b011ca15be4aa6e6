"""Authenticate every HTTP request before the SDK: it has to bring the credential of an agent.

The agent follows from that credential alone, at every request: no session outlives it, and nothing
in a message names an agent. Without one, or with one that the server refuses, the status is 401, as
the protocol requires.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from handrail.client.bearer import read_bearer_token
from handrail.mcp.agent_session import AgentSession
from handrail.mcp.agent_sessions import AgentSessions, SessionRefusedError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SCOPE_SESSION = "handrail.seat"
NO_CREDENTIAL_DETAIL = "say who you are: Authorization: Bearer TOKEN, of a token of the role agent"


class McpAuthentication:
    def __init__(self, app: App, sessions: AgentSessions) -> None:
        self.app, self.sessions = app, sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                scope[SCOPE_SESSION] = await self._open_session(scope)
            except SessionRefusedError as error:
                await _refuse(send, error)
                return
        await self.app(scope, receive, send)

    async def _open_session(self, scope: Scope) -> AgentSession:
        token = read_bearer_token(scope["headers"])
        if not token:
            raise SessionRefusedError(401, NO_CREDENTIAL_DETAIL)
        return await self.sessions.open_session(token)


def session_of(context: Any) -> AgentSession:  # noqa: ANN401 - the SDK's, which has the request
    """Return the session of a request."""
    return context.request.scope[SCOPE_SESSION]


async def _refuse(send: Send, error: SessionRefusedError) -> None:
    problem = {"type": "about:blank", "status": error.status, "detail": str(error)}
    headers = [(b"content-type", b"application/problem+json")]
    if error.status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="handrail"'))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(problem).encode()})
