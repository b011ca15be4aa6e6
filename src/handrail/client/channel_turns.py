"""Turns in channels, taken by a worker's functions.

    @worker.channel("reviews")
    async def review(turn):
        await turn.say("reading the diff …")
        async with turn.wait("the build"):
            await build()
        return "looks good to me"

Rules
1. A function's return value is its last message, and completes the turn. The function may say more
   before. A function that raises says nothing more, and passes the turn on.
2. A turn that is over (it timed out, the agent was removed) ends the function: an asynchronous
   function is cancelled, and the server refuses its further messages.
3. If a person speaks during the turn, and the function has not fetched the message (`more`), the
   worker calls the function once more, in the same turn.
4. While a person has interrupted the turn, `say` waits until the turn resumes, as long as the agent
   still has it.
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
from uuid import uuid4

from handrail.client.clients import AsyncClient
from handrail.client.errors import AccessDeniedError, ClientError, ConflictError, NotFoundError
from handrail.client.executor import ReleaseReason, run_in_thread
from handrail.engine.dispatch.agent_results import describe_error
from handrail.engine.log_events import log_event
from handrail.kernel.agent_lifecycle import AgentState
from handrail.views.channels import MessageView, TurnView

T = TypeVar("T")
log = logging.getLogger("handrail.worker")

TurnFunction = Callable[[Any], object]
FUNCTION_CALLS_MAX = 10
"""Per turn."""
INTERRUPTED_POLL_SECONDS = 10.0
"""How long one poll of an interrupted turn waits."""


class RetryCall(Protocol):
    """Retries a call until a server answers."""

    def __call__(self, call: Callable[[], Awaitable[T]]) -> Awaitable[T]: ...


class TurnOverError(Exception):
    """The agent no longer has the turn, and cannot speak in it."""


class WorkerTurn:
    """A turn. `messages` are those of others since this agent's last turn."""

    def __init__(self, view: TurnView, client: AsyncClient, retry: RetryCall) -> None:
        self.channel, self.number, self.messages = view.channel_id, view.turn, view.messages
        self.timeout_at = view.timeout_at
        self._client, self._retry, self._agent_id = client, retry, view.agent_id
        self._read_until = self._polled_until = view.position
        """The last message that the function has read, and the last that a poll has seen."""

    async def say(self, text: str, *, to: str | None = None) -> None:
        """Post a message now, as a partial answer. Raises `TurnOverError`."""
        key = str(uuid4())
        post = partial(
            self._client.channels.post, self.channel, text, to=to, turn=self.number, key=key
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
        """Poll once while the turn is interrupted. Every wait is bounded, so this ends."""
        view = await self._retry(partial(self._client.channels.get, self.channel))
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
        """Return new messages of others; wait up to `wait` seconds for the first."""
        messages = await self._fetch_messages(self._read_until, wait)
        self._read_until = max((self._read_until, *(message.id for message in messages)))
        return tuple(
            message
            for message in messages
            if message.kind == "message" and message.author != self._agent_id
        )

    async def _fetch_messages(self, position: int, wait: float) -> Sequence[MessageView]:
        read = partial(self._client.channels.list_messages, self.channel, after=position, wait=wait)
        return (await self._retry(read)).items

    @asynccontextmanager
    async def wait(self, reason: str = "", seconds: float | None = None) -> AsyncGenerator[None]:
        """Pause the turn inside the block; it resumes with the time it had left. Raises
        `TurnOverError` if the wait was too long."""
        await self._send_action("wait", seconds=seconds, reason=reason)
        yield
        await self._send_action("resume")

    async def complete(self) -> None:
        await self._send_action("complete")

    async def _send_action(self, action: Any, **more: Any) -> None:  # noqa: ANN401 - as the call's
        act = partial(
            self._client.channels.control_turn, self.channel, action, turn=self.number, **more
        )
        try:
            await self._retry(act)
        except (ConflictError, NotFoundError, AccessDeniedError) as error:
            raise TurnOverError(str(error)) from error


class SyncWorkerTurn:
    """A `WorkerTurn` for a function that runs on a thread."""

    def __init__(self, turn: WorkerTurn, loop: asyncio.AbstractEventLoop) -> None:
        self._turn, self._loop = turn, loop
        self.channel, self.number, self.messages = turn.channel, turn.number, turn.messages
        self.timeout_at = turn.timeout_at

    def _run_on_loop(self, coroutine: Any) -> Any:  # noqa: ANN401 - a coroutine, and its result
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def say(self, text: str, *, to: str | None = None) -> None:
        """Post a message now."""
        self._run_on_loop(self._turn.say(text, to=to))

    def more(self, wait: float = 0) -> tuple[MessageView, ...]:
        """Return new messages of others."""
        return self._run_on_loop(self._turn.more(wait))

    @contextmanager
    def wait(self, reason: str = "", seconds: float | None = None) -> Generator[None]:
        """Pause the turn inside the block."""
        pause = self._turn.wait(reason, seconds)
        self._run_on_loop(pause.__aenter__())
        yield
        self._run_on_loop(pause.__aexit__(None, None, None))


class TurnRunner:
    """Runs a worker's turns, and joins the channels in which it takes them."""

    def __init__(
        self, client: AsyncClient, functions: Mapping[str, TurnFunction], retry: RetryCall
    ) -> None:
        self.client, self.functions, self.retry = client, functions, retry
        self.running: dict[str, asyncio.Task[None]] = {}
        self._completing: set[str] = set()
        """Turns whose completion is being sent: the server reporting them ended is no loss."""
        self._refused_channels: set[str] = set()
        """Channels that this agent may not join, already logged."""

    async def join(self, agent_id: str) -> None:
        """Queue the agent in each channel that has a function."""
        await self._join(agent_id, self.functions)

    async def rejoin(self, agent_id: str, states: Mapping[str, AgentState]) -> None:
        """Queue the agent again in those of its channels in which it was lost for a while."""
        lost = [name for name in self.functions if states.get(name) is AgentState.IDLE]
        await self._join(agent_id, lost)

    async def _join(self, agent_id: str, channels: Iterable[str]) -> None:
        for name in channels:
            try:
                await self.retry(partial(self.client.channels.join, name, agent_id))
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
        """Run a turn until it is complete."""
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
        """Return the function's last message; None if it raises."""
        function = self.functions.get(turn.channel)
        if function is None:
            log_event(
                log,
                "turn_passed",
                channel=turn.channel,
                reason="this worker has no function for turns of that channel",
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
        except BaseException as error:  # any failure of the function only passes the turn
            log_event(log, "turn_passed", channel=turn.channel, reason=describe_error(error))
            return None
        if isinstance(returned, ReleaseReason):
            log_event(log, "turn_passed", channel=turn.channel, reason=returned)
            return None
        return str(returned) if returned is not None and str(returned).strip() else None

    async def release(self, agent_id: str, turn_id: str) -> None:
        """Pass the turn on, because the worker stops."""
        channel, _, number = turn_id.rpartition(".t")
        complete = partial(
            self.client.channels.control_turn,
            channel,
            "complete",
            agent_id=agent_id,
            turn=int(number),
        )
        try:
            await self.retry(complete)
        except (ConflictError, NotFoundError, AccessDeniedError) as error:
            log_event(log, "turn_lost", channel=channel, reason=str(error))
