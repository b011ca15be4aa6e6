"""Before a door that asks the server about every token: whoever comes with wrong ones comes no
further for a while.

At the server all of them have one address, the door's, so that the wrong tokens of one would slow
down the others there. Here each has its own, and fewer. Whoever was let in before is not slowed
down by others at its address.
"""

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from handrail.client.bearer import token_in
from handrail.server.gate import Admitted, Buckets
from handrail.server.secrets import digest

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

WRONG_A_SECOND = 1.0
RETRY_SECONDS = 5
NOT_KNOWN, TOO_OFTEN, REFUSALS = 401, 429, 400
TOLD = "too many requests from your address had no valid token; mend it, and try again in a while"


class Turnstile:
    def __init__(self, app: App) -> None:
        self.app = app
        self.wrong, self.admitted = Buckets(WRONG_A_SECOND), Admitted()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        address = scope["client"][0] if scope["client"] else ""
        token = token_in(scope["headers"])
        who = digest(token) if token else ""
        if who not in self.admitted and self.wrong.left(address, time.monotonic()) < 1:
            await _refuse(send)
            return

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._note(address, who, message["status"])
            await send(message)

        await self.app(scope, receive, noted)

    def _note(self, address: str, who: str, status: int) -> None:
        unproven = status == TOO_OFTEN and who not in self.admitted
        if status == NOT_KNOWN or unproven:  # the server has had enough of tokens that are wrong
            self.wrong.take(address, time.monotonic())
            self.admitted.drop(who)
        elif who and status < REFUSALS:
            self.admitted.add(who)


async def _refuse(send: Send) -> None:
    problem = {"type": "about:blank", "status": TOO_OFTEN, "detail": TOLD}
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"retry-after", b"%d" % RETRY_SECONDS),
    ]
    await send({"type": "http.response.start", "status": TOO_OFTEN, "headers": headers})
    await send({"type": "http.response.body", "body": msgspec.json.encode(problem)})
