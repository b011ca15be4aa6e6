"""Before the SDK over HTTP: every request has to bring the token of an agent.

Who it is follows from that token alone, at every request: no session outlives it, and nothing in a
message names an agent. Without one, or with one that the server refuses, it is 401, as the protocol
asks for.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from handrail.client.bearer import token_in
from handrail.mcp.seat import Seat
from handrail.mcp.seats import NoSeat, Seats

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SEAT = "handrail.seat"
WHO = "say who you are: Authorization: Bearer TOKEN, of a token of the role agent"


class Door:
    def __init__(self, app: App, seats: Seats) -> None:
        self.app, self.seats = app, seats

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                scope[SEAT] = await self._seat(scope)
            except NoSeat as error:
                await _refuse(send, error)
                return
        await self.app(scope, receive, send)

    async def _seat(self, scope: Scope) -> Seat:
        token = token_in(scope["headers"])
        if not token:
            raise NoSeat(401, WHO)
        return await self.seats.sit(token)


def seated(context: Any) -> Seat:  # noqa: ANN401 - the SDK's, which has the request
    """Whose seat a request is of."""
    return context.request.scope[SEAT]


async def _refuse(send: Send, error: NoSeat) -> None:
    problem = {"type": "about:blank", "status": error.status, "detail": str(error)}
    headers = [(b"content-type", b"application/problem+json")]
    if error.status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="handrail"'))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(problem).encode()})
