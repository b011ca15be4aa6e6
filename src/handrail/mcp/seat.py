"""An agent at its seat: what it has in hand is kept alive while it works, and given back when it
goes away.

Rules
1. From its first registration or claim on, a heartbeat in the background keeps alive all that the
   agent has in hand. What the server says is over is in hand no more, and the agent hears of it
   with its next call.
2. An agent that has not called for `silence` seconds has gone away, whatever became of its process:
   the heartbeats end, and what it has in hand is given back and offered again.
3. A server that does not answer is asked again with the next heartbeat; the lease decides.
4. Nothing here has to be right for a run to be right. The server judges every call by token and
   fence; a seat that is lost costs a lease.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager

from handrail.client.clients import AsyncClient
from handrail.client.errors import ClientError, Conflict, Denied, NotFound
from handrail.client.shift import UNKNOWN, is_turn
from handrail.engine.attendance import AgentView
from handrail.engine.channel_views import TurnView
from handrail.engine.dispatch import DispatchView
from handrail.engine.vocabulary import tell
from handrail.kernel.lifecycle import AgentState

log = logging.getLogger("handrail.worker")

Work = DispatchView | TurnView
HEARTBEAT_SECONDS = 15.0
SILENCE_SECONDS = 900.0
"""Longer than most single steps of a coding agent; `progress` says that one takes longer."""
STOP_SECONDS = 1.5
"""How long the goodbye may take: whoever started this process does not wait for ever."""
NOT_KNOWN = 401
CALLS_MAX = 8
"""Calls of one agent at once."""
NEWS_MAX = 20
OVER = "its run has ended, or it was taken away"
RESTS = (AgentState.IDLE, AgentState.OFFLINE)
"""A member of a channel in these states is not in its queue."""


class NotSo(Exception):  # noqa: N818 - an answer to the model, not a mistake of the program
    """What cannot be done, and what to do instead."""


class Seat:
    """One agent. `clock` counts seconds."""

    def __init__(
        self,
        client: AsyncClient,
        agent_id: str,
        *,
        heartbeat: float = HEARTBEAT_SECONDS,
        silence: float = SILENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client, self.agent_id = client, agent_id
        self.heartbeat, self.silence, self.clock = heartbeat, silence, clock
        self.in_hand: dict[str, Work] = {}
        self.heard_until: dict[str, int] = {}
        """Channel -> the last message that the agent has read in its turn."""
        self._settling: set[str] = set()
        """What the agent is about to put down itself: that it is over is no news."""
        self._news: deque[str] = deque(maxlen=NEWS_MAX)
        self._calls = 0
        self._last = clock()
        self._beating: asyncio.Task[None] | None = None
        self.is_dismissed = False
        """The server does not take the agent's token any more."""

    # Calls

    @contextmanager
    def called(self) -> Generator[None]:
        """A call of the agent, which is a sign of its life."""
        if self._calls >= CALLS_MAX:
            told = f"{CALLS_MAX} of your calls are under way"
            raise NotSo(f"{told}; wait for one of them, then call again")
        self._calls += 1
        self._last = self.clock()
        try:
            yield
        except ClientError as error:
            self._heed(error)
            raise
        finally:
            self._calls -= 1
            self._last = self.clock()

    def _heed(self, error: ClientError) -> None:
        self.is_dismissed = self.is_dismissed or error.status == NOT_KNOWN

    @property
    def silent_for(self) -> float:
        """Seconds since the agent's last call; none while one is under way."""
        return 0.0 if self._calls else self.clock() - self._last

    def news(self) -> list[str]:
        """What the agent has to hear, once."""
        told = list(self._news)
        self._news.clear()
        return told

    # What is in hand

    def dispatch_id(self, asked: str) -> str:
        """The dispatch that is meant. Whether the agent holds one that it names, the server says:
        this process may have been started after it was claimed."""
        if asked:
            return asked
        return self._only([name for name in self.in_hand if not is_turn(name)], "dispatch")

    def dispatch(self, asked: str) -> DispatchView:
        name = self.dispatch_id(asked)
        found = self.in_hand.get(name)
        if not isinstance(found, DispatchView):
            told = f"'{name[:200]}' is not in your hands here"
            raise NotSo(f"{told}; call `claim`, and what is yours is given to you again")
        return found

    def turn(self, channel: str) -> TurnView:
        turns = {one.channel_id: one for one in self.in_hand.values() if isinstance(one, TurnView)}
        name = channel or self._only(list(turns), "turn in a channel")
        found = turns.get(name)
        if found is None:
            told = f"you do not have the turn in channel '{name[:200]}'"
            raise NotSo(f"{told}; call `claim` until you are given it")
        return found

    def _only(self, names: list[str], what: str) -> str:
        if not names:
            raise NotSo(f"you have no {what} in hand; call `claim` first")
        if len(names) > 1:
            raise NotSo(f"you have more than one {what} in hand; say which: {', '.join(names)}")
        return names[0]

    def take(self, work: Work) -> None:
        self.in_hand[work.id] = work
        if isinstance(work, TurnView):
            self.heard_until[work.channel_id] = work.position
        self.keep_up()

    def put_down(self, name: str, why: str = "") -> None:
        """It is in hand no more; with a reason, the agent is to hear of it."""
        if self.in_hand.pop(name, None) is not None and why:
            self._news.append(f"{name} is over: {why}. Stop working on it.")

    @contextmanager
    def settling(self, name: str) -> Generator[None]:
        """The agent puts it down, unless that goes wrong."""
        self._settling.add(name)
        try:
            yield
            self.put_down(name)
        finally:
            self._settling.discard(name)

    async def join(self, view: AgentView) -> list[str]:
        """Be queued again in the channels of which this agent is a member; those that it is in."""
        joined: list[str] = []
        for name, state in view.channels.items():
            try:
                if state in RESTS:
                    await self.client.join_channel(name, self.agent_id)
                joined.append(name)
            except ClientError as error:
                tell(log, "channel_not_joined", channel=name, reason=str(error))
        return joined

    # Alive

    def keep_up(self) -> None:
        """From now on there are heartbeats."""
        if self._beating is None or self._beating.done():
            self._beating = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        while self.silent_for < self.silence:
            await asyncio.sleep(self.heartbeat)
            try:
                await self._beat_once()
            except ClientError as error:
                self._heed(error)
                if error.code in UNKNOWN or isinstance(error, Denied):
                    self._lose_all(f"the server does not know you any more ({error.detail})")
                    return
                tell(log, "server_lost", reason=str(error))
        reason = f"the agent did not call for {self.silence:g} seconds"
        await self._give_back(reason)
        self._lose_all(f"you did not call for {self.silence:g} seconds; call `progress` meanwhile")

    async def _beat_once(self) -> None:
        holding = sorted(self.in_hand)
        answer = await self.client.heartbeat(self.agent_id, holding=holding)
        for name in set(answer.ended) - self._settling:
            self.put_down(name, OVER)
        if answer.state is AgentState.IDLE:
            await self.join(await self.client.agent(self.agent_id))

    def _lose_all(self, why: str) -> None:
        for name in list(self.in_hand):
            self.put_down(name, why)

    # Gone

    async def leave(self, reason: str = "") -> None:
        """No more heartbeats; with a reason, what is in hand is given back."""
        beating, self._beating = self._beating, None
        if beating is None:
            return
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        if reason:
            await self._give_back(reason)

    async def _give_back(self, reason: str) -> None:
        """Also what the server gave while nobody listened to its answer any more."""
        try:
            async with asyncio.timeout(STOP_SECONDS):
                for name in (await self.client.heartbeat(self.agent_id)).held:
                    await self._give_one(name, reason)
        except (TimeoutError, ClientError) as error:
            tell(log, "not_handed_back", reason=str(error) or "no server answers")

    async def _give_one(self, name: str, reason: str) -> None:
        tell(log, "dispatch_given_back", dispatch_id=name, reason=reason)
        try:
            if is_turn(name):
                channel, _, number = name.rpartition(".t")
                await self.client.turn(channel, "complete", turn=int(number))
            else:
                await self.client.release(name, fence_of(name), reason)
        except (Conflict, NotFound) as error:
            tell(log, "result_dropped", dispatch_id=name, reason=str(error))


def fence_of(dispatch_id: str) -> int:
    """The fence of a dispatch, which its id ends with."""
    number = dispatch_id.rpartition(".d")[2]
    if not (number.isascii() and number.isdigit() and len(number) < 16):
        raise NotSo(f"'{dispatch_id[:200]}' is no id of a dispatch; take it from what `claim` gave")
    return int(number)
