"""Turns in channels, as a worker's functions take them.

    @worker.channel("reviews")
    async def review(turn):
        await turn.say("reading the diff …")
        async with turn.wait("the build"):
            await build()
        return "looks good to me"

Rules
1. What a function returns is its last message, and completes the turn. It may say more before. One
   that raises says nothing more, and passes the turn on.
2. A turn that is over (it timed out, the agent was removed) ends the function: an asynchronous one
   is cancelled, and whatever it still says is refused.
3. What a person says during the turn, and the function has not asked for (`more`), calls it once
   more, in the same turn.
4. While a person has interrupted the turn, `say` waits until it goes on, as long as the turn is its
   own.
"""

import asyncio
import inspect
import logging
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from uuid_utils import uuid7

from handrail.client.clients import AsyncClient
from handrail.client.errors import ClientError, Conflict, Denied, NotFound
from handrail.client.hands import GivenBack, in_thread
from handrail.engine.channel_views import MessageView, TurnView
from handrail.engine.returned import told
from handrail.engine.vocabulary import tell
from handrail.kernel.lifecycle import AgentState

T = TypeVar("T")
log = logging.getLogger("handrail.worker")

TurnFunction = Callable[[Any], object]
CALLS_MAX = 10
"""Of the function, in one turn."""
LOOK_SECONDS = 10.0
"""How long one look at an interrupted turn waits."""


class Insist(Protocol):
    """A call that is tried until a server answers."""

    def __call__(self, call: Callable[[], Awaitable[T]]) -> Awaitable[T]: ...


class TurnOver(Exception):  # noqa: N818 - it is nobody's mistake
    """The turn is not this agent's any more: nothing can be said in it."""


class Turn:
    """A turn. `messages` is what was said since this agent's last one, by others."""

    def __init__(self, view: TurnView, client: AsyncClient, insist: Insist) -> None:
        self.channel, self.number, self.messages = view.channel_id, view.turn, view.messages
        self.timeout_at = view.timeout_at
        self._client, self._insist, self._agent = client, insist, view.agent_id
        self._seen = self._looked = view.position
        """Up to where the function has read, and up to where an interrupted turn was looked at."""

    async def say(self, text: str, *, to: str | None = None) -> None:
        """A message, now: a partial answer. Raises `TurnOver`."""
        key = str(uuid7())
        post = partial(self._client.say, self.channel, text, to=to, turn=self.number, key=key)
        while not await self._said(post):
            await self._interrupted()

    async def _said(self, post: Callable[[], Awaitable[object]]) -> bool:
        try:
            await self._insist(post)
        except Conflict as error:
            if error.code == "not_active":
                return False
            raise TurnOver(str(error)) from error
        except (NotFound, Denied) as error:
            raise TurnOver(str(error)) from error
        return True

    async def _interrupted(self) -> None:
        """Until the turn may go on. A wait has an end, so has this."""
        view = await self._insist(partial(self._client.channel, self.channel))
        if view.turn is None or (view.turn.agent_id, view.turn.number) != (
            self._agent,
            self.number,
        ):
            raise TurnOver(f"turn {self.number} in channel '{self.channel}' is over")
        if view.active != self._agent:
            found = await self._since(max(self._seen, self._looked), LOOK_SECONDS)
            self._looked = max((self._looked, *(one.id for one in found)))

    async def more(self, wait: float = 0) -> tuple[MessageView, ...]:
        """What others have said since, waiting for the first so many seconds."""
        found = await self._since(self._seen, wait)
        self._seen = max((self._seen, *(one.id for one in found)))
        return tuple(one for one in found if one.kind == "message" and one.author != self._agent)

    async def _since(self, position: int, wait: float) -> Sequence[MessageView]:
        read = partial(self._client.messages, self.channel, after=position, wait=wait)
        return (await self._insist(read)).items

    @asynccontextmanager
    async def wait(self, reason: str = "", seconds: float | None = None) -> AsyncGenerator[None]:
        """The turn is paused inside, and goes on afterwards with the time it had left. Raises
        `TurnOver` if the wait was longer than it may be."""
        await self._act("wait", seconds=seconds, reason=reason)
        yield
        await self._act("resume")

    async def complete(self) -> None:
        await self._act("complete")

    async def _act(self, action: Any, **more: Any) -> None:  # noqa: ANN401 - as the call's
        act = partial(self._client.turn, self.channel, action, turn=self.number, **more)
        try:
            await self._insist(act)
        except (Conflict, NotFound, Denied) as error:
            raise TurnOver(str(error)) from error


