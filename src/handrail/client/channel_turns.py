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
from handrail.client.errors import AccessDeniedError, ClientError, ConflictError, NotFoundError
from handrail.client.executor import ReleaseReason, run_in_thread
from handrail.engine.dispatch.agent_results import describe_error
from handrail.engine.log_events import log_event
from handrail.engine.queries.channel_views import MessageView, TurnView
from handrail.kernel.agent_lifecycle import AgentState

T = TypeVar("T")
log = logging.getLogger("handrail.worker")

TurnFunction = Callable[[Any], object]
FUNCTION_CALLS_MAX = 10
"""Of the function, in one turn."""
INTERRUPTED_POLL_SECONDS = 10.0
"""How long one look at an interrupted turn waits."""


class RetryCall(Protocol):
    """A call that is tried until a server answers."""

    def __call__(self, call: Callable[[], Awaitable[T]]) -> Awaitable[T]: ...


class TurnOverError(Exception):
    """The turn is not this agent's any more: nothing can be said in it."""


class WorkerTurn:
    """A turn. `messages` is what was said since this agent's last one, by others."""

    def __init__(self, view: TurnView, client: AsyncClient, retry: RetryCall) -> None:
        self.channel, self.number, self.messages = view.channel_id, view.turn, view.messages
        self.timeout_at = view.timeout_at
        self._client, self._retry, self._agent_id = client, retry, view.agent_id
        self._read_until = self._polled_until = view.position
        """Up to where the function has read, and up to where an interrupted turn was looked at."""

    async def say(self, text: str, *, to: str | None = None) -> None:
        """A message, now: a partial answer. Raises `TurnOverError`."""
        key = str(uuid7())
        post = partial(
            self._client.post_message, self.channel, text, to=to, turn=self.number, key=key
        )
        while not await self._try_post(post):
            await self._wait_while_interrupted()

    async def _try_post(self, post: Callable[[], Awaitable[object]]) -> bool:
        try:
            await self._retry(post)
        except ConflictError as error:
            if error.code == "not_active":
                return False
            raise TurnOverError(str(error)) from error
        except (NotFoundError, AccessDeniedError) as error:
            raise TurnOverError(str(error)) from error
        return True

    async def _wait_while_interrupted(self) -> None:
        """Until the turn may go on. A wait has an end, so has this."""
        view = await self._retry(partial(self._client.get_channel, self.channel))
        if view.turn is None or (view.turn.agent_id, view.turn.number) != (
            self._agent_id,
            self.number,
        ):
            raise TurnOverError(f"turn {self.number} in channel '{self.channel}' is over")
        if view.active != self._agent_id:
            messages = await self._fetch_messages(
                max(self._read_until, self._polled_until), INTERRUPTED_POLL_SECONDS
            )
            self._polled_until = max((self._polled_until, *(message.id for message in messages)))

    async def more(self, wait: float = 0) -> tuple[MessageView, ...]:
        """What others have said since, waiting for the first so many seconds."""
        messages = await self._fetch_messages(self._read_until, wait)
        self._read_until = max((self._read_until, *(message.id for message in messages)))
        return tuple(
            message
            for message in messages
            if message.kind == "message" and message.author != self._agent_id
        )

    async def _fetch_messages(self, position: int, wait: float) -> Sequence[MessageView]:
        read = partial(self._client.list_messages, self.channel, after=position, wait=wait)
        return (await self._retry(read)).items

    @asynccontextmanager
    async def wait(self, reason: str = "", seconds: float | None = None) -> AsyncGenerator[None]:
        """The turn is paused inside, and goes on afterwards with the time it had left. Raises
        `TurnOverError` if the wait was longer than it may be."""
        await self._send_action("wait", seconds=seconds, reason=reason)
        yield
        await self._send_action("resume")

    async def complete(self) -> None:
        await self._send_action("complete")

    async def _send_action(self, action: Any, **more: Any) -> None:  # noqa: ANN401 - as the call's
        act = partial(self._client.control_turn, self.channel, action, turn=self.number, **more)
        try:
            await self._retry(act)
        except (ConflictError, NotFoundError, AccessDeniedError) as error:
            raise TurnOverError(str(error)) from error


