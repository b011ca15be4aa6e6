"""The seats of one process: who sits down is who the server says the token is of.

Over stdio there is one. Over HTTP every request brings its own token, and with it its own seat; a
seat is known by the digest of the token, which is kept nowhere else.
"""

import asyncio
import hashlib
from types import TracebackType
from typing import Self

from handrail.client.clients import Client
from handrail.client.errors import ClientError, ProblemDocument
from handrail.mcp.seat import HEARTBEAT_SECONDS, SILENCE_SECONDS, Seat

SEATS_MAX = 200
PATIENCE_SECONDS = 5.0
"""How long one call is tried: the model hears that nobody answers, and calls again."""
AWAY_SECONDS = 5.0
"""Whoever called later than that may be about to call again."""
GONE = "the agent went away"


class NoSeat(Exception):  # noqa: N818 - an answer, not a mistake of the program
    """Nobody can sit down now; `status` is that of the HTTP answer."""

    def __init__(self, status: int, told: str) -> None:
        super().__init__(told)
        self.status = status


class Seats:
    def __init__(
        self,
        url: str,
        *,
        heartbeat: float = HEARTBEAT_SECONDS,
        silence: float = SILENCE_SECONDS,
    ) -> None:
        self.url, self.heartbeat, self.silence = url, heartbeat, silence
        self._seats: dict[str, tuple[Client, Seat]] = {}
        self._sitting_down = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The process ends, and the agents may be there still: what they have in hand is theirs for
        a lease."""
        for token in list(self._seats):
            await self._clear(token)

    async def sit(self, token: str) -> Seat:
        """The seat of that token. Raises `NoSeat`."""
        name = hashlib.sha256(token.encode()).hexdigest()
        found = self._seats.get(name)
        if found is not None and not found[1].is_dismissed:
            return found[1]
        async with self._sitting_down:
            if found is not None and self._seats.get(name) is found:
                await self._clear(name)
        made = await self._sit(token)
        try:
            async with self._sitting_down:
                return await self._seated(name, made)
        finally:
            if self._seats.get(name) is not made:  # another request of the same agent was faster
                await made[0].__aexit__(None, None, None)

    async def _seated(self, name: str, made: tuple[Client, Seat]) -> Seat:
        if name not in self._seats:
            await self._make_room()
            self._seats[name] = made
        return self._seats[name][1]

    async def leave(self, reason: str = GONE) -> None:
        """Everybody has gone away: what they have in hand is given back. Whoever else says so
        meanwhile waits for it."""
        async with self._sitting_down:
            for token in list(self._seats):
                await self._clear(token, reason)

    async def _sit(self, token: str) -> tuple[Client, Seat]:
        try:
            of = Client(self.url, token, patience=PATIENCE_SECONDS)
        except ValueError as error:
            raise NoSeat(401, str(error)) from error
        client = await of.__aenter__()
        try:
            me = await client.me()
            if me.role != "agent":
                told = f"the token is of {me.name}, who is no agent; make one with"
                raise NoSeat(403, f"{told} `handrail token create --role agent --agent ID`")
        except ClientError as error:
            await client.close()
            raise NoSeat(error.status or 503, _why(error.problem, str(error))) from error
        except BaseException:
            await client.close()
            raise
        return of, Seat(client, me.name, heartbeat=self.heartbeat, silence=self.silence)

    async def _make_room(self) -> None:
        """Who has been silent for longest, and has gone, makes room."""
        if len(self._seats) < SEATS_MAX:
            return
        silent = [(seat.silent_for, name) for name, (_, seat) in self._seats.items()]
        idle = [(since, name) for since, name in silent if not self._seats[name][1].in_hand]
        since, name = max(idle, default=(-1.0, ""))
        if since < AWAY_SECONDS:
            raise NoSeat(503, f"{SEATS_MAX} agents are at work here; try again in a while")
        await self._clear(name)

    async def _clear(self, name: str, reason: str = "") -> None:
        of, seat = self._seats.pop(name)
        await seat.leave(reason)
        await of.__aexit__(None, None, None)


def _why(problem: ProblemDocument, line: str) -> str:
    return problem.detail or line