class SyncTurn:
    """The same for a function that runs on a thread."""

    def __init__(self, turn: Turn, loop: asyncio.AbstractEventLoop) -> None:
        self._turn, self._loop = turn, loop
        self.channel, self.number, self.messages = turn.channel, turn.number, turn.messages
        self.timeout_at = turn.timeout_at

    def _do(self, work: Any) -> Any:  # noqa: ANN401 - a coroutine, and what it gives
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def say(self, text: str, *, to: str | None = None) -> None:
        """A message, now."""
        self._do(self._turn.say(text, to=to))

    def more(self, wait: float = 0) -> tuple[MessageView, ...]:
        """What others have said since."""
        return self._do(self._turn.more(wait))

    @contextmanager
    def wait(self, reason: str = "", seconds: float | None = None) -> Generator[None]:
        """The turn is paused inside."""
        pause = self._turn.wait(reason, seconds)
        self._do(pause.__aenter__())
        yield
        self._do(pause.__aexit__(None, None, None))


class Turns:
    """The turns that a worker has in hand, and the channels that it takes turns in."""

    def __init__(
        self, client: AsyncClient, functions: Mapping[str, TurnFunction], insist: Insist
    ) -> None:
        self.client, self.functions, self.insist = client, functions, insist
        self.in_hand: dict[str, asyncio.Task[None]] = {}
        self._completing: set[str] = set()
        """Turns whose end is on its way: what the server says of them is no loss."""
        self._outside: set[str] = set()
        """Channels that this agent may not join, which was told."""

    async def join(self, agent_id: str) -> None:
        """Be queued wherever this agent is a member."""
        await self._join(agent_id, self.functions)

    async def return_to(self, agent_id: str, states: Mapping[str, AgentState]) -> None:
        """Be queued again where it was lost for a while, in all of its channels or in some."""
        lost = [name for name in self.functions if states.get(name) is AgentState.IDLE]
        await self._join(agent_id, lost)

    async def _join(self, agent_id: str, channels: Iterable[str]) -> None:
        for name in channels:
            try:
                await self.insist(partial(self.client.join_channel, name, agent_id))
                self._outside.discard(name)
            except ClientError as error:
                if name not in self._outside:
                    tell(log, "channel_not_joined", channel=name, reason=str(error))
                self._outside.add(name)

    def begin(self, view: TurnView) -> asyncio.Task[None]:
        task = self.in_hand[view.id] = asyncio.create_task(self._take(view))
        task.add_done_callback(lambda _: self._put_down(view.id))
        return task

    def _put_down(self, turn_id: str) -> None:
        del self.in_hand[turn_id]
        self._completing.discard(turn_id)

    def drop(self, turn_id: str, why: str) -> None:
        if turn_id in self._completing:
            return
        tell(log, "turn_lost", channel=turn_id.rpartition(".t")[0], reason=why)
        self.in_hand[turn_id].cancel()

    async def _take(self, view: TurnView) -> None:
        """From its first moment until it is complete."""
        turn = Turn(view, self.client, self.insist)
        try:
            for _ in range(CALLS_MAX):
                said = await self._answer(turn)
                if said is not None:
                    await turn.say(said)
                turn.messages = await turn.more()
                if not turn.messages:
                    break
            self._completing.add(view.id)
            await turn.complete()
        except TurnOver as over:
            tell(log, "turn_lost", channel=view.channel_id, reason=str(over))

    async def _answer(self, turn: Turn) -> str | None:
        """What the function says last; nothing if it raises."""
        function = self.functions.get(turn.channel)
        if function is None:
            tell(log, "turn_passed", channel=turn.channel, reason="no function takes turns there")
            return None
        try:
            if inspect.iscoroutinefunction(function):
                said = await cast("Awaitable[object]", function(turn))
            else:
                synced = SyncTurn(turn, asyncio.get_running_loop())
                came = in_thread(function, synced, turn.channel)
                await asyncio.wait((came,))
                said = came.result()
        except (asyncio.CancelledError, KeyboardInterrupt, TurnOver):
            raise
        except BaseException as error:  # its own trouble, whatever it is, and not ours
            tell(log, "turn_passed", channel=turn.channel, reason=told(error))
            return None
        if isinstance(said, GivenBack):
            tell(log, "turn_passed", channel=turn.channel, reason=said)
            return None
        return str(said) if said is not None and str(said).strip() else None

    async def give_back(self, agent_id: str, turn_id: str) -> None:
        """The worker ends: the turn goes on to the next."""
        channel, _, number = turn_id.rpartition(".t")
        done = partial(self.client.turn, channel, "complete", agent_id=agent_id, turn=int(number))
        try:
            await self.insist(done)
        except (Conflict, NotFound, Denied) as error:
            tell(log, "turn_lost", channel=channel, reason=str(error))