class SyncWorkerTurn:
    """The same for a function that runs on a thread."""

    def __init__(self, turn: WorkerTurn, loop: asyncio.AbstractEventLoop) -> None:
        self._turn, self._loop = turn, loop
        self.channel, self.number, self.messages = turn.channel, turn.number, turn.messages
        self.timeout_at = turn.timeout_at

    def _run_on_loop(self, coroutine: Any) -> Any:  # noqa: ANN401 - a coroutine, and what it gives
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def say(self, text: str, *, to: str | None = None) -> None:
        """A message, now."""
        self._run_on_loop(self._turn.say(text, to=to))

    def more(self, wait: float = 0) -> tuple[MessageView, ...]:
        """What others have said since."""
        return self._run_on_loop(self._turn.more(wait))

    @contextmanager
    def wait(self, reason: str = "", seconds: float | None = None) -> Generator[None]:
        """The turn is paused inside."""
        pause = self._turn.wait(reason, seconds)
        self._run_on_loop(pause.__aenter__())
        yield
        self._run_on_loop(pause.__aexit__(None, None, None))


class TurnRunner:
    """The turns that a worker has in hand, and the channels that it takes turns in."""

    def __init__(
        self, client: AsyncClient, functions: Mapping[str, TurnFunction], retry: RetryCall
    ) -> None:
        self.client, self.functions, self.retry = client, functions, retry
        self.running: dict[str, asyncio.Task[None]] = {}
        self._completing: set[str] = set()
        """Turns whose end is on its way: what the server says of them is no loss."""
        self._refused_channels: set[str] = set()
        """Channels that this agent may not join, which was told."""

    async def join(self, agent_id: str) -> None:
        """Be queued wherever this agent is a member."""
        await self._join(agent_id, self.functions)

    async def rejoin(self, agent_id: str, states: Mapping[str, AgentState]) -> None:
        """Be queued again where it was lost for a while, in all of its channels or in some."""
        lost = [name for name in self.functions if states.get(name) is AgentState.IDLE]
        await self._join(agent_id, lost)

    async def _join(self, agent_id: str, channels: Iterable[str]) -> None:
        for name in channels:
            try:
                await self.retry(partial(self.client.join_channel, name, agent_id))
                self._refused_channels.discard(name)
            except ClientError as error:
                if name not in self._refused_channels:
                    log_event(log, "channel_not_joined", channel=name, reason=str(error))
                self._refused_channels.add(name)

    def start(self, view: TurnView) -> asyncio.Task[None]:
        task = self.running[view.id] = asyncio.create_task(self._run_turn(view))
        task.add_done_callback(lambda _: self._forget(view.id))
        return task

    def _forget(self, turn_id: str) -> None:
        del self.running[turn_id]
        self._completing.discard(turn_id)

    def drop(self, turn_id: str, reason: str) -> None:
        if turn_id in self._completing:
            return
        log_event(log, "turn_lost", channel=turn_id.rpartition(".t")[0], reason=reason)
        self.running[turn_id].cancel()

    async def _run_turn(self, view: TurnView) -> None:
        """From its first moment until it is complete."""
        turn = WorkerTurn(view, self.client, self.retry)
        try:
            for _ in range(FUNCTION_CALLS_MAX):
                text = await self._call_function(turn)
                if text is not None:
                    await turn.say(text)
                turn.messages = await turn.more()
                if not turn.messages:
                    break
            self._completing.add(view.id)
            await turn.complete()
        except TurnOverError as error:
            log_event(log, "turn_lost", channel=view.channel_id, reason=str(error))

    async def _call_function(self, turn: WorkerTurn) -> str | None:
        """What the function says last; nothing if it raises."""
        function = self.functions.get(turn.channel)
        if function is None:
            log_event(
                log, "turn_passed", channel=turn.channel, reason="no function takes turns there"
            )
            return None
        try:
            if inspect.iscoroutinefunction(function):
                returned = await cast("Awaitable[object]", function(turn))
            else:
                sync_turn = SyncWorkerTurn(turn, asyncio.get_running_loop())
                future = run_in_thread(function, sync_turn, turn.channel)
                await asyncio.wait((future,))
                returned = future.result()
        except (asyncio.CancelledError, KeyboardInterrupt, TurnOverError):
            raise
        except BaseException as error:  # its own trouble, whatever it is, and not ours
            log_event(log, "turn_passed", channel=turn.channel, reason=describe_error(error))
            return None
        if isinstance(returned, ReleaseReason):
            log_event(log, "turn_passed", channel=turn.channel, reason=returned)
            return None
        return str(returned) if returned is not None and str(returned).strip() else None

    async def release(self, agent_id: str, turn_id: str) -> None:
        """The worker ends: the turn goes on to the next."""
        channel, _, number = turn_id.rpartition(".t")
        complete = partial(
            self.client.control_turn, channel, "complete", agent_id=agent_id, turn=int(number)
        )
        try:
            await self.retry(complete)
        except (ConflictError, NotFoundError, AccessDeniedError) as error:
            log_event(log, "turn_lost", channel=channel, reason=str(error))
